//! The configuration of `konkordia serve`: the service and its detectors, from one file or from one file per detector.

use super::adapters;
use super::alarms::{self, AlarmSettings};
use super::control::{self, HookSettings};
use super::diagnostics::Diagnostics;
use super::model::Config;
use super::read::{self, Document};
use super::shared_keys::resolve;
use super::spool::Spool;
use super::stream::{self, StreamConfig};
use super::values::{address, check_name};
use super::writers::{self, WriterSettings};
use crate::settings::{CompatSettings, HttpSettings, ServiceSettings, TlsFiles};
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::ServiceLevel;
use konkordia_core::protocol::Protocol;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The whole configuration of a service.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Settings of the service.
    pub settings: ServiceSettings,
    /// Its detectors, at least one.
    pub detectors: Vec<DetectorConfig>,
}

/// One detector of the service.
#[derive(Clone, Debug)]
pub struct DetectorConfig {
    /// Its name in the service.
    pub name: String,
    /// The file that it was read from.
    pub file: PathBuf,
    /// UDP or stream.
    pub kind: DetectorKindConfig,
    /// Programs that drive the detector.
    pub hooks: HookSettings,
    /// What is watched, if anything is.
    pub alarms: Option<AlarmSettings>,
    /// Consumers of its images.
    pub consumers: Vec<ConsumerSettings>,
    /// Files are written unless a command says otherwise.
    pub write: bool,
    /// Missing folders may be made below the data root.
    pub create_folders: bool,
    /// Where drawn shapes are kept; `None`: in the output folder.
    pub shapes_file: Option<PathBuf>,
}

/// Packets or messages.
#[derive(Clone, Debug)]
pub enum DetectorKindConfig {
    /// A detector that sends packets over UDP.
    Udp(Box<Config>),
    /// Whole images.
    Stream(Box<StreamConfig>),
}

impl DetectorConfig {
    /// Output folder.
    pub fn directory(&self) -> &Path {
        match &self.kind {
            DetectorKindConfig::Udp(config) => &config.directory,
            DetectorKindConfig::Stream(config) => &config.directory,
        }
    }

    /// What is known of its next run without the parameters of an arm.
    pub fn metadata(&self) -> &Metadata {
        match &self.kind {
            DetectorKindConfig::Udp(config) => &config.metadata,
            DetectorKindConfig::Stream(config) => &config.metadata,
        }
    }

    /// Its recipe, if its images are analysed.
    pub fn recipe(&self) -> Option<&Path> {
        let analysis = match &self.kind {
            DetectorKindConfig::Udp(config) => &config.analysis,
            DetectorKindConfig::Stream(config) => &config.analysis,
        };
        analysis.as_ref().map(|analysis| analysis.recipe.as_path())
    }

    /// Where drawn shapes are kept.
    pub fn shapes_path(&self) -> PathBuf {
        let usual = || self.directory().join(format!("konkordia-shapes-{}.json", self.name));
        self.shapes_file.clone().unwrap_or_else(usual)
    }

    /// Where its files are written before they move to the output folder, if not there at once.
    pub fn spool(&self) -> Option<&Spool> {
        match &self.kind {
            DetectorKindConfig::Udp(config) => config.spool.as_ref(),
            DetectorKindConfig::Stream(config) => config.spool.as_ref(),
        }
    }
}

/// One `[[stream]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// Its name.
    pub name: String,
    /// Format of its messages.
    pub protocol: Protocol,
    /// ZeroMQ address.
    pub address: String,
    /// Listen at the address; false = connect to it.
    pub bind: bool,
    /// A PUB socket: all subscribers get the same images. False: a PUSH socket, where each image goes to one receiver.
    pub publish: bool,
    /// Service level.
    pub service: ServiceLevel,
    /// Images that may wait in its queue.
    pub queue_images: usize,
    /// Bytes that may wait in its queue.
    pub queue_bytes: u64,
    /// Arm is refused while it is not connected.
    pub required: bool,
}

/// Reads a service with all its detectors.
///
/// # Errors
/// One of the files cannot be read, or is wrong (the failure lists its errors), or two detectors use the same UDP port
/// or write the same files.
pub fn load(path: &Path) -> Result<ServiceConfig, Failure> {
    let text = read::text_of(path)?;
    parse(&text, path)?.load_detectors(path)
}

/// As [`load`], for a text; `path` names it, and relative paths start at the folder of `path`.
///
/// # Errors
/// As of [`load`].
pub fn load_text(text: &str, path: &Path) -> Result<ServiceConfig, Failure> {
    parse(text, path)?.load_detectors(path)
}

/// A service whose detector files have not been read yet.
#[derive(Clone, Debug)]
pub struct Partial {
    settings: ServiceSettings,
    /// The detector of this file, if it holds one.
    own: Option<DetectorConfig>,
    /// Names and files of the other detectors.
    others: Vec<(String, PathBuf)>,
}

impl Partial {
    fn load_detectors(self, path: &Path) -> Result<ServiceConfig, Failure> {
        let mut detectors: Vec<DetectorConfig> = self.own.into_iter().collect();
        for (name, file) in self.others {
            let text = read::text_of(&file)?;
            let read = parse(&text, &file)?;
            let Some(own) = read.own else {
                let why = "it has [detectors] itself";
                let what = format!("{}, the configuration of detector '{name}', is not of one detector", file.display());
                return Err(Failure::new(Exit::Configuration, what, why, "name a file with [detector] and [output]"));
            };
            detectors.push(DetectorConfig { name, ..own });
        }
        check_together(&detectors)
            .map_err(|(what, fix)| Failure::new(Exit::Configuration, what, format!("in {}", path.display()), fix))?;
        Ok(ServiceConfig { settings: self.settings, detectors })
    }
}

/// Refuses detectors that use the same UDP port or write the same files.
fn check_together(detectors: &[DetectorConfig]) -> Result<(), (String, String)> {
    let ports = |d: &DetectorConfig| match &d.kind {
        DetectorKindConfig::Udp(c) => {
            let first = usize::from(c.first_port);
            first..usize::from(c.port(c.geometry.placements().len() - 1)) + 1
        }
        DetectorKindConfig::Stream(_) => 0..0,
    };
    for (n, a) in detectors.iter().enumerate() {
        for b in &detectors[..n] {
            let (pa, pb) = (ports(a), ports(b));
            if pa.start < pb.end && pb.start < pa.end {
                let what = format!("detectors '{}' and '{}' both listen on UDP port {}", b.name, a.name, pa.start.max(pb.start));
                return Err((what, "give each a source.first_port of its own".into()));
            }
            if a.shapes_path() == b.shapes_path() {
                let what = format!("detectors '{}' and '{}' keep their drawn shapes in the same file", b.name, a.name);
                return Err((what, "give each a detector.shapes_file of its own".into()));
            }
            if a.file_base() == b.file_base() {
                let what = format!("detectors '{}' and '{}' write the same files", b.name, a.name);
                return Err((what, "give each an output.directory or output.prefix of its own".into()));
            }
        }
    }
    Ok(())
}

impl DetectorConfig {
    /// The configuration in force, without secrets.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = match &self.kind {
            DetectorKindConfig::Udp(config) => super::plan::to_json(config, &super::plan::plan(config)),
            DetectorKindConfig::Stream(config) => stream::to_json(config),
        };
        let consumers: Vec<_> = self
            .consumers
            .iter()
            .map(|c| {
                serde_json::json!({
                    "name": c.name, "protocol": c.protocol.name(), "address": c.address, "service": c.service.name(), "required": c.required,
                    "queue_images": c.queue_images, "queue_bytes": c.queue_bytes,
                })
            })
            .collect();
        value["name"] = self.name.clone().into();
        value["config"] = self.file.display().to_string().into();
        value["output"] = serde_json::json!({ "directory": self.directory().display().to_string() });
        value["directory"] = self.directory().display().to_string().into();
        value["write"] = self.write.into();
        value["streams_out"] = consumers.into();
        let writer = |w: &WriterSettings| {
            serde_json::json!({
                "name": w.name, "address": w.address, "takes": w.takes.name(), "link": w.link.name(), "through": w.link.through(), "service": w.service.name(), "required": w.required,
                "queue_images": w.queue_images, "queue_bytes": w.queue_bytes, "keep_images": w.keep_images, "keep_bytes": w.keep_bytes,
            })
        };
        value["writers_out"] = self.writers().iter().map(writer).collect();
        value
    }

    /// Writers of its files on other hosts.
    pub fn writers(&self) -> &[WriterSettings] {
        match &self.kind {
            DetectorKindConfig::Udp(config) => &config.writers,
            DetectorKindConfig::Stream(_) => &[],
        }
    }

    fn file_base(&self) -> PathBuf {
        match &self.kind {
            DetectorKindConfig::Udp(c) => c.directory.join(&c.prefix),
            DetectorKindConfig::Stream(c) => c.directory.join(&c.prefix),
        }
    }
}

/// Checks a text; relative paths start at the folder of `file`.
///
/// # Errors
/// Everything that is wrong in the text.
pub fn parse(text: &str, file: &Path) -> Result<Partial, Diagnostics> {
    let mut d = Diagnostics::new(&file.display().to_string(), text);
    let document = read::read(text, &mut d);
    if d.found.iter().any(|f| f.what.starts_with("not TOML")) {
        return d.finish(None);
    }
    let settings = settings(&document, &mut d, file);
    if document.detectors.is_empty() {
        let own = detector(&document, &mut d, file, text);
        let partial = own.map(|own| Partial { settings, own: Some(own), others: Vec::new() });
        return d.finish(partial);
    }
    for (name, table) in document.tables().filter(|(name, _)| *name != "service") {
        let why = "with [detectors] every detector has a file of its own";
        d.add(table.span.clone(), format!("[{name}] beside [detectors]"), why, "move it into the file of a detector");
    }
    let mut others = Vec::new();
    for (name, table) in &document.detectors {
        check_name("detector", name, table.span.clone(), &mut d);
        match table.text("config") {
            Some(path) => others.push((name.clone(), resolve(file, path))),
            None => d.add(table.span.clone(), format!("[detectors.{name}] has no 'config'"), "", "add config = \"FILE.toml\""),
        }
    }
    d.finish(Some(Partial { settings, own: None, others }))
}

fn detector(document: &Document, d: &mut Diagnostics, file: &Path, text: &str) -> Option<DetectorConfig> {
    let service = document.table("service");
    let name = service.text("name").unwrap_or("detector").to_string();
    check_name("detector", &name, service.span("name"), d);
    let output = document.table("output");
    let alarms = alarms::read(document);
    let (hooks, consumers) = (control::read(document, d), consumers(document, d));
    let kind = if document.table("detector").text("type") == Some("stream") {
        // It refuses all of them.
        writers::read(document, d);
        DetectorKindConfig::Stream(Box::new(stream::read(document, d, file, text)?))
    } else {
        DetectorKindConfig::Udp(Box::new(Config::read(document, d, file, text)?))
    };
    let (packets, messages) = match &kind {
        DetectorKindConfig::Udp(config) => (Some(config.geometry.format().kind), None),
        DetectorKindConfig::Stream(config) => (None, Some(config.protocol)),
    };
    control::check(&hooks, packets, messages, document.table("control"), d);
    if let Some(settings) = &alarms {
        let (run, analysis) = match &kind {
            DetectorKindConfig::Udp(config) => (Some(config.as_ref()), &config.analysis),
            DetectorKindConfig::Stream(config) => (None, &config.analysis),
        };
        settings.check(run, analysis.is_some(), document.table("alarms"), d);
    }
    Some(DetectorConfig {
        name,
        file: file.to_owned(),
        kind,
        hooks,
        alarms,
        consumers,
        write: output.flag("write").unwrap_or(true),
        create_folders: output.flag("create_folders").unwrap_or(false),
        shapes_file: document.table("detector").text("shapes_file").map(|path| resolve(file, path)),
    })
}

fn consumers(document: &Document, d: &mut Diagnostics) -> Vec<ConsumerSettings> {
    let mut list: Vec<ConsumerSettings> = Vec::new();
    for t in document.array("stream") {
        let (Some(name), Some(address)) = (t.text("name"), t.text("address")) else { continue };
        if list.iter().any(|other| other.name == name) {
            let fix = "give each a name of its own";
            d.add(t.span("name"), format!("stream.name: there are two consumers \"{name}\""), "", fix);
        }
        if name == "file" {
            d.add(t.span("name"), "stream.name: \"file\" is taken by the writer of files", "", "choose another name");
        }
        if let Err(why) = konkordia_core::endpoint::check(address) {
            d.add(t.span("address"), format!("stream.address: {why}"), "", "correct the address");
        }
        list.push(ConsumerSettings {
            name: name.into(),
            protocol: t.text("protocol").and_then(Protocol::from_name).unwrap_or(Protocol::Stins),
            address: address.into(),
            bind: t.flag("bind").unwrap_or(true),
            publish: t.text("socket") == Some("pub"),
            service: t.text("service").and_then(ServiceLevel::from_name).unwrap_or(ServiceLevel::ReliableSkip),
            queue_images: t.integer("queue_images").unwrap_or(256) as usize,
            queue_bytes: (t.integer("queue_mib").unwrap_or(256) as u64) << 20,
            required: t.flag("required").unwrap_or(false),
        });
    }
    list
}

fn settings(document: &Document, d: &mut Diagnostics, file: &Path) -> ServiceSettings {
    let (t, defaults) = (document.table("service"), ServiceSettings::default());
    let path = |key: &str| t.text(key).map(|path| resolve(file, path));
    let listen = address("service", t, d, "listen", defaults.http.listen);
    let tls = match (path("tls_certificate"), path("tls_key")) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (found, _) => {
            let (has, lacks) = if found.is_some() { ("tls_certificate", "tls_key") } else { ("tls_key", "tls_certificate") };
            d.add(t.span(has), format!("service.{has} without {lacks}"), "TLS needs both", format!("add {lacks} = \"FILE.pem\""));
            None
        }
    };
    let compat_listen = address("service", t, d, "compat_listen", SocketAddr::from(([127, 0, 0, 1], 5000)));
    let compat = (t.text("compat") == Some("streaming-receiver")).then(|| CompatSettings {
        listen: compat_listen,
        detector: t.text("compat_detector").map(str::to_string),
        pickle: t.flag("compat_pickle").unwrap_or(false),
    });
    let whole = |key: &str, otherwise: usize| t.integer(key).map_or(otherwise, |n| n as usize);
    let seconds = |key: &str, otherwise: Duration| t.number(key).map_or(otherwise, Duration::from_secs_f64);
    ServiceSettings {
        http: HttpSettings {
            listen,
            tokens: path("tokens"),
            tls,
            cors_origins: t.texts("cors_origins"),
            audit_log: path("audit_log"),
            request_bytes_max: whole("max_request_kib", 64) << 10,
            requests_per_s: whole("requests_per_s", 200) as u32,
            connections_max: whole("connections_max", 256),
            request_timeout: seconds("request_timeout_s", defaults.http.request_timeout),
            compat,
        },
        data_root: path("data_root"),
        arm_timeout: seconds("arm_timeout_s", defaults.arm_timeout),
        armed_timeout: t.number("armed_timeout_s").filter(|s| *s > 0.0).map(Duration::from_secs_f64),
        ring_images: whole("ring_images", 16),
        ring_bytes: (whole("ring_mib", 256) as u64) << 20,
        adapters: adapters::read(document, d),
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
