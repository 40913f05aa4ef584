//! `konkordia watch`: the events of the service as they happen, and a line with the current state.

use super::args::TargetArgs;
use super::http::Client;
use super::show;
use crate::console;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use konkordia_acquire::handle::{DetectorStatistics, DetectorStatus, ServiceEvent, Severity};
use konkordia_core::failure::{Exit, Failure};
use std::io::{BufRead, BufReader};
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(500);

/// Shows events until Ctrl-C, or until the service ends.
pub fn command(client: &Client, target: &TargetArgs) -> Result<Exit, Failure> {
    let stream = client.open("events", &[])?;
    let (sender, events) = bounded(64);
    std::thread::spawn(move || read(BufReader::new(stream), &sender));
    let mut progress = console::Progress::new(target.json);
    loop {
        match events.recv_timeout(LOOK) {
            Ok(data) => {
                progress.end();
                show_event(&data, target.json);
            }
            Err(RecvTimeoutError::Timeout) if !target.json => progress.update(|| now(client)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                progress.end();
                let what = format!("the service at {} has ended the connection", target.url);
                return Err(Failure::new(
                    Exit::Unreachable,
                    what,
                    "it was stopped, or the network was interrupted",
                    "see whether it runs (`konkordia status`), then watch again",
                ));
            }
        }
    }
}

/// Reads server-sent events, and sends the text of each `data:` line.
fn read(mut stream: impl BufRead, events: &Sender<String>) {
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if let Some(data) = line.strip_prefix("data:")
            && events.send(data.trim().to_string()).is_err()
        {
            return;
        }
        line.clear();
    }
}

fn show_event(data: &str, as_json: bool) {
    if as_json {
        console::to_stdout(data);
        return;
    }
    let Ok(event) = serde_json::from_str::<ServiceEvent>(data) else { return };
    let mark = match event.severity {
        Severity::Error => "error: ",
        Severity::Warning => "warning: ",
        Severity::Info | Severity::Success => "",
    };
    let detector = event.detector.map_or(String::new(), |name| format!("{name}: "));
    console::to_stdout(&format!("{} {detector}{mark}{}", event.time, event.message));
}

/// The current state with its rates.
pub(super) fn now(client: &Client) -> String {
    let Ok(status) = client.get::<DetectorStatus>("status", &[]) else {
        return "no answer; if the service has several detectors, name one: --detector NAME".into();
    };
    let statistics: DetectorStatistics = client.get("statistics", &[]).unwrap_or_default();
    let rate = |name: &str| statistics.rates.get(name).copied().unwrap_or_default();
    let ring = statistics.queues.get("ring").or_else(|| statistics.queues.get("in_flight")).copied().unwrap_or_default();
    format!(
        "{} {}, {}, {:.0} Hz, {:.2} GB/s in, queue {:.0} %",
        status.detector,
        show::state(&status),
        show::progress(&status),
        rate("committed_hz"),
        rate("received_bytes_per_s") / 1e9,
        ring * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_out_of_their_stream() {
        let text = "id: 1\nevent: state\ndata: {\"a\":1}\n\n: still there\n\nevent: log\ndata: {\"b\":2}\n\n";
        let (sender, events) = bounded(8);
        read(text.as_bytes(), &sender);
        drop(sender);
        assert_eq!(events.iter().collect::<Vec<_>>(), ["{\"a\":1}", "{\"b\":2}"]);
    }
}
