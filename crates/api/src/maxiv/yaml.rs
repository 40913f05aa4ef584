//! Translates the configuration of the streaming-receiver: `detectors.yaml` becomes the text of an ordinary
//! configuration, which is then loaded like any other. Its pipelines become transformations.

use konkordia_core::failure::{Exit, Failure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// One entry of the file. Other keys are ignored.
#[derive(Debug, Deserialize)]
struct Entry {
    class: String,
    #[serde(default)]
    nworkers: Option<u32>,
    dcu_host_purple: OneOrMore<String>,
    #[serde(default)]
    dcu_port_purple: Option<OneOrMore<u16>>,
    #[serde(default)]
    api_port: Option<u16>,
    #[serde(default)]
    data_port: Option<u16>,
    dset_name: String,
    #[serde(default)]
    pipeline: Option<String>,
    #[serde(default)]
    rotate: Option<bool>,
    #[serde(default)]
    compress: Option<bool>,
    #[serde(default)]
    mask: Option<Vec<[u32; 2]>>,
    #[serde(default)]
    tot: Option<String>,
    /// Keys of Konkordia, which the MAX IV receiver ignores: `[source] window_images`, `wait_ms`, `queue_mib`.
    #[serde(default)]
    window_images: Option<u64>,
    #[serde(default)]
    wait_ms: Option<u64>,
    #[serde(default)]
    queue_mib: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T: Clone> OneOrMore<T> {
    fn list(&self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one.clone()],
            Self::More(more) => more.clone(),
        }
    }
}

/// What the command line says in addition to the YAML.
#[derive(Clone, Debug)]
pub struct Extra<'a> {
    /// Files are written below this folder only; the MAX IV receiver writes wherever a header says.
    pub data_root: &'a Path,
    /// Serve `/last_frame`.
    pub pickle: bool,
    /// Address on which the interface and the stream of the MAX IV receiver listen; the receiver itself listens on all.
    pub address: &'a str,
}

/// True if the name of the file is that of a YAML file, as the MAX IV receiver has it.
pub fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The text of an ordinary configuration for detector `name` of the YAML `text`.
///
/// # Errors
/// The YAML cannot be read, has no such detector, or asks for something unknown.
pub fn translate(text: &str, path: &Path, name: Option<&str>, extra: &Extra<'_>) -> Result<String, Failure> {
    let wrong = |what: String, why: String, fix: &str| Failure::new(Exit::Configuration, what, why, fix);
    let all: BTreeMap<String, serde_json::Value> = serde_saphyr::from_str(text).map_err(|why| {
        wrong(format!("{} is not a configuration of the streaming-receiver", path.display()), why.to_string(), "correct the YAML")
    })?;
    let names = || all.keys().cloned().collect::<Vec<_>>().join(", ");
    let name = match (name, all.len()) {
        (Some(name), _) => name.to_string(),
        (None, 1) => names(),
        (None, _) => {
            return Err(wrong("the file has several detectors".into(), format!("they are {}", names()), "add --detector NAME"));
        }
    };
    let Some(entry) = all.get(&name) else {
        return Err(wrong(
            format!("there is no detector '{name}'"),
            format!("the file has {}", names()),
            "use one of these names",
        ));
    };
    let entry: Entry = serde_json::from_value(entry.clone()).map_err(|why| {
        wrong(format!("detector '{name}' in {}", path.display()), why.to_string(), "see docs/maxiv.md for the keys")
    })?;
    entry
        .to_toml(&name, extra)
        .map_err(|why| wrong(format!("detector '{name}' in {}", path.display()), why, "see docs/maxiv.md for what is understood"))
}

/// What a detector class of the MAX IV receiver listens to.
struct Class {
    protocol: &'static str,
    port: u16,
    socket: &'static str,
    /// Each upstream carries one module.
    modules: bool,
}

impl Entry {
    fn class(&self) -> Result<Class, String> {
        let class = |protocol, port, socket, modules| Ok(Class { protocol, port, socket, modules });
        match self.class.as_str() {
            "Detector" => class("stins", 9999, "pull", false),
            "Eiger" => class("stream1", 9999, "pull", false),
            "DectrisStream2" => class("stream2", 31001, "pull", false),
            "Lambda" => class("stins", 9010, "pull", true),
            "Jungfrau" => class("stream2", 2345, "sub", false),
            "PsiEiger" => class("sls", 30001, "sub", true),
            other => Err(format!(
                "class '{other}' is not known; there are Detector, Eiger, DectrisStream2, Lambda, Jungfrau and PsiEiger"
            )),
        }
    }

    /// Addresses of the senders, in the order of the MAX IV receiver: several hosts with one port or with one port
    /// each. For Lambda and PsiEiger the ports count up from that of the class.
    fn upstreams(&self, class: &Class) -> Result<Vec<String>, String> {
        let mut hosts = self.dcu_host_purple.list();
        let given = self.dcu_port_purple.as_ref().map(OneOrMore::list);
        if self.class == "PsiEiger" && hosts.len() == 1 {
            hosts.push(hosts[0].clone());
        }
        let ports = match given {
            _ if class.modules => (0..hosts.len() as u16).map(|n| class.port + n).collect(),
            None => vec![class.port; hosts.len()],
            Some(ports) if ports.len() == 1 => vec![ports[0]; hosts.len()],
            Some(ports) if ports.len() == hosts.len() => ports,
            Some(ports) => return Err(format!("{} hosts, but {} ports", hosts.len(), ports.len())),
        };
        Ok(hosts.iter().zip(ports).map(|(host, port)| format!("tcp://{host}:{port}")).collect())
    }

    fn to_toml(&self, name: &str, extra: &Extra<'_>) -> Result<String, String> {
        let class = self.class()?;
        let upstreams = self.upstreams(&class)?;
        let mut out = String::new();
        let mut line = |text: String| {
            let _ = writeln!(out, "{text}");
        };
        let text = |value: &str| toml::Value::String(value.to_string()).to_string();
        let root = text(&extra.data_root.display().to_string());
        line("# Made from a configuration of the streaming-receiver.".into());
        line(format!("[service]\nname = {}\ndata_root = {root}\ncompat = \"streaming-receiver\"", text(name)));
        line(format!("compat_listen = {}", text(&format!("{}:{}", extra.address, self.api_port.unwrap_or(5000)))));
        line(format!("compat_pickle = {}", extra.pickle));
        line("[detector]\ntype = \"stream\"".into());
        let list: Vec<String> = upstreams.iter().map(|upstream| text(upstream)).collect();
        line(format!(
            "[source]\nprotocol = \"{}\"\nsocket = \"{}\"\nupstreams = [{}]",
            class.protocol,
            class.socket,
            list.join(", ")
        ));
        for (key, value) in [("window_images", self.window_images), ("wait_ms", self.wait_ms), ("queue_mib", self.queue_mib)] {
            if let Some(value) = value {
                line(format!("{key} = {value}"));
            }
        }
        match self.class.as_str() {
            "Lambda" => line("join = \"pieces\"".into()),
            "PsiEiger" => line(PSI_EIGER.into()),
            _ => {}
        }
        if let Some(workers) = self.nworkers {
            line(format!("[processing]\nworkers = {}", workers.max(1)));
        }
        match self.class.as_str() {
            "Detector" => self.pipeline(&mut line)?,
            // These images are assembled or unpacked, and not packed again.
            "PsiEiger" | "Jungfrau" => line("[transform]\ncompression = \"none\"".into()),
            // The others have no pipeline.
            _ => {}
        }
        line(format!(
            "[output]\ndirectory = {root}\nprefix = {}\nformat = \"maxiv\"\ndset_name = {}",
            text(name),
            text(&self.dset_name)
        ));
        if let Some(port) = self.data_port {
            let address = text(&format!("tcp://{}:{port}", extra.address));
            line(format!("[[stream]]\nname = \"data_port\"\nprotocol = \"stins\"\naddress = {address}\nservice = \"reliable\""));
        }
        Ok(out)
    }

    /// Writes the pipelines of the MAX IV receiver as transformations.
    fn pipeline(&self, line: &mut impl FnMut(String)) -> Result<(), String> {
        match self.pipeline.as_deref() {
            None => {}
            Some("OrcaPipeline") => line("[transform]\nunpack = \"mono12p\"\ncompression = \"as-received\"".into()),
            Some("PilatusPipeline") => {
                line("[transform]\nunpack = \"cbf\"".into());
                if let Some(tot) = &self.tot {
                    line(format!("lookup = {}", toml::Value::String(tot.clone())));
                }
                if self.rotate == Some(true) {
                    line("rotate_deg = 90".into());
                }
                if let Some([[top, bottom], [left, right]]) = self.mask.as_deref() {
                    if bottom <= top || right <= left {
                        return Err("mask: the rectangle [[first row, end row], [first column, end column]] is empty".into());
                    }
                    line(format!("mask_rectangle = [{top}, {left}, {}, {}]", bottom - top, right - left));
                } else if self.mask.as_ref().is_some_and(|mask| !mask.is_empty()) {
                    return Err("mask: [[first row, end row], [first column, end column]] is expected".into());
                }
                line(format!("compression = \"{}\"", if self.compress.unwrap_or(true) { "bslz4" } else { "none" }));
            }
            Some(other) => return Err(format!("pipeline '{other}' is not known; there are PilatusPipeline and OrcaPipeline")),
        }
        Ok(())
    }
}

/// The quad of the MAX IV receiver: two half modules of 256 x 512 pixels, two pixels between all chips, upside down as
/// a whole.
const PSI_EIGER: &str = "join = \"modules\"\nimage_rows = 514\nimage_columns = 514
[[source.module]]\nrow = 258\ncolumn = 0\nchip_gap_px = 2
[[source.module]]\nrow = 0\ncolumn = 0\nflip_rows = true\nchip_gap_px = 2";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, name: Option<&str>) -> Result<String, Failure> {
        let extra = Extra { data_root: Path::new("/data"), pickle: false, address: "127.0.0.1" };
        translate(text, Path::new("detectors.yaml"), name, &extra)
    }

    const FILE: &str = "
four:
  class: Lambda
  dcu_host_purple: [10.0.0.4, 10.0.0.4, 10.0.0.5, 10.0.0.5]
  rep_port: 23001
  data_port: 23002
  dset_name: /entry/instrument/lambda/data
eiger:
  class: Eiger
  dcu_host_purple: 10.0.0.6
  data_port: 23004
  dset_name: /entry/instrument/eiger/data
pilatus:
  class: Detector
  nworkers: 4
  dcu_host_purple: [a, b]
  dcu_port_purple: [1, 2]
  api_port: 5001
  dset_name: /entry/instrument/pilatus/data
  pipeline: PilatusPipeline
  rotate: true
  compress: false
  mask: [[10, 20], [30, 50]]
  window_images: 5000
  wait_ms: 300
";

    #[test]
    fn entries_become_configurations() {
        let four: toml::Table = read(FILE, Some("four")).unwrap().parse().unwrap();
        let list = |table: &toml::Table| {
            table["source"]["upstreams"].as_array().unwrap().iter().map(|u| u.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(list(&four)[3], "\"tcp://10.0.0.5:9013\"");
        assert_eq!(four["source"]["join"].as_str(), Some("pieces"));
        assert_eq!(four["stream"][0]["address"].as_str(), Some("tcp://127.0.0.1:23002"));
        let eiger: toml::Table = read(FILE, Some("eiger")).unwrap().parse().unwrap();
        assert_eq!(list(&eiger), ["\"tcp://10.0.0.6:9999\""]);
        assert_eq!(eiger["source"]["protocol"].as_str(), Some("stream1"));
        assert_eq!(eiger["output"]["dset_name"].as_str(), Some("/entry/instrument/eiger/data"));
        let pilatus: toml::Table = read(FILE, Some("pilatus")).unwrap().parse().unwrap();
        assert_eq!(list(&pilatus), ["\"tcp://a:1\"", "\"tcp://b:2\""]);
        assert_eq!(pilatus["service"]["compat_listen"].as_str(), Some("127.0.0.1:5001"));
        assert_eq!(pilatus["transform"]["mask_rectangle"].to_string(), "[10, 30, 10, 20]");
        assert_eq!(pilatus["transform"]["rotate_deg"].as_integer(), Some(90));
        assert_eq!(pilatus["transform"]["compression"].as_str(), Some("none"));
        assert!(!pilatus.contains_key("stream"));
        let source = &pilatus["source"];
        assert_eq!((source["window_images"].as_integer(), source["wait_ms"].as_integer()), (Some(5000), Some(300)));
    }

    #[test]
    fn what_is_translated_is_a_configuration_of_ours() {
        let psi = "psi:\n  class: PsiEiger\n  dcu_host_purple: 10.0.0.7\n  dset_name: /entry/instrument/eiger/data\n";
        let live = "live:\n  class: Jungfrau\n  dcu_host_purple: 10.0.0.8\n  dset_name: /entry/instrument/jungfrau/data\n";
        for (file, name) in [(FILE, "four"), (FILE, "eiger"), (FILE, "pilatus"), (psi, "psi"), (live, "live")] {
            let text = read(file, Some(name)).unwrap();
            let service = konkordia_config::service::load_text(&text, Path::new("detectors.toml"));
            let detectors = service.unwrap_or_else(|why| panic!("{name}: {why}\n{text}")).detectors;
            let konkordia_config::service::DetectorKindConfig::Stream(config) = &detectors[0].kind else { panic!("{name}") };
            assert!(config.append_dataset.is_some() && config.positions == konkordia_core::series::Positions::Messages);
            assert_eq!(config.transform.turn_as_asked, name == "eiger");
            let unpacked = ["psi", "live", "pilatus"].contains(&name);
            assert_eq!(config.transform.compression, unpacked.then_some(konkordia_core::plan::Compression::None));
            assert_eq!((config.pieces, config.transform.cbf), (name == "four", name == "pilatus"));
            assert_eq!(config.modules.as_ref().map(|modules| modules.chip_gaps_px.clone()), (name == "psi").then(|| vec![2, 2]));
        }
    }

    #[test]
    fn what_there_is_not_is_said() {
        assert!(read(FILE, None).unwrap_err().why.contains("eiger, four, pilatus"));
        assert!(read(FILE, Some("x")).unwrap_err().what.contains("no detector 'x'"));
        let one = |text: &str| read(&format!("d:\n  class: {text}\n  dset_name: /a/b\n"), None).unwrap_err().why;
        assert!(one("Pilatus9\n  dcu_host_purple: h").contains("'Pilatus9' is not known"));
        assert!(one("Detector\n  dcu_host_purple: [a, b]\n  dcu_port_purple: [1, 2, 3]").contains("2 hosts, but 3 ports"));
        assert!(one("Detector\n  dcu_host_purple: h\n  pipeline: Other").contains("'Other' is not known"));
        assert!(one("Detector").contains("dcu_host_purple"));
        assert!(read("a: [", None).is_err());
    }
}
