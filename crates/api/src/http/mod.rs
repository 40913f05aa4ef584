//! HTTP: the interface `/api/v1`, metrics and health, and their server on two threads of its own.
//!
//! Nothing here touches the data path: states are snapshots, commands go through the queues of the actors, images come
//! from the preview buffer. Read [`spawn`] first, then `routes`.

pub(crate) mod audit;
mod calibration;
pub(crate) mod commands;
pub mod connection;
pub mod connection_slots;
mod events;
pub mod extract;
pub mod files;
pub(crate) mod guard;
pub(crate) mod images;
pub mod live;
pub(crate) mod machine;
pub mod openapi;
mod page;
pub mod problem;
pub(crate) mod render;
mod routes;
mod settings;
pub(crate) mod shapes;
mod stacks;
pub mod state;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod turns;
mod unseen;
mod watch;

use super::adapters::Adapters;
use super::security::tls;
use axum_server::Handle;
use axum_server::accept::DefaultAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use connection::LimitedAcceptor;
use konkordia_acquire::handle::{Fleet, contain_thread};
use konkordia_core::failure::{Exit, Failure, reason};
pub use settings::{Limits, Settings, wrong_settings};
use state::Shared;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Name of the server's threads. After a panic on one of them, one request is answered with 500; the service goes on.
pub const THREAD: &str = "http";
/// Threads that answer requests; what takes long is done on other threads.
const WORKERS: usize = 2;
/// Threads for commands, decoding, calibrations, finished files, metrics and the audit log. Semaphores limit the first
/// four, so that some threads are always left.
const BLOCKING_MAX: usize =
    2 * state::COMMANDS_MAX + state::DECODERS_MAX + state::LOOKS_MAX + state::CALIBRATIONS_MAX + files::Cache::THREADS_MAX + 8;
/// Time that requests have to finish when the server stops.
const GRACE: Duration = Duration::from_millis(1500);
/// Time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// A running server. Dropping it ends it too.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    handle: Handle<SocketAddr>,
    task: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

/// Shows whether a server still answers.
#[derive(Clone)]
pub struct Pulse {
    runtime: tokio::runtime::Handle,
    shared: Arc<Shared>,
}

impl Pulse {
    /// True if the threads of the server read the state of all detectors within `timeout`, as an answer does.
    pub fn answers(&self, timeout: Duration) -> bool {
        let (tell, told) = std::sync::mpsc::channel();
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            shared.fleet.detectors.iter().for_each(|detector| drop(detector.status()));
            // Nobody waits any more if it took too long.
            let _ = tell.send(());
        });
        told.recv_timeout(timeout).is_ok()
    }
}

/// Binds, then serves on threads of its own.
///
/// # Errors
/// If the address is in use or not of this machine, settings contradict each other, or a file of tokens, TLS or audit
/// cannot be used.
pub fn spawn(fleet: Arc<Fleet>, settings: Settings) -> Result<Server, Failure> {
    check(&settings)?;
    let tls = settings.tls.as_ref().map(tls::load).transpose()?;
    let shared = Arc::new(Shared::new(fleet, settings)?);
    let listener = listen(shared.settings.address)?;
    let io = |what: &str, error: &std::io::Error| {
        Failure::new(Exit::Io, what, reason(error), "look at the limits of this process (ulimit -a)")
    };
    let address = listener.local_addr().map_err(|error| io("cannot listen for HTTP", &error))?;
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_MAX)
        .thread_name(THREAD)
        .on_thread_start(contain_thread)
        .enable_all();
    let runtime = builder.build().map_err(|error| io("cannot start the threads for HTTP", &error))?;
    let handle = Handle::new();
    let tls = tls.map(RustlsConfig::from_config);
    runtime.spawn(watch::run(Arc::clone(&shared), tls.clone()));
    if shared.tokens.is_some() && tls.is_none() && !address.ip().is_loopback() {
        shared.warn(format!(
            "tokens are sent to {address} in the clear: whoever can listen on the network reads them and can use them; set service.tls_certificate and service.tls_key, or listen on 127.0.0.1 behind an SSH tunnel or a proxy with TLS"
        ));
    }
    let served = serve(&runtime, listener, &shared, &handle, tls).map_err(|error| io("cannot serve HTTP", &error))?;
    Ok(Server { address, shared, handle, task: Some(served), runtime: Some(runtime) })
}

fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    shared: &Arc<Shared>,
    handle: &Handle<SocketAddr>,
    tls: Option<RustlsConfig>,
) -> std::io::Result<JoinHandle<()>> {
    let _inside = runtime.enter();
    let limits = shared.settings.limits;
    let connection_slots = limits.connection_slots();
    let app = routes::router(shared).into_make_service_with_connect_info::<SocketAddr>();
    let mut server = axum_server::from_tcp(listener)?.handle(handle.clone());
    let timer = hyper_util::rt::TokioTimer::new();
    let mut http = server.http_builder().http1();
    http.timer(timer)
        .header_read_timeout(limits.header_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.header_bytes.max(8192));
    // Not by the server's own `http1_only`, which serves connections without upgrades to a WebSocket.
    let only_http1 = server.http_builder().clone().http1_only();
    *server.http_builder() = only_http1;
    Ok(match tls {
        None => {
            let server =
                server.acceptor(LimitedAcceptor::new(DefaultAcceptor::new(), connection_slots, limits.stall_timeout, true));
            runtime.spawn(async move { drop(server.serve(app).await) })
        }
        Some(tls) => {
            let stall = limits.stall_timeout;
            let inner = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
            let server = server.acceptor(LimitedAcceptor::new(inner, connection_slots, stall, false));
            runtime.spawn(async move { drop(server.serve(app).await) })
        }
    })
}

fn check(settings: &Settings) -> Result<(), Failure> {
    if !settings.address.ip().is_loopback() && settings.tokens.is_none() {
        let why = "anybody on the network could stop a measurement".to_string();
        let fix = "make tokens (`konkordia token create NAME --role operate --file FILE`) and name the file ([service] tokens), or listen on 127.0.0.1";
        let what = format!("HTTP on {} needs tokens", settings.address);
        return Err(Failure::new(Exit::Configuration, what, why, fix));
    }
    Ok(())
}

/// Opens a socket that listens for HTTP.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    bound.map_err(|error| {
        use std::io::ErrorKind as K;
        let fix = match error.kind() {
            K::AddrInUse => format!("another program listens there, perhaps another `konkordia serve` (`ss -ltnp` shows it); end it or take another port than {}", address.port()),
            K::AddrNotAvailable => "use an address of this machine (`ip address` shows them)".into(),
            K::PermissionDenied => "ports below 1024 are for root; take another one".into(),
            _ => "check address and port".into(),
        };
        let exit = if error.kind() == K::AddrInUse { Exit::State } else { Exit::Io };
        Failure::new(exit, format!("cannot listen for HTTP on {address}"), reason(&error), fix)
    })
}

impl Server {
    /// What its requests share with the servers beside it.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What gives other systems access.
    pub fn adapters(&self) -> &Arc<Adapters> {
        &self.shared.adapters
    }

    /// Shows whether it still answers.
    ///
    /// # Panics
    /// If it has ended.
    pub fn pulse(&self) -> Pulse {
        let runtime = self.runtime.as_ref().expect("the server is running").handle().clone();
        Pulse { runtime, shared: Arc::clone(&self.shared) }
    }

    /// True if requests need a token.
    pub fn has_tokens(&self) -> bool {
        self.shared.tokens.is_some()
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, for people and programs on this machine.
    pub fn url(&self) -> String {
        let scheme = if self.shared.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Ends: no new connections are accepted, event streams end, running requests get 1.5 s; done within 2 s.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.shared.stopping.send_replace(true);
        self.handle.graceful_shutdown(Some(GRACE));
        if let Some(task) = self.task.take() {
            let _ = runtime.block_on(async { tokio::time::timeout(GRACE + Duration::from_millis(200), task).await });
        }
        runtime.shutdown_timeout(Duration::from_millis(100));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
