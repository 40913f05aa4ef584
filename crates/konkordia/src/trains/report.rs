//! The report of a run: every packet and every train of a module with what became of it.

use super::args::TrainsArgs;
use super::bridge::BridgeCounts;
use super::outputs::Written;
use super::process::Processed;
use super::receive::Received;
use crate::console;
use konkordia_core::failure::Exit;
use konkordia_core::text;
use konkordia_fabric::trains::{BuilderCounts, Verdict};
use serde_json::{Value, json};

/// What came of a run.
pub struct Outcome {
    /// Of each module.
    pub received: Vec<Received>,
    /// Of the builder.
    pub built: BuilderCounts,
    /// Of the outputs.
    pub written: Written,
    /// What programs said, if they were in the way.
    pub processed: Option<Processed>,
    /// Numbers of others: malformed messages, late and refused numbers.
    pub injected: (u64, u64, u64),
    /// Seconds of the run.
    pub seconds: f64,
}

/// Prints the report; says how the program ends.
pub fn print(args: &TrainsArgs, outcome: &Outcome) -> Exit {
    let (exit, value) = to_json(outcome);
    if args.json {
        console::json(&value, true);
    } else {
        console::to_stdout(&to_text(outcome));
    }
    if let Some(error) = &outcome.written.files_error {
        console::to_stderr(&error.to_string());
    }
    exit
}

/// The report for programs, and the exit code that follows from it.
pub fn to_json(outcome: &Outcome) -> (Exit, Value) {
    let Outcome { received, built, written, .. } = outcome;
    let modules: Vec<Value> = received
        .iter()
        .map(|module| {
            let mut value = json!({
                "module": module.module, "packets": module.counts.verdicts.iter().sum::<u64>(), "complete": module.counts.complete,
                "partial": module.counts.partial, "refused": module.counts.refused, "unidentified": module.counts.unidentified,
                "kernel_dropped": module.dropped, "error": module.error.as_ref().map(ToString::to_string),
            });
            for verdict in Verdict::ALL {
                value[verdict.name()] = json!(module.counts.of(verdict));
            }
            value
        })
        .collect();
    // Each train that a channel handed on was placed, or refused by the builder.
    let handed_on: u64 = received.iter().map(|module| module.counts.complete + module.counts.partial).sum();
    let balances = handed_on == built.placed + built.late + built.duplicate;
    let bridge = |counts: &Option<(BridgeCounts, u64)>| {
        counts.as_ref().map(|(counts, busy)| json!({ "sent": counts.sent, "skipped": counts.skipped, "busy": busy }))
    };
    let mut value = json!({
        "event": "trains_ended", "seconds": outcome.seconds, "balances": balances,
        "trains": {
            "complete": built.complete, "incomplete": built.incomplete, "lost": built.lost, "modules_missing": built.modules_missing,
            "modules_late": built.late, "modules_duplicate": built.duplicate, "modules_left_out": built.left_out, "modules_placed": built.placed,
        },
        "modules": modules, "files": written.files, "numbers_without_column": written.numbers_without_column, "files_error": written.files_error.as_ref().map(konkordia_core::failure::Failure::detail),
        "bridge": bridge(&written.bridge), "bridge_push": bridge(&written.bridge_push),
        "ttp": written.ttp.as_ref().map(|(counts, busy)| json!({ "sent": counts.sent, "skipped": counts.skipped, "busy": busy })),
        "injected": { "malformed": outcome.injected.0, "late": outcome.injected.1, "refused": outcome.injected.2 },
    });
    if let Some(processed) = &outcome.processed {
        let counts = &processed.counts;
        value["process"] = json!({
            "kept": counts.kept, "rejected": counts.rejected, "skipped": counts.skipped, "unanswered": counts.unanswered,
            "late": counts.late, "malformed": processed.malformed, "numbers_refused": processed.refused,
        });
    }
    let failed = received.iter().any(|module| module.error.is_some()) || written.files_error.is_some();
    let is_whole = built.incomplete == 0 && built.lost == 0 && built.late == 0 && built.complete > 0;
    let exit = match (balances, failed, is_whole) {
        (false, ..) => Exit::Bug,
        (_, true, _) => Exit::Io,
        (.., true) => Exit::Complete,
        _ => Exit::Incomplete,
    };
    (exit, value)
}

fn to_text(outcome: &Outcome) -> String {
    let built = &outcome.built;
    let mut text = format!(
        "{} trains complete, {} incomplete, {} lost; {} modules missing, {} late, {} twice, {} left out",
        text::count(built.complete),
        text::count(built.incomplete),
        text::count(built.lost),
        text::count(built.modules_missing),
        text::count(built.late),
        text::count(built.duplicate),
        text::count(built.left_out)
    );
    for verdict in Verdict::ALL {
        let packets: u64 = outcome.received.iter().map(|module| module.counts.of(verdict)).sum();
        if packets > 0 {
            text += &format!("\npackets {}: {}", verdict.name().replace('_', " "), text::count(packets));
        }
    }
    let dropped: u64 = outcome.received.iter().map(|module| module.dropped).sum();
    if dropped > 0 {
        text += &format!("\npackets dropped by the kernel, because this program was too slow: {}", text::count(dropped));
    }
    if let Some(Processed { counts, .. }) = &outcome.processed {
        text += &format!(
            "\nprograms: {} kept, {} rejected, {} without an answer in time, {} not asked for",
            text::count(counts.kept),
            text::count(counts.rejected),
            text::count(counts.unanswered),
            text::count(counts.skipped)
        );
    }
    if let Some(trains) = outcome.written.files {
        text += &format!("\ntrains in files: {}", text::count(trains));
    }
    text
}
