//! `konkordia serve`: reads the configuration, starts the detectors and the HTTP server, waits for a signal, then stops
//! them.

use crate::cli::ServeArgs;
use crate::console;
use crate::log::{self, LogLevel};
use crate::run::signals;
use crate::serve::adapters::{self, OpenAdapters};
use crate::serve::supervisor::Supervisor;
use konkordia_acquire::handle::{Detector, EventLog, Fleet, News, Severity};
use konkordia_acquire::service::Detectors;
use konkordia_api::adapters::aside::AsideServer;
use konkordia_api::http::{self, Settings};
use konkordia_api::maxiv;
use konkordia_config::service::ServiceConfig;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_kernels::isa::Isa;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `konkordia serve -c CONFIG`
pub fn command(args: &ServeArgs) -> Result<Exit, Failure> {
    let signals = signals::watched()?;
    log::start(if args.quiet { LogLevel::Error } else { args.log_level }, args.log_format);
    let mut service = load(args)?;
    log_identity(args);
    if let Some(listen) = args.listen {
        service.settings.http.listen = listen;
    }
    let running = Service::start(&service, |handle| handle)?;
    let events = running.detectors.fleet().events.clone();
    let logger = log_events(&events)?;
    announce(args, &service, &running.url());
    let supervisor = Supervisor::start(Arc::clone(running.detectors.fleet()), running.server.pulse())?;
    wait_for_signal(signals);
    supervisor.iter().for_each(Supervisor::stopping);
    tracing::info!("stopping: ending runs and closing their files (a second signal stops at once)");
    running.stop();
    // Waits for the log thread, because the last events are what people look for. If that thread panicked, the panic
    // was reported already.
    events.add(None, "log", Severity::Info, STOPPED.into(), json!({}));
    let _ = logger.join();
    Ok(Exit::Complete)
}

/// The running detectors, and the HTTP interface to them.
pub struct Service {
    detectors: Detectors,
    server: http::Server,
    compat: Option<AsideServer>,
    adapters: OpenAdapters,
}

impl Service {
    /// Starts the detectors, then HTTP. `dress` may wrap each detector before HTTP gets it.
    ///
    /// # Errors
    /// The configuration, the machine or an address cannot be used. Whatever was started before is stopped again.
    pub fn start(service: &ServiceConfig, dress: impl Fn(Arc<dyn Detector>) -> Arc<dyn Detector>) -> Result<Self, Failure> {
        let detectors = Detectors::start(service, dress)?;
        let server = http::spawn(Arc::clone(detectors.fleet()), Settings::from(&service.settings.http))?;
        let compat = open_compat(service, detectors.fleet(), &server)?;
        let adapters = OpenAdapters::start(service, detectors.fleet(), &server)?;
        Ok(Self { detectors, server, compat, adapters })
    }

    /// Where HTTP listens.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Ends the runs, closes their files, then stops the detectors and the servers.
    pub fn stop(self) {
        drop(self.detectors);
        drop((self.compat, self.adapters));
        self.server.stop();
    }
}

/// Starts the interface of the MAX IV receiver, if it is configured.
fn open_compat(service: &ServiceConfig, fleet: &Fleet, server: &http::Server) -> Result<Option<AsideServer>, Failure> {
    let Some(settings) = &service.settings.http.compat else { return Ok(None) };
    let detector = adapters::shown(fleet, settings.detector.as_deref(), "service.compat_detector")?;
    let opened = maxiv::server::spawn(server, Arc::clone(&detector), settings)?;
    tracing::info!("streaming-receiver: http://{} for '{}'", opened.address(), detector.name());
    Ok(Some(opened))
}

fn load(args: &ServeArgs) -> Result<ServiceConfig, Failure> {
    if !maxiv::yaml::is_yaml(&args.config) {
        return konkordia_config::service::load(&args.config);
    }
    let text =
        std::fs::read_to_string(&args.config).map_err(|e| Failure::io("cannot read the configuration", &args.config, &e))?;
    let here = PathBuf::from(".");
    let extra = maxiv::yaml::Extra {
        data_root: args.data_root.as_deref().unwrap_or(&here),
        pickle: args.pickle,
        address: &args.compat_address,
    };
    let text = maxiv::yaml::translate(&text, &args.config, args.detector.as_deref(), &extra)?;
    konkordia_config::service::load_text(&text, Path::new("detectors.toml"))
}

/// Returns at the first signal; a second signal ends the program at once.
fn wait_for_signal(mut signals: signals::Signals) {
    const RESTART: &str = "the configuration is read when the service starts: restart it to change something";
    let _ = signals::ending(&mut signals, RESTART).next();
    let at_once = move || {
        if signals::ending(&mut signals, RESTART).next().is_some() {
            tracing::warn!("stopped at once; repair unfinished files with: konkordia repair FILE");
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).stack_size(STACK_BYTES).spawn(at_once);
}

/// Writes the first line of the log: version, process, instruction set and configuration.
fn log_identity(args: &ServeArgs) {
    let (version, pid, instruction_set) = (env!("CARGO_PKG_VERSION"), std::process::id(), Isa::detect().name());
    let configuration = args.config.display().to_string();
    tracing::info!(version, pid, instruction_set, configuration, "konkordia {version}");
}

/// Stack of the threads that only log or wait.
const STACK_BYTES: usize = 256 << 10;

/// The last event of a service.
const STOPPED: &str = "stopped: all files are closed";

/// Writes a line to the log for every event, until the service has stopped.
fn log_events(events: &EventLog) -> Result<std::thread::JoinHandle<()>, Failure> {
    let mut events = events.subscribe_after(0);
    let log = move || {
        let mut log = log::Log::default();
        loop {
            match events.read() {
                Some(News::Event(event)) => {
                    log.line(&event);
                    if event.detector.is_none() && event.message == STOPPED {
                        return;
                    }
                }
                Some(News::Missed(n)) => tracing::warn!("{} events are not in the log", n.unwrap_or_default()),
                None => {
                    events.wait(None);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("log".into()).stack_size(STACK_BYTES).spawn(log);
    thread.map_err(|e| Failure::new(Exit::Io, "cannot start a thread for the log", reason(&e), "end other programs"))
}

fn announce(args: &ServeArgs, service: &ServiceConfig, url: &str) {
    let names: Vec<&str> = service.detectors.iter().map(|detector| detector.name.as_str()).collect();
    if args.json {
        console::json(&json!({ "event": "ready", "url": url, "detectors": names, "pid": std::process::id() }), true);
    } else {
        console::to_stdout(&format!("ready: {url}, {}", names.join(", ")));
    }
}
