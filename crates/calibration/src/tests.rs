//! Good and bad calibration files.

#[path = "../../../tests/skip.rs"]
mod skip;

use super::planes::PLANE_BYTES;
use super::reasons::{DEAD, MARKED, NO_GAIN, NOISY, WRONG_STAGE};
use super::*;
use konkordia_core::failure::Exit;
use konkordia_core::pixel::Pixel;
use konkordia_kernels::constants::ConstantPlanes;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, Keep, MODULE_PIXELS, StagePedestal};

/// A folder with the files of a plausible module, changed by `change`.
struct Case {
    folder: tempfile::TempDir,
    modules: usize,
    config: String,
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

impl Case {
    fn new(modules: usize) -> Self {
        let case = Self { folder: tempfile::tempdir().unwrap(), modules, config: String::new() };
        for (name, value) in [("p0", 3000.0), ("p1", 15000.0), ("p2", 14500.0)] {
            case.write(name, &bytes(&vec![value; modules * MODULE_PIXELS]));
        }
        case.write(
            "gain",
            &bytes(&[41.0f32, -1.44, -0.114].into_iter().flat_map(|v| vec![v; modules * MODULE_PIXELS]).collect::<Vec<_>>()),
        );
        case
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    /// Overwrites one float32 of a file.
    fn poke(&self, name: &str, index: usize, value: f32) {
        let path = self.folder.path().join(name);
        let mut content = std::fs::read(&path).unwrap();
        content[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
        std::fs::write(path, content).unwrap();
    }

    fn load_with(&self, gain: &str) -> Result<Loaded, Failure> {
        let text = format!(
            "[detector]\ntype = \"jungfrau\"\nmodules = {}\nenergy_kev = 12.4\n{}\n[calibration]\nkind = \"files\"\npedestal = [\"p0\", \"p1\", \"p2\"]\ngain = {gain}\n[output]\ndirectory = \".\"\nprefix = \"a\"\n",
            self.modules, self.config
        );
        let config = Config::parse(&text, &self.folder.path().join("run.toml")).map_err(|d| d.to_string()).unwrap();
        for_config(&config)
    }

    fn load(&self) -> Result<Loaded, Failure> {
        self.load_with("\"gain\"")
    }

    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        let failure = self.load().err().expect("refused");
        assert_eq!(failure.exit, Exit::Configuration);
        let text = failure.to_string();
        for part in parts {
            assert!(text.contains(part), "expected '{part}' in\n{text}");
        }
    }
}

fn planes(loaded: &Loaded) -> &ConstantPlanes {
    match &loaded.constants {
        PixelConstants::Jungfrau(calibration) => &calibration.sets[0],
        _ => panic!("photons need constants"),
    }
}

#[test]
fn constants_come_in_output_order_and_gaps_are_masked() {
    let mut case = Case::new(2);
    case.config = "interfaces = 2\ngeometry = \"jungfrau-1m\"".into();
    case.poke("p0", 5, 2000.0);
    case.poke("p0", MODULE_PIXELS + 256 * 1024, 2100.0);
    case.poke("gain", 7, 40.0);
    let loaded = case.load().unwrap();
    let at = |row: usize, column: usize| row * 1030 + column;
    let constants = planes(&loaded);
    assert_eq!(loaded.mask.len(), 1064 * 1030);
    assert_eq!((loaded.mask[0], loaded.mask[at(1, 3)], loaded.mask[at(520, 3)]), (1, 0, 1));
    assert_eq!(constants.pedestal[0][at(1, 8)], 2000.0);
    assert_eq!(constants.pedestal[0][at(550 + 1 + 256, 3)], 2100.0);
    assert_eq!(constants.factor[0][at(1, 10)], 1.0 / (40.0 * 12.4f32));
    assert!(constants.factor[2][at(0, 0)].is_nan());
    assert_eq!(loaded.mask.iter().filter(|m| **m == 0).count(), 2 * MODULE_PIXELS);
}

#[test]
fn unusable_pixels_are_masked_and_counted_by_stage() {
    let case = Case::new(1);
    case.poke("p0", 0, 0.0);
    case.poke("p0", 1, 16383.0);
    case.poke("p0", 2, f32::NAN);
    case.poke("gain", 3, 0.0);
    case.poke("gain", 4, f32::NAN);
    case.poke("gain", 5, -41.0);
    case.poke("gain", MODULE_PIXELS + 6, 0.0);
    case.poke("p2", 7, 16383.0);
    let loaded = case.load().unwrap();
    let constants = planes(&loaded);
    for pixel in 0..6 {
        assert_eq!(loaded.mask[pixel], 2, "{pixel}");
        assert!(constants.factor.iter().all(|f| f[pixel].is_nan()), "{pixel}");
    }
    let finite = |pixel: usize| [0, 1, 2].map(|g| constants.factor[g][pixel].is_finite());
    assert_eq!((finite(6), finite(7), finite(8)), ([true, false, true], [true, true, false], [true; 3]));
    assert_eq!((loaded.mask[6], loaded.mask[7]), (0, 0));
    assert_eq!(
        loaded.report,
        "calibration: 6 pixels masked, of the others 1 not usable in G1 and 1 in G2; 2 pixels with a value that is not a number, 2 with a gain of 0"
    );
    // As the kernels use it.
    assert_eq!(i16::from_photons(constants.factor[1][6] * 3.0), i16::MASKED);
}

#[test]
fn the_hash_follows_every_value() {
    let case = Case::new(1);
    let hash = case.load().unwrap().hash;
    assert!(hash.starts_with("sha256:") && hash.len() == 7 + 64);
    assert_eq!(case.load().unwrap().hash, hash);
    case.poke("gain", 3 * MODULE_PIXELS - 1, -0.115);
    let changed = case.load().unwrap().hash;
    assert_ne!(changed, hash);
    // The noise sets the gates of tracking and common mode.
    case.write("rms", &bytes(&vec![4.0; MODULE_PIXELS]));
    let with_noise = || case.load_with("\"gain\"\npedestal_rms = \"rms\"").unwrap().hash;
    let noise = with_noise();
    assert_ne!(noise, changed);
    case.poke("rms", 7, 4.5);
    assert_ne!(with_noise(), noise);
}

#[test]
fn wrong_sizes_say_what_would_fit() {
    let case = Case::new(1);
    case.write("p1", &vec![0; PLANE_BYTES - 4]);
    case.refused(&["the pedestal file", "p1 has the wrong size", "2097148 bytes are not a whole number", "2097152 bytes"]);
    case.write("p1", &vec![0; PLANE_BYTES / 2]);
    case.refused(&["1048576 bytes would be 1 plane(s) of 16-bit values for modules of 512 x 1024 pixels"]);
    case.write("p1", &bytes(&vec![15000.0; 2 * MODULE_PIXELS]));
    case.refused(&["do not fit the detector", "4 planes in 3 file(s), but 3 stages x 1 module(s) are 3 planes"]);
    std::fs::remove_file(case.folder.path().join("p1")).unwrap();
    case.refused(&["cannot read the calibration", "No such file or directory"]);
}

#[test]
fn a_plane_with_odd_bytes_at_its_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rms.f32");
    for odd in 0..4 {
        std::fs::write(&path, vec![0; planes::PLANE_BYTES + odd]).unwrap();
        let read = planes::read_single(std::slice::from_ref(&path), 1, "RMS");
        assert_eq!(read.is_ok(), odd == 0, "{odd}");
        assert!(read.err().is_none_or(|e| e.what.contains("wrong size") && e.why.contains("not a whole number")));
    }
}

#[test]
fn what_is_no_calibration_of_this_module_is_refused() {
    let case = Case::new(1);
    case.write("p0", &bytes(&vec![0.0; MODULE_PIXELS]));
    case.refused(&["not a calibration of this module", "524 288 of 524 288 pixels of module 0 have no usable G0 pedestal"]);
    let case = Case::new(1);
    case.write("gain", &bytes(&[41.0f32, 1.44, 0.114].into_iter().flat_map(|v| vec![v; MODULE_PIXELS]).collect::<Vec<_>>()));
    case.refused(&["not gains of a JUNGFRAU", "G1 of module 0 has a median of 1.4400 ADU/keV"]);
    case.write("gain", &bytes(&vec![3000.0; 3 * MODULE_PIXELS]));
    case.refused(&["G0 of module 0 has a median of 3000.0000", "exchanged"]);
    case.write("gain", &bytes(&vec![f32::NAN; 3 * MODULE_PIXELS]));
    case.refused(&["G0 of module 0 has no usable value"]);
}

#[test]
fn psi_gain_files_are_float64_per_module() {
    let case = Case::new(2);
    let file = |scale: f64, planes: usize| -> Vec<u8> {
        let values = [41.0, -1.44, -0.114, 100.0, -3.5, -0.3];
        values[..planes].iter().flat_map(|v| vec![v * scale; MODULE_PIXELS]).flat_map(f64::to_le_bytes).collect()
    };
    case.write("a.bin", &file(1.0, 4));
    case.write("b.bin", &file(1.1, 6));
    let loaded = case.load_with("[\"a.bin\", \"b.bin\"]").unwrap();
    let constants = planes(&loaded);
    assert_eq!(constants.factor[0][0], 1.0 / (41.0 * 12.4f32));
    assert_eq!(constants.factor[2][MODULE_PIXELS], 1.0 / ((-0.114 * 1.1f64) as f32 * 12.4));
    assert!(case.load_with("[\"a.bin\"]").err().unwrap().to_string().contains("1 `.bin` file(s) for 2 module(s)"));
    case.write("b.bin", &file(1.0, 5));
    assert!(
        case.load_with("[\"a.bin\", \"b.bin\"]").err().unwrap().to_string().contains("PSI gain files have 12582912 (3 planes)")
    );
}

/// The shared calibration of a real module.
#[test]
fn real_calibration_has_83_unusable_pixels() {
    let Some(data) = skip::data("jungfrau-lyso") else { return };
    let mut case = Case::new(1);
    for (name, file) in
        [("p0", "pedestal_g0.f32"), ("p1", "pedestal_g1.f32"), ("p2", "pedestal_g2.f32"), ("gain", "gain_adu_per_kev.f32")]
    {
        case.write(name, &std::fs::read(data.join(file)).unwrap());
    }
    case.modules = 1;
    let loaded = case.load().unwrap();
    println!("{}", loaded.report);
    assert_eq!(loaded.mask.iter().filter(|m| **m != 0).count(), 83);
}

/// A calibration file of one cell of two modules with every stage, and gains.
fn own_file() -> CalibrationFile {
    let pixels = 2 * MODULE_PIXELS;
    let stage = |mean: f32, rms: f32| StagePedestal {
        mean_adu: vec![mean; pixels],
        rms_adu: vec![rms; pixels],
        count: vec![1000; pixels],
        mask: vec![0; pixels],
        frames: 1000,
        taken: konkordia_sinks::clock::now(),
        ..StagePedestal::default()
    };
    let planes = [(GainStage::G0, 3000.0), (GainStage::G1, 15000.0), (GainStage::G2, 14500.0), (GainStage::Hg0, 2800.0)];
    CalibrationFile {
        modules: 2,
        created: konkordia_sinks::clock::now(),
        detector_serial: "JF-7".into(),
        module_ids: vec![Some(40), Some(41)],
        pedestals: planes.into_iter().map(|(s, mean)| ((3, s), stage(mean, 20.0 + s.index() as f32))).collect(),
        gains: [41.0, -1.44, -0.114, 98.0].map(|gain| Some(vec![gain; pixels])),
        ..CalibrationFile::default()
    }
}

/// Loads `file` with these lines of `[calibration]` and `[detector]`.
fn load_own(file: &CalibrationFile, calibration: &str, detector: &str) -> Result<Calibration, Failure> {
    let folder = tempfile::tempdir().unwrap();
    file.write(&folder.path().join("cal.h5"), Keep::Nothing).unwrap();
    let text = format!(
        "[detector]\ntype = \"jungfrau\"\nmodules = 2\nenergy_kev = 12.4\n{detector}\n[calibration]\nkind = \"konkordia\"\nfile = \"cal.h5\"\n{calibration}\n[output]\ndirectory = \".\"\nprefix = \"a\"\n"
    );
    let config = Config::parse(&text, &folder.path().join("run.toml")).map_err(|d| d.to_string()).unwrap();
    // What a run loads must also fit the engine.
    for_config(&config)?;
    load(&config, config.calibration.as_ref().unwrap())
}

#[test]
fn a_calibration_file_gives_planes_by_cell_with_its_masks() {
    let mut file = own_file();
    let mut second = file.pedestals.clone();
    file.pedestals.append(&mut second.split_off(&(3, GainStage::G0)).into_iter().map(|((_, s), p)| ((5, s), p)).collect());
    let plane = |file: &mut CalibrationFile, cell, stage, pixel: usize, reason| {
        file.pedestals.get_mut(&(cell, stage)).unwrap().mask[pixel] |= reason;
    };
    plane(&mut file, 3, GainStage::G0, 1, NOISY);
    plane(&mut file, 5, GainStage::G0, 2, DEAD);
    plane(&mut file, 5, GainStage::G1, 3, WRONG_STAGE);
    plane(&mut file, 3, GainStage::G0, 4, NO_GAIN);
    plane(&mut file, 3, GainStage::Hg0, 6, MARKED);
    file.gains[2].as_mut().unwrap()[5] = 0.0;
    let hash = file.hash();
    let c = load_own(&file, "", "").unwrap();
    assert_eq!((c.cells.len(), c.cells[0].cell, c.cells[1].cell, &c.hash), (2, Some(3), Some(5), &hash));
    // The gain of pixel 4 is good, although the mask in the file says otherwise.
    assert_eq!(c.mask[..8], [0, 16, 2, 0, 0, 0, 0, 0]);
    assert_eq!(c.cells[0].unusable[..8], [0, 7, 0, 0, 0, 4, 0, 0]);
    assert_eq!(c.cells[1].unusable[..8], [0, 0, 7, 2, 0, 4, 0, 0]);
    assert_eq!((c.cells[0].pedestals[0][0], c.cells[0].rms_g0.as_ref().unwrap()[0]), (3000.0, 20.0));
    let factors = c.factors(1, 6.2);
    assert_eq!(factors.map(|f| f[0]), [41.0, -1.44, -0.114].map(|gain: f32| 1.0 / (gain * 6.2)));
    assert_eq!(c.report, "calibration: 2 pixels masked, of the others 1 not usable in G1 and 1 in G2; storage cell 3, 5");
    assert_eq!(c.module_ids, [Some(40), Some(41)]);
    // High gain replaces the first stage.
    let c = load_own(
        &{
            let mut f = file;
            f.pedestals.retain(|k, _| k.0 == 3);
            f
        },
        "high_gain = true",
        "",
    )
    .unwrap();
    assert_eq!((c.cells[0].pedestals[0][0], c.gains[0][0], c.mask[6], c.mask[1]), (2800.0, 98.0, 256, 0));
}

#[test]
fn calibrations_of_another_detector_or_time_are_refused() {
    let file = own_file();
    #[track_caller]
    fn refused(result: Result<Calibration, Failure>, parts: &[&str]) {
        let failure = result.err().expect("refused");
        assert_eq!(failure.exit, Exit::Configuration);
        let text = failure.to_string();
        parts.iter().for_each(|part| assert!(text.contains(part), "expected '{part}' in\n{text}"));
    }
    assert!(load_own(&file, "max_age_hours = 1.0", "serial_number = \"JF-7\"").is_ok());
    refused(load_own(&file, "", "serial_number = \"JF-8\""), &["is of another detector", "\"JF-7\"", "\"JF-8\""]);
    let mut other = file.clone();
    other.pedestals.get_mut(&(3, GainStage::G0)).unwrap().taken = "2020-01-01T00:00:00.000Z".into();
    refused(load_own(&other, "max_age_hours = 24", ""), &["is too old", "g0 of cell 3", "konkordia pedestal"]);
    assert!(load_own(&other, "", "").is_ok());
    other.pedestals.get_mut(&(3, GainStage::G0)).unwrap().taken = String::new();
    refused(load_own(&other, "max_age_hours = 24", ""), &["age of the calibration", "does not say when g0"]);
    other = file.clone();
    other.modules = 1;
    other.module_ids.pop();
    other.pedestals.values_mut().for_each(|p| {
        [&mut p.mean_adu, &mut p.rms_adu].into_iter().for_each(|plane| plane.truncate(MODULE_PIXELS));
        [&mut p.count, &mut p.mask].into_iter().for_each(|plane| plane.truncate(MODULE_PIXELS));
    });
    other.gains.iter_mut().flatten().for_each(|plane| plane.truncate(MODULE_PIXELS));
    refused(load_own(&other, "", ""), &["is of another detector", "1 module(s)", "the configuration 2"]);
    other = file.clone();
    other.gains[1] = None;
    refused(load_own(&other, "", ""), &["has no gains of G1", "add calibration.gain"]);
    other = file.clone();
    other.pedestals.retain(|key, _| key.1 != GainStage::G0);
    refused(load_own(&other, "", ""), &["has no pedestals of G0", "--stage g0 --into"]);
    other = file.clone();
    other.pedestals.retain(|key, _| key.1 != GainStage::G2);
    let report = load_own(&other, "", "").unwrap().report;
    assert!(report.contains("no pedestals for G2 of cell 3: pixels that switch"), "{report}");
}
