//! The interface of the streaming-receiver on an address of its own. It asks for no token, like the MAX IV receiver,
//! because nothing can be changed but one number for viewers.

use super::api;
use crate::adapters::aside::{self, AsideServer, Facts};
use crate::http::Server;
use crate::security::Role;
use konkordia_acquire::handle::Detector;
use konkordia_config::settings::CompatSettings;
use konkordia_core::failure::Failure;
use std::sync::Arc;

/// Binds, then serves on threads of its own.
///
/// # Errors
/// The address is in use or not of this machine, or the machine has no threads left.
pub fn spawn(server: &Server, detector: Arc<dyn Detector>, settings: &CompatSettings) -> Result<AsideServer, Failure> {
    let shared = server.shared();
    let limits = shared.settings.limits;
    let (name, listen) = ("streaming-receiver", settings.listen);
    let facts = Facts { name, listen, detector: detector.name(), role: Role::View, limits };
    aside::spawn(&facts, Arc::clone(&shared.adapters), api::router(Arc::clone(&detector), settings.pickle))
}
