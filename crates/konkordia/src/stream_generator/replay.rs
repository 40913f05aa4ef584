//! `konkordia replay`: sends the messages of a capture again.

use super::args::{ReplayArgs, SendKind};
use super::capture::Capture;
use super::send::OutputQueues;
use crate::console;
use crate::run::signals;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::text;
use serde_json::json;
use std::time::{Duration, Instant};

/// The latest time of a message, in seconds after the first, so that a damaged time does no harm.
const WAIT_MAX_S: f64 = 1e6;

/// `konkordia replay`
pub fn command(args: &ReplayArgs) -> Result<Exit, Failure> {
    let interrupted = signals::stop_flag()?;
    let (mut upstreams, mut largest) = (args.to.to.len().max(1), 0);
    // The whole capture is read first, for the number of upstreams, the largest message, and damage.
    for captured in Capture::open(&args.file)? {
        let captured = captured.map_err(|e| broken(&e))?;
        upstreams = upstreams.max((captured.upstream + 1).min(64));
        largest = largest.max(captured.timed.message.bytes());
    }
    let mut output_queues = OutputQueues::open(&args.to, SendKind::Push, upstreams, largest, interrupted)?;
    if !args.quiet {
        console::to_stderr(&format!("sending {} by {}", args.file.display(), output_queues.names().join(", ")));
    }
    let mut is_whole = output_queues.wait_for_receivers()?;
    let mut progress = console::Progress::new(args.quiet || args.json);
    let begun = Instant::now();
    for _ in 0..args.repeat {
        is_whole = is_whole && once(args, &mut output_queues, &mut progress)?;
    }
    progress.end();
    let (seconds, total) = (begun.elapsed().as_secs_f64(), output_queues.total);
    let names = output_queues.names();
    // Waits until the last messages have been sent.
    drop(output_queues);
    if args.json {
        let report = json!({
            "messages": total.messages, "bytes": total.bytes, "seconds": seconds, "upstreams": names, "interrupted": !is_whole,
        });
        console::json(&report, true);
    } else {
        let (count, bytes) = (text::count(total.messages), text::bytes(total.bytes));
        console::to_stdout(&format!("sent {count} messages, {bytes} in {seconds:.2} s"));
    }
    Ok(if is_whole { Exit::Complete } else { Exit::Interrupted })
}

fn broken(error: &std::io::Error) -> Failure {
    let fix = "the capture was cut or damaged; record it again";
    Failure::new(Exit::Incomplete, "the capture cannot be read to its end", reason(error), fix)
}

/// Sends the whole capture; false if interrupted.
fn once(args: &ReplayArgs, output_queues: &mut OutputQueues, progress: &mut console::Progress) -> Result<bool, Failure> {
    let begun = Instant::now();
    let mut first_ns = None;
    for captured in Capture::open(&args.file)? {
        let captured = captured.map_err(|e| broken(&e))?;
        if let Some(time_ns) = captured.timed.time_ns
            && !args.as_fast_as_possible
            && args.speed > 0.0
        {
            let since_ns = time_ns.saturating_sub(*first_ns.get_or_insert(time_ns));
            let wait_s = (since_ns as f64 / 1e9 / args.speed).min(WAIT_MAX_S);
            if !output_queues.sleep_until(begun + Duration::from_secs_f64(wait_s)) {
                return Ok(false);
            }
        }
        let upstream = captured.upstream.min(output_queues.count() - 1);
        if !output_queues.send_message(upstream, &captured.timed.message)? {
            return Ok(false);
        }
        let sent = output_queues.total.messages;
        progress.update(|| format!("sent {} messages", text::count(sent)));
    }
    Ok(true)
}
