//! `[adapters.NAME]` of a service: servers for clients of other systems, and programs that are started with the
//! service, restarted when they end, and ended with it. None of them is part of the data path: they see the service as
//! its other clients do.

pub mod child;
mod program;
mod reach;

use konkordia_acquire::handle::{Detector, Fleet};
use konkordia_api::adapters::AdapterKind;
use konkordia_api::adapters::aside::AsideServer;
use konkordia_api::adapters::port;
use konkordia_api::http::Server;
use konkordia_api::{jfjoch, simplon};
use konkordia_config::ServiceConfig;
use konkordia_config::settings::AdapterProgram;
use konkordia_core::failure::{Exit, Failure};
use program::{Environment, Supervised};
use std::sync::Arc;

/// All adapters of a service. Dropping this ends them.
pub struct OpenAdapters {
    _servers: Vec<AsideServer>,
    _programs: Vec<Supervised>,
}

impl OpenAdapters {
    /// Starts them. A program that cannot be started is reported like one that ends.
    ///
    /// # Errors
    /// A server cannot listen, an adapter names no detector of the service, or the machine has no threads left.
    pub fn start(service: &ServiceConfig, fleet: &Fleet, server: &Server) -> Result<Self, Failure> {
        let settings = &service.settings.adapters;
        let mut servers = Vec::new();
        for (form, server_settings) in [(&simplon::FORM, &settings.simplon), (&jfjoch::FORM, &settings.jfjoch)] {
            let Some(settings) = server_settings else { continue };
            let key = format!("adapters.{}.detector", form.name);
            let detector = shown(fleet, settings.detector.as_deref(), &key)?;
            let opened = port::open(server, Arc::clone(&detector), form, settings, service.settings.ring_images)?;
            tracing::info!("{}: http://{} for '{}'", form.name, opened.address(), detector.name());
            servers.push(opened);
        }
        let programs = settings.programs.iter().map(|one| start_program(one, service, fleet, server));
        Ok(Self { _programs: programs.collect::<Result<_, Failure>>()?, _servers: servers })
    }
}

fn start_program(
    settings: &AdapterProgram,
    service: &ServiceConfig,
    fleet: &Fleet,
    server: &Server,
) -> Result<Supervised, Failure> {
    let detector = match &settings.detector {
        None if fleet.detectors.len() > 1 => None,
        name => Some(shown(fleet, name.as_deref(), &format!("adapters.{}.detector", settings.name))?),
    };
    let detector = detector.as_ref().map(|detector| detector.name());
    let (adapters, role) = (server.adapters(), settings.role.into());
    let environment = Environment {
        url: reach::url(server.address(), service.settings.http.tls.as_ref())?,
        detector: detector.map(str::to_owned),
        token: server.has_tokens().then(|| adapters.token(&settings.name, role)).transpose()?,
        // Who has given the service another one knows better.
        authority: service.settings.http.tls.as_ref().map(|tls| tls.certificate.clone()).filter(|_| !reach::has_authority()),
    };
    adapters.add(&settings.name, AdapterKind::Program, detector, role, None);
    Supervised::start(settings.clone(), environment, Arc::clone(adapters))
}

/// The detector that something shows which shows one; `key` is where its name is configured.
///
/// # Errors
/// The service has none of this name, or several and no name was given.
pub fn shown(fleet: &Fleet, name: Option<&str>, key: &str) -> Result<Arc<dyn Detector>, Failure> {
    fleet.find(name).map_err(|refusal| {
        let fix = format!("set {key} to one of these names");
        Failure::new(Exit::Configuration, format!("{key}: {}", refusal.what), refusal.why, fix)
    })
}
