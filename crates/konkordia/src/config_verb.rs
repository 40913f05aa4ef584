//! `konkordia config`: writes an example, checks a file, prints the keys.

use crate::cli::{ConfigAction, ConfigArgs};
use crate::{config_init, console, detectors};
use konkordia_acquire::run::placement::place;
use konkordia_config::service::{DetectorConfig, DetectorKindConfig, ServiceConfig};
use konkordia_config::{EXAMPLE, plan, schema, stream, xds};
use konkordia_core::failure::{Exit, Failure};
use std::path::Path;

/// `konkordia config ...`
pub fn command(args: &ConfigArgs) -> Result<Exit, Failure> {
    match &args.action {
        ConfigAction::Init { file: None, detector } => console::to_stdout(example(detector.as_deref())?.trim_end()),
        ConfigAction::Init { file: Some(path), detector } => {
            let text = example(detector.as_deref())?;
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).open(path);
            let mut file = file.map_err(|error| Failure::io("cannot create", path, &error))?;
            let written = std::io::Write::write_all(&mut file, text.as_bytes());
            written.map_err(|error| Failure::io("cannot write", path, &error))?;
            console::to_stderr(&format!("wrote {0}; edit it, then: konkordia config check {0}", path.display()));
        }
        ConfigAction::Openapi => console::to_stdout(konkordia_api::http::openapi::text().trim_end()),
        ConfigAction::Schema { markdown: false } => console::json(&schema::json_schema(), false),
        ConfigAction::Schema { markdown: true } => console::to_stdout(schema::markdown().trim_end()),
        ConfigAction::Check { file, json } => return check(file, *json),
    }
    Ok(Exit::Complete)
}

/// The example of all keys, or the configuration of a detector by name.
fn example(detector: Option<&str>) -> Result<String, Failure> {
    detector.map_or_else(|| Ok(EXAMPLE.to_owned()), |name| Ok(config_init::configuration(detectors::find(name)?)))
}

/// Prints the plan and notes, and reports problems outside the file: missing folders, unusable calibrations.
fn check(path: &Path, json: bool) -> Result<Exit, Failure> {
    let service = konkordia_config::service::load(path)?;
    // A configuration of one UDP detector may be meant for `receive`: then only its plan is printed.
    if let [only] = &service.detectors[..]
        && let DetectorKindConfig::Udp(config) = &only.kind
    {
        let mut plan = plan::plan(config);
        place(config, &mut plan).iter().for_each(|note| console::note(note));
        if json {
            console::json(&plan::to_json(config, &plan), false);
        } else {
            console::to_stdout(&format!("{} is valid; the plan:\n{}", path.display(), plan::describe(config, &plan)));
        }
    } else {
        describe_service(path, &service, json);
    }
    for detector in &service.detectors {
        let notes = match &detector.kind {
            DetectorKindConfig::Udp(config) => xds::notes(config),
            DetectorKindConfig::Stream(config) => xds::stream_notes(config),
        };
        notes.iter().for_each(|note| console::note(note));
    }
    // Folders and calibration files may still be made before the run, but it helps to report missing ones now.
    let mut exit = Exit::Complete;
    let mut outside = |failure: Failure| {
        console::to_stderr(&failure.to_string());
        exit = Exit::Configuration;
    };
    for detector in &service.detectors {
        let directory = detector.directory();
        if !directory.is_dir() {
            let what = format!("the output folder {} does not exist", directory.display());
            let fix = format!("mkdir -p {}", directory.display());
            outside(Failure::new(Exit::Configuration, what, "konkordia creates files, not folders", fix));
        }
        if let DetectorKindConfig::Udp(config) = &detector.kind
            && let Some(files) = &config.calibration
            && let Err(failure) = konkordia_calibration::load(config, files)
        {
            outside(failure);
        }
    }
    Ok(exit)
}

fn describe_service(path: &Path, service: &ServiceConfig, json: bool) {
    let describe = |detector: &DetectorConfig| match &detector.kind {
        DetectorKindConfig::Udp(config) => {
            let mut plan = plan::plan(config);
            place(config, &mut plan).iter().for_each(|note| console::note(note));
            plan::describe(config, &plan)
        }
        DetectorKindConfig::Stream(config) => stream::describe(config),
    };
    if json {
        let detectors: serde_json::Map<String, serde_json::Value> =
            service.detectors.iter().map(|d| (d.name.clone(), d.to_json())).collect();
        let http = &service.settings.http;
        console::json(&serde_json::json!({ "listen": http.listen.to_string(), "detectors": detectors }), false);
        return;
    }
    console::to_stdout(&format!("{} is valid; the service listens on {}", path.display(), service.settings.http.listen));
    for detector in &service.detectors {
        console::to_stdout(&format!("\n{} ({})\n{}", detector.name, detector.file.display(), describe(detector)));
    }
}
