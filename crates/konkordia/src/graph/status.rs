//! The states of the processes of a graph, as files of a folder.

use super::python::Counts;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::consumer::Consumer;
use konkordia_graph::file::Graph;
use konkordia_graph::producer::Producer;
use serde_json::{Value, json};
use std::path::Path;

/// Largest state of a process, in bytes.
const STATE_BYTES_MAX: u64 = 1 << 20;

/// What is known of the beginning of an edge.
pub fn edge<P: Clone>(rules: &Producer<P>) -> Value {
    let account = rules.account();
    json!({
        "to": rules.stage(),
        "waiting": rules.waiting(),
        "members": rules.members(),
        "account": {
            "produced": account.produced, "done": account.done, "given_up": account.given_up, "open": account.open,
            "sent_again": account.sent_again, "refused": account.refused, "late": account.late,
            "dropped": account.dropped, "deaths": account.deaths, "hangs": account.hangs, "missed": account.missed,
            "recoveries": account.recoveries, "recovery_ms_max": account.recovery_ms_max,
            "recovery_ms_sum": account.recovery_ms_sum,
        },
        "imbalance": account.imbalance(),
        "given_up": rules.reason().map(|(image, why)| json!({ "image": image, "why": why })),
    })
}

/// What is known of a process.
pub fn process(
    member: &str,
    stage: &str,
    state: &str,
    input: Option<&Consumer>,
    edges: Vec<Value>,
    counts: Option<Counts>,
    refused: Option<&str>,
) -> Value {
    let input = input.map(|rules| {
        let taken = rules.account();
        json!({
            "taken": taken.taken, "done": taken.done, "refused": taken.refused, "doubled": taken.doubled,
            "dropped": taken.dropped, "open": rules.open(), "imbalance": rules.imbalance(),
        })
    });
    let function = counts.map(|counts| json!({ "restarts": counts.restarts, "hangs": counts.hangs }));
    json!({
        "member": member, "stage": stage, "state": state, "pid": std::process::id(), "input": input, "edges": edges,
        "function": function, "last_refusal": refused,
    })
}

/// Writes a state; who reads it sees the old one or the new one.
///
/// # Errors
/// The folder cannot be written.
pub fn write(path: &Path, value: &Value) -> Result<(), Failure> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, value.to_string()).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| Failure::io("cannot write", path, &error))
}

/// The states of the processes of a graph; null where there is none.
pub fn read(graph: &Graph, folder: &Path) -> Vec<(String, Value)> {
    let state = |member: String| {
        let path = folder.join(format!("{member}.json"));
        let is_small = std::fs::metadata(&path).is_ok_and(|facts| facts.len() <= STATE_BYTES_MAX);
        let text = if is_small { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        (member, serde_json::from_str(&text).unwrap_or(Value::Null))
    };
    graph.stages.iter().flat_map(|stage| stage.members().collect::<Vec<_>>()).map(state).collect()
}

/// A table of the states.
pub fn table(states: &[(String, Value)]) -> String {
    let mut lines = vec![format!(
        "{:<16} {:<9} {:>9} {:>9} {:>7} {:>8} {:>7}",
        "process", "state", "taken", "done", "open", "doubled", "refused"
    )];
    for (member, value) in states {
        let input = &value["input"];
        let number = |name: &str| input[name].as_u64().map_or_else(|| "-".into(), |number| number.to_string());
        let state = value["state"].as_str().unwrap_or("absent");
        let columns = ["taken", "done", "open", "doubled", "refused"].map(number);
        let [taken, done, open, doubled, refused] = columns;
        lines.push(format!("{member:<16} {state:<9} {taken:>9} {done:>9} {open:>7} {doubled:>8} {refused:>7}"));
    }
    for (member, value) in states {
        for edge in value["edges"].as_array().into_iter().flatten() {
            let number = |name: &str| edge["account"][name].as_u64().unwrap_or(0);
            lines.push(format!(
                "{member} -> {}: {} produced = {} done + {} given up + {} open; {} sent again, {} deaths, {} hangs",
                edge["to"].as_str().unwrap_or("?"),
                number("produced"),
                number("done"),
                number("given_up"),
                number("open"),
                number("sent_again"),
                number("deaths"),
                number("hangs"),
            ));
            if number("missed") > 0 {
                lines.push(format!("  {} images of the broadcast were missed by a process that died", number("missed")));
            }
            if number("recoveries") > 0 {
                let mean_ms = number("recovery_ms_sum") / number("recoveries");
                let (times, most_ms) = (number("recoveries"), number("recovery_ms_max"));
                lines.push(format!(
                    "  after {times} losses of a process others had all its images: in {mean_ms} ms on average, {most_ms} ms at most"
                ));
            }
            if let Some(why) = edge["given_up"]["why"].as_str() {
                lines.push(format!("  image {} was given up: {why}", edge["given_up"]["image"]));
            }
        }
        if let Some(why) = value["discovery"].as_str() {
            lines.push(format!("{member}: {why}; what runs goes on with the processes that are known"));
        }
        if let Some(why) = value["last_refusal"].as_str() {
            lines.push(format!("{member}: {why}"));
        }
    }
    lines.join("\n")
}

/// The states of a graph that runs or has run.
///
/// # Errors
/// There is no such graph.
pub fn states(graph: &Graph, folder: &Path) -> Result<Vec<(String, Value)>, Failure> {
    if !folder.is_dir() {
        let what = format!("there is no state of a graph in {}", folder.display());
        return Err(Failure::new(Exit::State, what, "no such folder", "start it with `konkordia graph run`, or give --folder"));
    }
    Ok(read(graph, folder))
}

/// `konkordia graph status`
pub fn command(graph: &Graph, folder: &Path, as_json: bool) -> Result<Exit, Failure> {
    let states = states(graph, folder)?;
    if as_json {
        let states: Vec<Value> = states.into_iter().map(|(member, value)| json!({ "member": member, "status": value })).collect();
        console::json(&json!({ "processes": states }), false);
    } else {
        console::to_stdout(&table(&states));
    }
    Ok(Exit::Complete)
}
