//! Settings of the service itself, apart from its detectors: where it listens, who may use it, and where files may lie.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `[service]` of the configuration, with what the command line overrides. Paths are resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSettings {
    /// Settings of HTTP.
    pub http: HttpSettings,
    /// No file of a run lies outside of this folder; `None` = the output folder of each detector.
    pub data_root: Option<PathBuf>,
    /// An arm that is not ready after this time has failed.
    pub arm_timeout: Duration,
    /// A detector that is armed and receives nothing for this time goes back to idle; `None` = never.
    pub armed_timeout: Option<Duration>,
    /// Images in the preview buffer of each detector.
    pub ring_images: usize,
    /// Bytes of the images in the preview buffer of each detector.
    pub ring_bytes: u64,
    /// What gives other systems access in their own form.
    pub adapters: AdapterSettings,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            http: HttpSettings::default(),
            data_root: None,
            arm_timeout: Duration::from_secs(20),
            armed_timeout: None,
            ring_images: 16,
            ring_bytes: 256 << 20,
            adapters: AdapterSettings::default(),
        }
    }
}

/// Settings of HTTP. Immutable after start.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// File of tokens (name, role, hash); `None` = everybody who can connect may do everything.
    pub tokens: Option<PathBuf>,
    /// Certificate chain and key as PEM; `None` = plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Origins of web pages that may use the interface; empty = none but the service's own.
    pub cors_origins: Vec<String>,
    /// Who asked for what, one JSON object per line; `None` = commands are reported in the log on stderr only.
    pub audit_log: Option<PathBuf>,
    /// Largest body of a request, in bytes.
    pub request_bytes_max: usize,
    /// Requests per second from one address, on average.
    pub requests_per_s: u32,
    /// Connections at one time.
    pub connections_max: usize,
    /// Time for the headers of a request, and how long a connection may rest between two requests.
    pub request_timeout: Duration,
    /// Also serve the HTTP interface of the MAX IV receiver, on an address of its own.
    pub compat: Option<CompatSettings>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8090)),
            tokens: None,
            tls: None,
            cors_origins: Vec::new(),
            audit_log: None,
            request_bytes_max: 64 << 10,
            requests_per_s: 200,
            connections_max: 256,
            request_timeout: Duration::from_secs(10),
            compat: None,
        }
    }
}

/// Certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// The HTTP interface of the MAX IV receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompatSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Detector that it shows; `None` = the only one.
    pub detector: Option<String>,
    /// Serve `/last_frame`, whose answer is a Python pickle.
    pub pickle: bool,
}

/// Names of the servers that are part of this program; every other name is that of a program.
pub const SERVERS: [&str; 2] = ["simplon", "jfjoch"];

/// All adapters of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterSettings {
    /// Clients of DECTRIS' SIMPLON interface.
    pub simplon: Option<AdapterServer>,
    /// Clients of the Jungfraujoch broker.
    pub jfjoch: Option<AdapterServer>,
    /// Programs, in the order of their names.
    pub programs: Vec<AdapterProgram>,
}

/// A server on an address of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterServer {
    /// Where it listens; port 0 = any that is free.
    pub listen: SocketAddr,
    /// Detector that it shows; `None` = the only one.
    pub detector: Option<String>,
    /// What its clients may do, because they send no tokens.
    pub role: AdapterRole,
}

/// A program that is started with the service, restarted when it ends, and ended with the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterProgram {
    /// Its name, for events and the log.
    pub name: String,
    /// The program and its arguments; started without a shell.
    pub program: Vec<String>,
    /// Detector that it is told; `None` = the only one, or none if there are several.
    pub detector: Option<String>,
    /// What its token may do.
    pub role: AdapterRole,
}

/// What an adapter may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterRole {
    /// Look at everything.
    View,
    /// Also arm, start, trigger, stop, cancel.
    Operate,
}

impl AdapterRole {
    /// The names in configurations.
    pub const NAMES: [&str; 2] = ["view", "operate"];

    /// As it is written in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::View => Self::NAMES[0],
            Self::Operate => Self::NAMES[1],
        }
    }
}

/// What a writer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterTakes {
    /// The images, for the files that are written here.
    Images,
    /// The words of every frame.
    Raw,
}

impl WriterTakes {
    /// Names in configurations.
    pub const NAMES: [&str; 2] = ["images", "raw"];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Images => Self::NAMES[0],
            Self::Raw => Self::NAMES[1],
        }
    }
}

/// The link over which images go to a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterLink {
    /// TCP, which every host has.
    Tcp,
    /// Memory that both programs share, on one host.
    Shm,
    /// libfabric, by this provider.
    Libfabric(String),
    /// Verbs, by this device; `None` = the first one.
    Verbs(Option<String>),
}

impl WriterLink {
    /// Names in configurations.
    pub const NAMES: [&str; 4] = ["tcp", "shm", "libfabric", "verbs"];

    /// Its name in configurations.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tcp => Self::NAMES[0],
            Self::Shm => Self::NAMES[1],
            Self::Libfabric(_) => Self::NAMES[2],
            Self::Verbs(_) => Self::NAMES[3],
        }
    }

    /// Its provider or device, if one is named.
    pub fn through(&self) -> Option<&str> {
        match self {
            Self::Tcp | Self::Shm => None,
            Self::Libfabric(provider) => Some(provider),
            Self::Verbs(device) => device.as_deref(),
        }
    }
}
