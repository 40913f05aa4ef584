//! What the service itself is told, apart from its detectors: where it listens, whom it lets in, and where files may lie.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `[service]`, and the command line where it says otherwise. Paths are resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSettings {
    /// Everything that HTTP needs to know.
    pub http: HttpSettings,
    /// No file of a run lies outside of this folder; `None` = below the output folder of each detector.
    pub data_root: Option<PathBuf>,
    /// An arm that is not ready by then has failed.
    pub arm_timeout: Duration,
    /// Armed detectors to which nothing comes go back to idle after this time; `None` = never.
    pub armed_timeout: Option<Duration>,
    /// Images that each detector keeps for those who look.
    pub ring_images: usize,
    /// Bytes that these images may take, per detector.
    pub ring_bytes: u64,
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
        }
    }
}

/// What the HTTP side needs to know. Immutable after start.
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
    /// Who asked for what, one JSON object a line; `None` = commands are told on stderr only.
    pub audit_log: Option<PathBuf>,
    /// Largest body of a request.
    pub request_bytes_max: usize,
    /// Requests per second from one address, on average.
    pub requests_per_s: u32,
    /// Connections at one time.
    pub connections_max: usize,
    /// A request that has not been read by then is given up.
    pub request_timeout: Duration,
    /// Speak the HTTP interface of the MAX IV receiver here, too.
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
    /// Chain, PEM, the own certificate first.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// The HTTP interface of the MAX IV receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompatSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Detector that it shows.
    pub detector: Option<String>,
    /// Serve `/last_frame`, whose answer is a Python pickle.
    pub pickle: bool,
}
