//! The report of a run: what became of each message and each part, and who was absent.

use super::arrived::Received;
use super::output::Outputs;
use super::run::{Ended, Outcome};
use konkordia_core::failure::Exit;
use konkordia_core::text::count;
use konkordia_join::account::SourceAccount;
use konkordia_join::file::JoinFile;
use konkordia_join::ranges::Noted;
use konkordia_sinks::hdf5::joined_table::JoinedAccount;
use serde_json::{Map, Value, json};

/// What the table says at its end.
pub fn account(outcome: &Outcome) -> JoinedAccount {
    let named = |rows: &[(&str, u64)]| rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>();
    let sources = outcome.join.sources();
    let of_source = |source: &SourceAccount| [named(&source.rows()), vec![("absent".to_owned(), source.absent)]].concat();
    let files = (0..sources.len()).map(|n| outcome.streams.get(n).map_or_else(Vec::new, |stream| stream.files.clone()));
    JoinedAccount {
        numbers: named(&outcome.join.numbers().rows()),
        sources: sources.iter().map(of_source).collect(),
        files: files.collect(),
        ended: outcome.ended.name().into(),
    }
}

/// The sums that do not hold.
pub fn imbalances(file: &JoinFile, outcome: &Outcome) -> Vec<String> {
    let sources = file.names().zip(outcome.join.sources());
    let mut found: Vec<String> = sources.filter_map(|(name, source)| source.imbalance(name)).collect();
    for socket in outcome.received.iter().filter(|socket| socket.accounted() != socket.messages) {
        found.push(format!(
            "{} messages came at {}, but {} are accounted for (a bug)",
            socket.messages,
            socket.address,
            socket.accounted()
        ));
    }
    found
}

/// How the program ends.
pub fn exit(file: &JoinFile, outcome: &Outcome) -> Exit {
    let numbers = outcome.join.numbers();
    let is_lost = |source: &SourceAccount| source.late + source.doubled + source.other_series > 0;
    let is_odd = |socket: &Received| socket.malformed + socket.unknown + socket.unnumbered + socket.disconnected > 0;
    let Outputs { messages, table, .. } = &outcome.outputs;
    let is_unsent = messages.as_ref().is_some_and(|messages| messages.full + messages.nobody > 0);
    let has_failed = messages.as_ref().is_some_and(|messages| messages.failed.is_some())
        || table.as_ref().is_some_and(|table| table.failure.is_some())
        || outcome.received.iter().any(|socket| socket.failed.is_some());
    let is_incomplete = numbers.incomplete() > 0 || numbers.complete == 0 || is_unsent;
    let is_incomplete = is_incomplete || outcome.join.sources().iter().any(is_lost) || outcome.received.iter().any(is_odd);
    match (imbalances(file, outcome).is_empty(), has_failed, is_incomplete) {
        (false, ..) => Exit::Bug,
        (_, true, _) => Exit::Io,
        (.., true) => Exit::Incomplete,
        _ => Exit::Complete,
    }
}

/// The report for programs.
pub fn to_json(file: &JoinFile, outcome: &Outcome) -> Value {
    let mut sources = Map::new();
    for (n, (name, source)) in file.names().zip(outcome.join.sources()).enumerate() {
        let mut one = object(&source.rows());
        one["absent"] = json!(source.absent);
        one["backwards"] = json!(source.backwards);
        one["alone_at"] = noted(&source.alone_at);
        one["absent_at"] = noted(&source.absent_at);
        if let Some(stream) = outcome.streams.get(n) {
            one["series"] = json!(stream.series);
            one["files"] = json!(stream.files);
        }
        sources.insert(name.to_owned(), one);
    }
    let sockets = outcome.received.iter().map(|socket| {
        json!({
            "address": socket.address, "messages": socket.messages, "parts": socket.parts, "control": socket.control,
            "unnumbered": socket.unnumbered, "unknown": socket.unknown, "malformed": socket.malformed,
            "disconnected": socket.disconnected, "refused_connections": socket.refused, "first_problem": socket.first_problem,
            "failed": socket.failed,
        })
    });
    let Outputs { messages, table, .. } = &outcome.outputs;
    json!({
        "event": "join_ended", "ended": outcome.ended.name(), "seconds": outcome.seconds,
        "balances": imbalances(file, outcome).is_empty(), "numbers": object(&outcome.join.numbers().rows()),
        "handed_on": outcome.outputs.rows(), "sources": sources, "sockets": sockets.collect::<Vec<_>>(),
        "memory_bytes_most": outcome.join.bytes_most(), "ranges_forgotten": outcome.join.forgotten(),
        "output": messages.as_ref().map(|messages| json!({
            "sent": messages.sent, "full": messages.full, "nobody": messages.nobody, "failed": messages.failed,
        })),
        "table": table.as_ref().map(|table| json!({
            "file": table.path, "rows": table.rows, "unwritten": table.unwritten, "numbers_refused": table.refused,
            "failed": table.failure.as_ref().map(konkordia_core::failure::Failure::detail),
        })),
    })
}

fn object(rows: &[(&str, u64)]) -> Value {
    rows.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect()
}

fn noted(noted: &Noted) -> Value {
    let (first, last) = noted.ends.unzip();
    json!({ "count": noted.count, "first": first, "last": last, "ranges": noted.ranges, "has_more": noted.has_more })
}

/// The report for people.
pub fn to_text(file: &JoinFile, outcome: &Outcome) -> String {
    let numbers = outcome.join.numbers();
    let all = numbers.complete + numbers.incomplete();
    let mut lines =
        vec![format!("{} of {} triggers are complete ({})", count(numbers.complete), count(all), ended(outcome.ended))];
    let mut line = |n: u64, what: &str| {
        if n > 0 {
            lines.push(format!("  {} {what}", count(n)));
        }
    };
    line(numbers.timed_out, &format!("incomplete after {} ms", file.timeout_ms));
    line(numbers.pushed_out, &format!("incomplete, because {} MiB were full (memory_mib)", file.memory_mib));
    line(numbers.at_end, "incomplete at the end");
    line(numbers.dropped, "of the incomplete ones were not handed on (incomplete = \"drop\")");
    for (name, source) in file.names().zip(outcome.join.sources()) {
        lines.push(source_line(name, source));
        if source.absent > 0 {
            lines.push(format!("  absent at {}", ranges(&source.absent_at)));
        }
        if source.other_series > 0 {
            lines.push("  its numbers begin anew in each series: start a join for each, or give a key that goes on".into());
        }
        if source.doubled > 0 && source.backwards > 0 {
            lines.push(format!("  its numbers went back {} times", count(source.backwards)));
        }
    }
    outcome.received.iter().filter_map(socket_line).for_each(|line| lines.push(line));
    lines.extend(output_lines(&outcome.outputs));
    lines.extend(imbalances(file, outcome));
    lines.join("\n")
}

fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Finished => "all required streams have ended",
        Ended::Stopped => "stopped",
        Ended::Stalled => "nothing came any more",
        Ended::Failed => "all sockets failed",
    }
}

fn source_line(name: &str, source: &SourceAccount) -> String {
    let mut line = format!("{name}: {} of {} parts joined", count(source.joined), count(source.received));
    let rows = [
        (source.alone, "alone"),
        (source.pushed_out, "pushed out alone"),
        (source.late, "late"),
        (source.doubled, "doubled"),
        (source.other_series, "of a further series"),
        (source.absent, "times absent"),
    ];
    for (n, what) in rows.into_iter().filter(|(n, _)| *n > 0) {
        line += &format!(", {} {what}", count(n));
    }
    line
}

/// The first ranges of a list, in words.
fn ranges(noted: &Noted) -> String {
    let name = |(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let named: Vec<String> = noted.ranges.iter().map(name).collect();
    let more = noted.ends.filter(|_| noted.has_more).map_or_else(String::new, |(_, last)| format!(", ... {last}"));
    named.join(", ") + &more
}

/// What was wrong at a socket.
fn socket_line(socket: &Received) -> Option<String> {
    let rows = [
        (socket.malformed, "cannot be read"),
        (socket.unnumbered, "without a trigger number"),
        (socket.unknown, "of a device that is not configured"),
        (socket.disconnected, "senders disconnected"),
        (socket.refused, "connections refused"),
    ];
    let said: Vec<String> = rows.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(n))).collect();
    let failed = socket.failed.as_ref().map(|why| format!("failed: {why}"));
    let said: Vec<String> = said.into_iter().chain(failed).collect();
    let first = socket.first_problem.as_ref().map_or_else(String::new, |why| format!("\n  the first one: {why}"));
    (!said.is_empty()).then(|| format!("{}: of {} messages {}{first}", socket.address, count(socket.messages), said.join(", ")))
}

fn output_lines(outputs: &Outputs) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(messages) = &outputs.messages {
        let mut line = format!("joined messages: {} sent", count(messages.sent));
        for (n, what) in [(messages.full, "no receiver had room for"), (messages.nobody, "no receiver was there for")] {
            if n > 0 {
                line += &format!(", {} {what}", count(n));
            }
        }
        lines.push(line);
        lines.extend(messages.failed.as_ref().map(|why| format!("  the socket failed: {why}")));
    }
    if let Some(table) = &outputs.table {
        let unwritten = if table.unwritten > 0 { format!(", {} not written", count(table.unwritten)) } else { String::new() };
        lines.push(format!("{}: {} rows{unwritten}", table.path.display(), count(table.rows)));
        if table.refused > 0 {
            lines.push(format!("  {} numbers have no column, because a device has more than 256 names", count(table.refused)));
        }
        lines.extend(table.failure.as_ref().map(ToString::to_string));
    }
    lines
}
