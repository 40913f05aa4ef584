//! The verbs that talk to a running service over HTTP: `status`, `watch`, `arm`, `start`, `trigger`, `stop`, `close`,
//! `cancel`, `wait`, `drain`.

pub mod args;
mod drain;
pub mod http;
pub mod list;
mod show;
pub mod tls;
mod watch;

use crate::console;
pub use drain::drain;

use args::{ArmArgs, TargetArgs, WaitArgs};
use http::Client;
use konkordia_acquire::handle::{ArmRequest, DetectorState, DetectorStatus, Severity};
use konkordia_core::failure::{Exit, Failure};
use list::Detectors;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Longest wait that the client asks for in one request, in seconds; for more it asks again. The service allows 600.
const WAIT_S_MAX: f64 = 300.0;

/// The same while progress is shown to people.
const LOOK_S: f64 = 0.5;

/// The answer of the service after waiting.
#[derive(Debug, Deserialize)]
pub struct Waited {
    /// Nothing is armed or running any more, or another run has begun.
    pub done: bool,
    /// The state at that moment.
    pub status: DetectorStatus,
}

/// `konkordia status`
pub fn status(target: &TargetArgs) -> Result<Exit, Failure> {
    let client = Client::new(target)?;
    let list = match &target.detector {
        Some(_) => vec![client.get::<DetectorStatus>("status", &[])?],
        None => client.get::<Detectors>("detectors", &[])?.detectors,
    };
    if target.json {
        console::json(&json!(list), false);
    } else {
        list.iter().for_each(|status| console::to_stdout(&show::line(status)));
    }
    Ok(if list.iter().any(|status| status.state == DetectorState::Error) { Exit::State } else { Exit::Complete })
}

/// `konkordia watch`
pub fn watch(target: &TargetArgs) -> Result<Exit, Failure> {
    watch::command(&Client::new(target)?, target)
}

/// `konkordia arm`
pub fn arm(args: &ArmArgs) -> Result<Exit, Failure> {
    begin("arm", args)
}

/// `konkordia start`
pub fn start(args: &ArmArgs) -> Result<Exit, Failure> {
    begin("start", args)
}

fn begin(verb: &str, args: &ArmArgs) -> Result<Exit, Failure> {
    let request = ArmRequest {
        images: args.images,
        prefix: args.prefix.clone(),
        write: args.no_write.then_some(false),
        metadata: metadata(&args.set)?,
        append: args.append,
    };
    let client = Client::new(&args.target)?;
    let status: DetectorStatus = client.post(verb, &json!(request))?;
    print(&status, args.target.json && !args.wait);
    if args.wait { wait_for(&client, args.timeout, args.target.json) } else { Ok(Exit::Complete) }
}

/// `NAME=VALUE` as a map: numbers, lists of numbers, true and false keep their type, everything else is text.
fn metadata(set: &[String]) -> Result<Map<String, Value>, Failure> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("--set {text}"),
                "it has no '='",
                "write --set NAME=VALUE, for example --set energy_kev=12.4",
            )
        })?;
        let read = serde_json::from_str(value).ok().filter(|value| match value {
            Value::Array(list) => list.iter().all(Value::is_number),
            value => value.is_number() || value.is_boolean(),
        });
        Ok((name.trim().to_string(), read.unwrap_or_else(|| Value::String(value.into()))))
    };
    set.iter().map(pair).collect()
}

/// `konkordia trigger`
pub fn trigger(target: &TargetArgs) -> Result<Exit, Failure> {
    plain("trigger", target)
}

/// `konkordia stop`
pub fn stop(target: &TargetArgs) -> Result<Exit, Failure> {
    plain("stop", target)
}

/// `konkordia close`
pub fn close(target: &TargetArgs) -> Result<Exit, Failure> {
    plain("close", target)
}

/// `konkordia cancel`
pub fn cancel(target: &TargetArgs) -> Result<Exit, Failure> {
    plain("cancel", target)
}

fn plain(verb: &str, target: &TargetArgs) -> Result<Exit, Failure> {
    let status: DetectorStatus = Client::new(target)?.post(verb, &json!({}))?;
    print(&status, target.json);
    Ok(Exit::Complete)
}

fn print(status: &DetectorStatus, as_json: bool) {
    if as_json {
        console::json(&json!(status), false);
    } else {
        console::to_stderr(&show::line(status));
    }
}

/// `konkordia wait`
pub fn wait(args: &WaitArgs) -> Result<Exit, Failure> {
    wait_for(&Client::new(&args.target)?, args.timeout, args.target.json)
}

/// Waits until nothing is armed or running, and shows people the progress. The exit code says how the run ended.
fn wait_for(client: &Client, timeout: Option<f64>, as_json: bool) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let mut progress = console::Progress::new(as_json);
    let longest_look = if as_json { WAIT_S_MAX } else { LOOK_S };
    loop {
        let left = timeout.map_or(longest_look, |longest| (longest - begun.elapsed().as_secs_f64()).clamp(0.0, longest_look));
        let patience = Duration::from_secs_f64(left + 10.0);
        let waited: Waited = client.get_within("wait", &[("timeout_s", &left.to_string())], patience)?;
        if waited.done {
            progress.end();
            if as_json {
                console::json(&json!(waited.status), false);
            } else {
                console::to_stdout(&show::line(&waited.status));
            }
            return Ok(exit_of(&waited.status));
        }
        if timeout.is_some_and(|longest| begun.elapsed().as_secs_f64() >= longest) {
            progress.end();
            let what = format!("'{}' is still {}", waited.status.detector, show::state(&waited.status));
            let why = waited.status.message.clone();
            return Err(Failure::new(Exit::Timeout, what, why, "wait for longer (--timeout), or stop the run"));
        }
        progress.update(|| watch::now(client));
    }
}

/// The exit code for the way in which the last run ended.
fn exit_of(status: &DetectorStatus) -> Exit {
    match (status.state, status.severity) {
        (DetectorState::Error, _) | (_, Severity::Error) => Exit::Io,
        (_, Severity::Warning) if status.ended.as_deref() == Some("no data") => Exit::Timeout,
        (_, Severity::Warning) => Exit::Incomplete,
        _ => Exit::Complete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_on_the_command_line_are_numbers_or_text() {
        let set = |text: &str| metadata(&[text.to_string()]);
        assert_eq!(set("energy_kev=12.4").unwrap()["energy_kev"], json!(12.4));
        assert_eq!(set("sample_name=a=b").unwrap()["sample_name"], json!("a=b"));
        assert_eq!(set("serial_number=NaN").unwrap()["serial_number"], json!("NaN"));
        assert!(set("energy_kev").unwrap_err().fix.contains("NAME=VALUE"));
    }
}
