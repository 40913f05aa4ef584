//! `konkordia doctor`: is this host set up to receive without loss, and where did the packets of a run go?

pub mod args;
mod run;

use crate::console;
use args::DoctorArgs;
use konkordia_config::service::{self, DetectorKindConfig, ServiceConfig};
use konkordia_config::{Config, plan};
use konkordia_core::failure::{Exit, Failure};
use konkordia_doctor::finding::{Finding, Verdict, to_text};
use konkordia_doctor::snapshot::{Demand, Scope, Snapshot};
use konkordia_doctor::{checks, script};
use konkordia_sources::backend;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// `konkordia doctor`
pub fn command(args: &DoctorArgs) -> Result<Exit, Failure> {
    if let Some(file) = &args.run {
        return run::command(file, args.json);
    }
    let snapshot = Snapshot::take(&scope(args)?).map_err(|why| {
        Failure::new(
            Exit::Usage,
            "this interface cannot be looked at",
            why,
            "`ip link` lists the interfaces; give one with --iface",
        )
    })?;
    let findings = checks::all(&snapshot);
    let fails = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    let exit = if fails { Exit::Incomplete } else { Exit::Complete };
    if args.fix_script {
        console::to_stdout(script::script(snapshot.host(), &findings).trim_end());
    } else if args.json {
        console::json(&to_json(&snapshot, &findings, exit), false);
    } else {
        console::to_stdout(&to_text(&findings));
    }
    Ok(exit)
}

/// What is looked at, and what the configuration asks for.
fn scope(args: &DoctorArgs) -> Result<Scope, Failure> {
    let service = args.config.as_deref().map(service::load).transpose()?;
    let folder = args.dir.clone().or_else(|| Some(service.as_ref()?.detectors.first()?.directory().to_owned()));
    Ok(Scope {
        interfaces: args.interfaces.clone(),
        demand: service.as_ref().map(demand).unwrap_or_default(),
        folder,
        write_time: Duration::from_secs(args.write_seconds),
    })
}

/// What all UDP detectors of a configuration ask for together. Detectors that send whole images over TCP ask for
/// nothing here.
fn demand(service: &ServiceConfig) -> Demand {
    let configs: Vec<&Config> = service
        .detectors
        .iter()
        .filter_map(|detector| match &detector.kind {
            DetectorKindConfig::Udp(config) => Some(&**config),
            DetectorKindConfig::Stream(_) => None,
        })
        .collect();
    if configs.is_empty() {
        return Demand::default();
    }
    let plans: Vec<_> = configs.iter().map(|config| plan::plan(config)).collect();
    let pinned = configs.iter().flat_map(|config| config.pin_streams.named().iter().chain(config.pin_workers.named()));
    let rings = configs
        .iter()
        .zip(&plans)
        .map(|(config, plan)| backend::memory_bytes(config.receive, config.address, plan.streams(), config.receive_buffer_bytes));
    let memory: u64 = plans.iter().flat_map(|plan| plan.memory()).map(|item| item.bytes).chain(rings).sum();
    Demand {
        addresses: configs.iter().map(|config| config.address).collect(),
        streams: Some(plans.iter().map(|plan| plan.streams() as u64).sum()),
        datagram_bytes: configs.iter().map(|config| u64::from(config.geometry.format().datagram_bytes())).max(),
        receive_buffer_bytes: configs.iter().map(|config| config.receive_buffer_bytes as u64).max(),
        memory_bytes: Some(memory),
        receive: configs.iter().map(|config| config.receive).collect(),
        pinned: pinned.copied().collect(),
    }
}

fn to_json(snapshot: &Snapshot, findings: &[Finding], exit: Exit) -> Value {
    let one = |finding: &Finding| {
        let Finding { check, subject, verdict, measured, wanted, why, .. } = finding;
        json!({
            "check": check, "subject": subject, "verdict": verdict.name(), "measured": measured, "wanted": wanted, "why": why,
            "fix": finding.commands(),
        })
    };
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let counts: Map<String, Value> =
        Verdict::ALL.into_iter().map(|verdict| (verdict.name().into(), json!(count(verdict)))).collect();
    let interfaces: Vec<&str> = snapshot.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    json!({
        "host": snapshot.host(), "interfaces": interfaces, "counts": counts, "exit_code": exit as u8,
        "checks": findings.iter().map(one).collect::<Vec<_>>(),
    })
}
