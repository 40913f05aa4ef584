//! What a user needs to receive the synthetic detector: its calibration and a configuration.

use super::detector::jungfrau;
use crate::cli::JungfrauArgs;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sim::scene::SceneModel;
use std::net::SocketAddr;
use std::path::Path;

/// Writes the calibration into `folder` and, if asked for, the configuration.
pub fn write(args: &JungfrauArgs, to: SocketAddr, folder: &Path) -> Result<Exit, Failure> {
    let detector = jungfrau(args.send.modules)?;
    write_files(folder, &detector.calibration_files(true))?;
    console::to_stdout(&format!("wrote the calibration of the synthetic detector to {}", folder.display()));
    if let Some(path) = &args.write_config {
        let run = RunText {
            modules: args.send.modules,
            interfaces: args.interfaces,
            beam: Beam::of(&detector.model().scene),
            address: to,
            calibration: &std::path::absolute(folder).unwrap_or(folder.into()),
            directory: Path::new("."),
            prefix: "simulated",
            run: args.send.images.map_or(String::new(), |n| format!("images = {n}\n"))
                + &format!("first_frame = {}", args.send.first_frame.unwrap_or(1)),
            more: String::new(),
        };
        std::fs::write(path, run.text()).map_err(|e| Failure::io("cannot write", path, &e))?;
        console::to_stdout(&format!("wrote {0}; now: konkordia receive {0}", path.display()));
    }
    Ok(Exit::Complete)
}

/// Writes files by name into a folder, which is made.
pub fn write_files(folder: &Path, files: &[(&str, Vec<u8>)]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|e| Failure::io("cannot make the folder", folder, &e))?;
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|e| Failure::io("cannot write", &path, &e))?;
    }
    Ok(())
}

/// The beam of a run, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Beam {
    /// Photon energy.
    pub energy_kev: f64,
    /// Distance of the detector.
    pub distance_mm: Option<f64>,
    /// Column and row where the beam meets the image, in pixels.
    pub center_px: Option<(f64, f64)>,
}

impl Beam {
    /// The beam of the synthetic detector. The beam centre is given for one module only: several modules have gaps in
    /// the simulation and are stacked without gaps in the file.
    pub fn of(scene: &SceneModel) -> Self {
        let center_px = (scene.modules == 1).then_some(scene.beam_px);
        Self { energy_kev: scene.energy_kev, distance_mm: Some(scene.distance_mm), center_px }
    }

    /// Lines of `[detector]`.
    fn text(&self) -> String {
        let mut text = format!("energy_kev = {:?}\n", self.energy_kev);
        if let Some(distance) = self.distance_mm {
            text += &format!("detector_distance_mm = {distance:?}\n");
        }
        if let Some((x, y)) = self.center_px {
            text += &format!("beam_center_x_px = {x:?}\nbeam_center_y_px = {y:?}\n");
        }
        text
    }
}

/// The values of a configuration for a simulated JUNGFRAU.
pub struct RunText<'a> {
    /// Modules.
    pub modules: u32,
    /// UDP interfaces per module.
    pub interfaces: u8,
    /// Beam and distance.
    pub beam: Beam,
    /// Where packets arrive.
    pub address: SocketAddr,
    /// Folder with the four calibration files.
    pub calibration: &'a Path,
    /// Folder of the output.
    pub directory: &'a Path,
    /// First part of the file names.
    pub prefix: &'a str,
    /// Lines of `[run]`.
    pub run: String,
    /// Further tables.
    pub more: String,
}

impl RunText<'_> {
    /// The configuration as TOML.
    pub fn text(&self) -> String {
        let quoted = |text: String| toml::Value::String(text).to_string();
        let file = |name: &str| quoted(self.calibration.join(name).display().to_string());
        format!(
            "# Receives a simulated JUNGFRAU. To send one:\n\
             # konkordia simulate jungfrau --to {} --modules {modules} --interfaces {interfaces} --rate 100\n\
             [detector]\ntype = \"jungfrau\"\nmodules = {modules}\ninterfaces = {interfaces}\n{}\n\
             [source]\naddress = \"{}\"\nfirst_port = {}\n\n\
             [calibration]\nkind = \"files\"\npedestal = [{}, {}, {}]\ngain = {}\n\n\
             [output]\ndirectory = {}\nprefix = {}\noverwrite = \"replace\"\n\
             sample_name = \"simulated crystal\"\nbeamline = \"simulation\"\nsource_name = \"simulation\"\n\n\
             [run]\n{}\n{}",
            self.address,
            self.beam.text(),
            self.address.ip(),
            self.address.port(),
            file("pedestal_g0.f32"),
            file("pedestal_g1.f32"),
            file("pedestal_g2.f32"),
            file("gain_adu_per_kev.f32"),
            quoted(self.directory.display().to_string()),
            quoted(self.prefix.to_string()),
            self.run,
            self.more,
            modules = self.modules,
            interfaces = self.interfaces,
        )
    }
}
