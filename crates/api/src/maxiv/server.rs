//! The interface of the streaming-receiver on an address of its own, with the limits of the main server. It asks for no
//! token, like the MAX IV receiver, because nothing can be changed but one number for viewers.

use super::api;
use crate::http::connection::LimitedAcceptor;
use crate::http::{self, Limits};
use axum_server::Handle;
use axum_server::accept::DefaultAcceptor;
use konkordia_acquire::handle::{Detector, contain_thread};
use konkordia_config::settings::CompatSettings;
use konkordia_core::failure::{Exit, Failure, reason};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Images that are made at once.
const BLOCKING_MAX: usize = 2;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// A running server. Dropping it ends it.
pub struct CompatServer {
    address: SocketAddr,
    handle: Handle<SocketAddr>,
    runtime: Option<Runtime>,
}

/// Binds, then serves on a thread of its own.
///
/// # Errors
/// The address is in use or not of this machine, or the machine has no threads left.
pub fn spawn(detector: Arc<dyn Detector>, settings: &CompatSettings, limits: Limits) -> Result<CompatServer, Failure> {
    let listener = http::listen(settings.listen)?;
    let io = |what: &str, error: &std::io::Error| {
        Failure::new(Exit::Io, what, reason(error), "look at the limits of this process (ulimit -a)")
    };
    let address = listener.local_addr().map_err(|error| io("cannot listen for HTTP", &error))?;
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_MAX)
        .thread_name(http::THREAD)
        .on_thread_start(contain_thread)
        .enable_all();
    let runtime = builder.build().map_err(|error| io("cannot start the threads for HTTP", &error))?;
    let handle = Handle::new();
    let app = api::router(detector, settings.pickle).into_make_service();
    {
        let _inside = runtime.enter();
        let server = axum_server::from_tcp(listener).map_err(|error| io("cannot serve HTTP", &error))?;
        let mut server = server.handle(handle.clone());
        let mut http = server.http_builder().http1();
        http.timer(hyper_util::rt::TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_headers(HEADERS_MAX)
            .max_buf_size(limits.header_bytes.max(8192));
        let acceptor = LimitedAcceptor::new(DefaultAcceptor::new(), limits.connection_slots(), limits.stall_timeout, true);
        let server = server.acceptor(acceptor).http1_only();
        runtime.spawn(async move { drop(server.serve(app).await) });
    }
    Ok(CompatServer { address, handle, runtime: Some(runtime) })
}

impl CompatServer {
    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for CompatServer {
    fn drop(&mut self) {
        self.handle.shutdown();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
    }
}
