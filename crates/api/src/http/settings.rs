//! Settings and limits of the server.

use super::connection_slots::{ConnectionSlots, Places};
use crate::security::tls::TlsFiles;
use konkordia_config::settings::HttpSettings;
use konkordia_core::failure::{Exit, Failure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One in so many connections is reserved for this machine, and for addresses from which a token came before.
const KEPT_SHARE: usize = 8;

/// Settings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens; port 0 = any that is free.
    pub address: SocketAddr,
    /// File of tokens. Without one it listens on loopback only, and everyone on this machine may do everything.
    pub tokens: Option<PathBuf>,
    /// Certificate and key; without them it speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Host names by which it is called, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins of foreign web pages that may send requests.
    pub origins: Vec<String>,
    /// File of the audit log.
    pub audit: Option<PathBuf>,
    /// `/metrics` needs no token.
    pub metrics_open: bool,
    /// Its limits.
    pub limits: Limits,
}

/// Limits of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the body of a request.
    pub body_bytes: usize,
    /// Bytes of the headers of a request, at least 8192.
    pub header_bytes: usize,
    /// Time for the headers of a request, and how long a connection may rest between two requests.
    pub header_timeout: Duration,
    /// Longest time in which a client may take nothing of an answer.
    pub stall_timeout: Duration,
    /// Connections at once.
    pub connections: usize,
    /// Connections of one address (IPv6: of one network).
    pub connections_per_address: usize,
    /// Requests of one address per second, on average.
    pub requests_per_s: u32,
    /// Requests of one address at once.
    pub requests_burst: u32,
    /// Memory of answers with images that are being made or sent, MiB.
    pub image_memory_mib: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            header_bytes: 32 << 10,
            header_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_secs(30),
            connections: 256,
            connections_per_address: 64,
            requests_per_s: 500,
            requests_burst: 1000,
            image_memory_mib: 1024,
        }
    }
}

impl Limits {
    /// The limits for connections.
    pub fn connection_slots(&self) -> ConnectionSlots {
        let kept = self.connections / KEPT_SHARE;
        ConnectionSlots::new(Places { all: self.connections, per_address: self.connections_per_address, kept })
    }
}

impl Settings {
    /// On `address`, with nothing else set.
    pub fn on(address: SocketAddr) -> Self {
        Self {
            address,
            tokens: None,
            tls: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            audit: None,
            metrics_open: false,
            limits: Limits::default(),
        }
    }
}

impl From<&HttpSettings> for Settings {
    fn from(settings: &HttpSettings) -> Self {
        let tls = settings.tls.as_ref().map(|files| TlsFiles { certificate: files.certificate.clone(), key: files.key.clone() });
        let limits = Limits {
            body_bytes: settings.request_bytes_max,
            header_timeout: settings.request_timeout,
            connections: settings.connections_max,
            connections_per_address: (settings.connections_max / 4).max(1),
            requests_per_s: settings.requests_per_s,
            requests_burst: settings.requests_per_s.saturating_mul(2),
            ..Limits::default()
        };
        Self {
            tokens: settings.tokens.clone(),
            tls,
            origins: settings.cors_origins.clone(),
            audit: settings.audit_log.clone(),
            limits,
            ..Self::on(settings.listen)
        }
    }
}

/// The failure for settings of HTTP that cannot be used.
pub fn wrong_settings(why: impl Into<String>, fix: impl Into<String>) -> Failure {
    Failure::new(Exit::Configuration, "the settings of HTTP cannot be used", why, fix)
}
