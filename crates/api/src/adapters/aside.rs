//! A server on an address of its own, with threads of its own and the limits of the main server. If it breaks down,
//! that is reported, and it is started again.

use super::{AdapterKind, Adapters, BackOff};
use crate::http::connection::LimitedAcceptor;
use crate::http::{self, Limits};
use crate::security::Role;
use axum::Router;
use axum_server::accept::DefaultAcceptor;
use konkordia_acquire::handle::contain_thread;
use konkordia_core::failure::{Exit, Failure, reason};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Commands and images that are worked on at once.
const BLOCKING_MAX: usize = 8;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// What a server on an address of its own is.
pub struct Facts<'a> {
    /// Its name among the adapters.
    pub name: &'static str,
    /// Where it is to listen.
    pub listen: SocketAddr,
    /// The detector that it shows.
    pub detector: &'a str,
    /// What it may do.
    pub role: Role,
    /// Limits of connections.
    pub limits: Limits,
}

/// A running server. Dropping it ends it.
pub struct AsideServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

/// Binds, then serves `app` on threads of its own.
///
/// # Errors
/// The address is in use or not of this machine, or the machine has no threads left.
pub fn spawn(facts: &Facts<'_>, adapters: Arc<Adapters>, app: Router) -> Result<AsideServer, Failure> {
    let listener = http::listen(facts.listen)?;
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
    let Facts { name, detector, role, limits, .. } = *facts;
    adapters.add(name, AdapterKind::Server, Some(detector), role, Some(format!("http://{address}")));
    let listener = Arc::new(listener);
    runtime.spawn(keep(name, adapters, move || serve(Arc::clone(&listener), limits, app.clone())));
    Ok(AsideServer { address, runtime: Some(runtime) })
}

/// Runs what `serve` makes; whenever that ends, reports why and runs it again.
async fn keep<F: Future<Output = std::io::Result<()>> + Send + 'static>(
    name: &'static str,
    adapters: Arc<Adapters>,
    serve: impl Fn() -> F + Send,
) {
    let mut back_off = BackOff::default();
    loop {
        let began = Instant::now();
        adapters.started(name, None);
        let why = match tokio::spawn(serve()).await {
            Ok(Ok(())) => "its server ended".into(),
            Ok(Err(error)) => format!("its server ended: {}", reason(&error)),
            Err(ended) => format!("a bug in konkordia ended its server: {ended}"),
        };
        let wait = back_off.next(began.elapsed());
        adapters.failed(name, &why, None, wait);
        tokio::time::sleep(wait).await;
    }
}

async fn serve(listener: Arc<TcpListener>, limits: Limits, app: Router) -> std::io::Result<()> {
    let mut server = axum_server::from_tcp(listener.try_clone()?)?;
    server
        .http_builder()
        .http1()
        .timer(hyper_util::rt::TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.header_bytes.max(8192));
    let acceptor = LimitedAcceptor::new(DefaultAcceptor::new(), limits.connection_slots(), limits.stall_timeout, true);
    server.acceptor(acceptor).http1_only().serve(app.into_make_service_with_connect_info::<SocketAddr>()).await
}

impl AsideServer {
    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AsideServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::AdapterState;
    use super::*;
    use konkordia_acquire::handle::EventLog;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_server_that_panics_is_reported_and_started_again() {
        let runtime = Builder::new_multi_thread().worker_threads(1).on_thread_start(contain_thread).enable_all().build().unwrap();
        let adapters = Arc::new(Adapters::new(EventLog::new()));
        adapters.add("jfjoch", AdapterKind::Server, None, Role::View, None);
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&starts);
        let serve = move || {
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                assert!(!first, "the first one breaks down");
                std::future::pending().await
            }
        };
        runtime.spawn(keep("jfjoch", Arc::clone(&adapters), serve));
        let until = Instant::now() + Duration::from_secs(20);
        while starts.load(Ordering::SeqCst) < 2 || adapters.status()[0].state != AdapterState::Running {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = &adapters.status()[0];
        let why = &status.last_failure.as_ref().unwrap().reason;
        assert!(why.contains("a bug in konkordia ended its server") && why.contains("the first one breaks down"), "{why}");
        assert_eq!((status.restarts, starts.load(Ordering::SeqCst)), (1, 2));
    }
}
