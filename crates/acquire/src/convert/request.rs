//! What a conversion is asked to do.

use konkordia_input::Format;
use konkordia_sinks::hdf5::master_file_name;
use std::path::PathBuf;
use std::str::FromStr;

/// What is converted, into what, and how. What is not given is as the configuration says, otherwise as the input says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Files of one acquisition: a run of Konkordia with dtype = "raw", the master of the slsReceiver, or data files.
    pub input: Vec<PathBuf>,
    /// Format of the input; without it the content decides.
    pub format: Option<Format>,
    /// Number of modules, for files of plain words.
    pub modules: Option<u32>,
    /// Name of the detector, if a SwissFEL file holds several.
    pub detector: Option<String>,
    /// Only frames with these numbers, both ends included.
    pub frames: Option<(u64, u64)>,
    /// Folder and first part of the file names; `OUT_master.h5` is the same as `OUT`.
    pub output: PathBuf,
    /// Existing files of this name are replaced.
    pub overwrite: bool,
    /// Files of an interrupted conversion of the same request are continued.
    pub resume: bool,
    /// Only the data files with these numbers are written, and no master: a conversion that several processes share.
    /// When all are there, the same request with `resume` makes the master.
    pub data_files: Option<(u64, u64)>,
    /// Compression by its name in configurations.
    pub compression: Option<String>,
    /// Level of the compression.
    pub compression_level: Option<u8>,
    /// Images per data file.
    pub images_per_file: Option<u32>,
    /// A calibration file, or a folder with the planes pedestal_g0.f32, pedestal_g1.f32, pedestal_g2.f32 and
    /// gain_adu_per_kev.f32.
    pub calibration: Option<PathBuf>,
    /// Photon energy in keV.
    pub energy_kev: Option<f64>,
    /// Pixel type by its name in configurations; "raw" keeps the words of the detector.
    pub dtype: Option<String>,
    /// Arrangement of the modules by its name in configurations.
    pub geometry: Option<String>,
    /// A configuration to start from.
    pub config: Option<PathBuf>,
    /// Keys of the configuration that are set last. Those of `[detector]` must agree with the input.
    pub set: Vec<Setting>,
    /// Threads that convert and compress; without it as configured, otherwise one per processor.
    pub workers: Option<u32>,
}

impl Request {
    /// The master file that the conversion writes.
    pub fn master(&self) -> PathBuf {
        let name = self.output.file_name().unwrap_or_default().to_string_lossy();
        let prefix = name.strip_suffix("_master.h5").unwrap_or(&name);
        self.output.with_file_name(master_file_name(prefix))
    }
}

/// A key of the configuration and its value. As text: `TABLE.KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Table of the configuration.
    pub table: String,
    /// Key in it.
    pub key: String,
    /// Its value; a value that is not TOML is taken as text.
    pub value: toml::Value,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(name, value)| Some((name.trim().rsplit_once('.')?, value.trim())));
        let ((table, key), value) = parts.ok_or("TABLE.KEY=VALUE is expected, for example output.layout=links")?;
        let parsed = format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut t| t.remove("value"));
        Ok(Self {
            table: table.to_owned(),
            key: key.to_owned(),
            value: parsed.unwrap_or_else(|| toml::Value::String(value.to_owned())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn settings_are_read() {
        let value = |text: &str| text.parse::<Setting>().unwrap().value;
        assert_eq!(value("detector.modules=8"), toml::Value::Integer(8));
        assert_eq!(value("output.layout=links"), toml::Value::String("links".into()));
        assert_eq!(value("output.layout = \"links\""), toml::Value::String("links".into()));
        assert_eq!(value("run.pin_workers=[1,2]"), toml::Value::Array(vec![1.into(), 2.into()]));
        assert!("modules=8".parse::<Setting>().is_err() && "detector.modules".parse::<Setting>().is_err());
    }

    #[test]
    fn the_master_is_named_in_two_ways() {
        let master = |output: &str| Request { output: output.into(), ..Request::default() }.master();
        assert_eq!([master("a/run"), master("a/run_master.h5")], [Path::new("a/run_master.h5"); 2]);
        assert_eq!(master("run"), Path::new("run_master.h5"));
    }
}
