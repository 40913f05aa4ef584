//! States in words.

use konkordia_acquire::handle::{DetectorState, DetectorStatus, Severity};
use konkordia_core::text;

/// The state in a word.
pub fn state(status: &DetectorStatus) -> &'static str {
    match status.state {
        DetectorState::Idle => "idle",
        DetectorState::Armed => "armed",
        DetectorState::Receiving => "running",
        DetectorState::Draining => "draining",
        DetectorState::Error => "in error",
    }
}

/// The state and the message on one line, followed by the file and by what to do, if there is any.
pub fn line(status: &DetectorStatus) -> String {
    let mark = match status.severity {
        Severity::Error => "error: ",
        Severity::Warning => "warning: ",
        Severity::Info | Severity::Success => "",
    };
    let mut text = format!("{}: {}; {mark}{}", status.detector, state(status), status.message);
    let runs = status.state.has_run();
    if runs && status.images_committed > 0 {
        text.push_str(&format!("; {}", progress(status)));
    }
    if let Some(file) = status.file.as_ref().filter(|_| status.images_written > 0 || runs) {
        text.push_str(&format!("\n  file: {file}"));
    }
    if let Some(spool) = status.spool.as_ref().filter(|spool| spool.files_waiting > 0) {
        let (used, limit) = (text::bytes(spool.used_bytes), text::bytes(spool.limit_bytes));
        let problem = spool.problem.as_ref().map_or(String::new(), |problem| format!("; they cannot move: {problem}"));
        text.push_str(&format!("\n  spool: {used} of {limit}, {} file(s) to move{problem}", spool.files_waiting));
    }
    if let Some(hint) = &status.hint {
        text.push_str(&format!("\n  fix: {hint}"));
    }
    text
}

/// The numbers of images.
pub fn progress(status: &DetectorStatus) -> String {
    let of = status.images_expected.map_or(String::new(), |n| format!(" of {}", text::count(n)));
    let mut text = format!("{}{of} images", text::count(status.images_committed));
    if let Some(end) = status.images_durable {
        text.push_str(&format!(", {} safe on disk", text::count(end)));
    }
    let planned = [
        ("not written", status.images_unwritten),
        ("not received", status.images_not_received),
        ("not taken", status.images_not_taken),
    ];
    for (name, n) in [("lost", status.images_lost), ("partial", status.images_partial)].into_iter().chain(planned) {
        if n > 0 {
            text.push_str(&format!(", {} {name}", text::count(n)));
        }
    }
    text
}
