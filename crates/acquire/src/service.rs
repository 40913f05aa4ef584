//! The detectors of a service, from their start to their end.

use crate::detector::{self, Handle};
use crate::events::EventLog;
use crate::handle::{Detector, Fleet, Severity};
use crate::spool::left_over;
use konkordia_config::service::{DetectorConfig, DetectorKindConfig, ServiceConfig};
use konkordia_config::settings::ServiceSettings;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::master_file_name;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Detectors that wait for commands. Dropping them ends their runs and closes the files.
pub struct Detectors {
    handles: Vec<Arc<Handle>>,
    fleet: Arc<Fleet>,
}

impl Detectors {
    /// Starts the detectors of a configuration. `dress` may wrap each before servers get it.
    ///
    /// # Errors
    /// The configuration or the machine cannot be used. Whatever was started before is stopped again.
    pub fn start(service: &ServiceConfig, dress: impl Fn(Arc<dyn Detector>) -> Arc<dyn Detector>) -> Result<Self, Failure> {
        check_roots(service)?;
        if service.detectors.iter().any(|detector| matches!(detector.kind, DetectorKindConfig::Stream(_))) {
            konkordia_sources::zmq::keep_memory_of_messages();
        }
        let events = EventLog::new();
        report_unfinished(service, &events);
        let handles = open_all(service, &events)?;
        let detectors = handles.iter().map(|handle| dress(Arc::clone(handle) as Arc<dyn Detector>)).collect();
        let fleet = Arc::new(Fleet::new(detectors, events));
        Ok(Self { handles, fleet })
    }

    /// What servers see of them.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }
}

impl Drop for Detectors {
    fn drop(&mut self) {
        self.fleet.stop();
        end_all(&self.handles);
    }
}

/// Every output folder must lie below the data root, because no run writes a file elsewhere.
fn check_roots(service: &ServiceConfig) -> Result<(), Failure> {
    let Some(root) = &service.settings.data_root else { return Ok(()) };
    let root_is = root.canonicalize().map_err(|error| Failure::io("cannot use the data root", root, &error))?;
    for detector in &service.detectors {
        let Ok(directory) = detector.directory().canonicalize() else { continue };
        if !directory.starts_with(&root_is) {
            let what = format!("the output folder {} of '{}' is outside of the data root", directory.display(), detector.name);
            let fix = "move the folder, or correct service.data_root";
            return Err(Failure::new(Exit::Configuration, what, format!("the data root is {}", root_is.display()), fix));
        }
    }
    Ok(())
}

fn open_all(service: &ServiceConfig, events: &EventLog) -> Result<Vec<Arc<Handle>>, Failure> {
    let settings = Arc::new(service.settings.clone());
    let mut handles: Vec<Arc<Handle>> = Vec::new();
    for config in &service.detectors {
        match open(config, &settings, events) {
            Ok(handle) => handles.push(Arc::new(handle)),
            Err(failure) => {
                end_all(&handles);
                return Err(failure);
            }
        }
    }
    Ok(handles)
}

fn open(config: &DetectorConfig, settings: &Arc<ServiceSettings>, events: &EventLog) -> Result<Handle, Failure> {
    let (config, settings) = (Arc::new(config.clone()), Arc::clone(settings));
    match &config.kind {
        DetectorKindConfig::Udp(_) => detector::udp::open(config, settings, events.clone()),
        DetectorKindConfig::Stream(_) => detector::stream::open(config, settings, events.clone()),
    }
}

fn end_all(handles: &[Arc<Handle>]) {
    handles.iter().for_each(|handle| handle.shut_down());
    handles.iter().for_each(|handle| handle.join());
}

/// Reports unfinished files of a service that was killed. It does not change them.
fn report_unfinished(service: &ServiceConfig, events: &EventLog) {
    let (mut seen, mut spools) = (Vec::new(), Vec::new());
    for detector in &service.detectors {
        if let Some(spool) = detector.spool().filter(|spool| !spools.contains(&&spool.directory)) {
            spools.push(&spool.directory);
            for left in left_over::list(&spool.directory).unwrap_or_default() {
                let (message, folder) = (left_over::words(&left, &spool.directory), left.folder.display().to_string());
                events.remark(Some(&detector.name), Severity::Warning, message, json!({ "folder": folder }));
            }
        }
        let directory = detector.directory();
        if seen.contains(&directory) {
            continue;
        }
        seen.push(directory);
        for master in unfinished(directory) {
            let message =
                format!("{} is not finished; if no other program is writing it, run: konkordia repair {0}", master.display());
            let data = json!({ "file": master.display().to_string() });
            events.remark(Some(&detector.name), Severity::Warning, message, data);
        }
    }
}

/// Master files in this folder beside which the journal of a data file was left. The number of entries read is bounded,
/// so that a large archive folder does not delay the start.
fn unfinished(directory: &Path) -> Vec<PathBuf> {
    const ENTRIES_MAX: usize = 100_000;
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut masters: Vec<PathBuf> = entries
        .take(ENTRIES_MAX)
        .filter_map(|entry| master_of_journal(entry.ok()?.file_name().to_str()?))
        .map(|name| directory.join(name))
        .filter(|path| path.exists())
        .collect();
    masters.sort();
    masters.dedup();
    masters
}

/// Name of the master file to which a journal belongs; `None` if `name` is not that of a journal.
fn master_of_journal(name: &str) -> Option<String> {
    let (prefix, _) = name.strip_suffix(".h5.journal")?.rsplit_once("_data_")?;
    Some(master_file_name(prefix))
}
