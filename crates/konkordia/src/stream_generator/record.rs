//! `konkordia record`: stores messages as they arrive.

use super::args::{ReceiveKind, RecordArgs};
use super::capture::Recording;
use super::socket_failure;
use crate::console;
use crate::run::signals;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::{Message, MessageSource};
use konkordia_core::text;
use konkordia_sources::zmq::{ZmqKind, ZmqSource, ZmqSourceSpec, context};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait before a check whether the recording should end.
const ATTEMPT: Duration = Duration::from_millis(100);
/// Largest number of messages that are taken from a socket at once, and that wait for the disk.
const BATCH_MESSAGES: usize = 16;
/// Memory of the messages that wait in libzmq, for each socket.
const QUEUE_BYTES: u64 = 64 << 20;

/// A message with its time of arrival and the number of its socket.
type Arrived = Result<(Instant, usize, Message), Failure>;

/// `konkordia record`
pub fn command(args: &RecordArgs) -> Result<Exit, Failure> {
    let interrupted = signals::stop_flag()?;
    let sources = open(args)?;
    let mut recording = Recording::create(&args.output, args.overwrite)?;
    if !args.quiet {
        let names: Vec<String> = sources.iter().map(|source| source.name()).collect();
        console::to_stderr(&format!("recording from {}; Ctrl-C ends it", names.join(", ")));
    }
    let done = Arc::new(AtomicBool::new(false));
    // If the disk is slow, messages wait here, then in libzmq, and then at their sender.
    let (sender, receiver) = crossbeam_channel::bounded(BATCH_MESSAGES);
    let threads: Vec<_> = sources
        .into_iter()
        .enumerate()
        .map(|(upstream, source)| {
            let (sender, done) = (sender.clone(), Arc::clone(&done));
            std::thread::spawn(move || receive(source, upstream, &sender, &done))
        })
        .collect();
    drop(sender);
    let begun = Instant::now();
    let kept = keep(args, &receiver, &mut recording, &interrupted);
    done.store(true, Ordering::Release);
    drop(receiver);
    let flushed = recording.flush();
    for thread in threads {
        let _ = thread.join();
    }
    let messages = kept?;
    flushed?;
    let (bytes, seconds) = (recording.bytes(), begun.elapsed().as_secs_f64());
    let was_interrupted = interrupted.load(Ordering::Acquire);
    if args.json {
        let report = json!({ "messages": messages, "bytes": bytes, "seconds": seconds, "interrupted": was_interrupted, "file": args.output });
        console::json(&report, true);
    } else {
        let (count, size) = (text::count(messages), text::bytes(bytes));
        console::to_stdout(&format!("recorded {count} messages, {size} in {seconds:.2} s, into {}", args.output.display()));
    }
    // Without --messages an interrupt is the normal end.
    Ok(if was_interrupted && args.messages.is_some() { Exit::Interrupted } else { Exit::Complete })
}

fn open(args: &RecordArgs) -> Result<Vec<ZmqSource>, Failure> {
    let context = context(1).map_err(|e| socket_failure(&e))?;
    let kind = match args.kind {
        ReceiveKind::Pull => ZmqKind::Pull,
        ReceiveKind::Sub => ZmqKind::Sub,
    };
    let open = |address: &String| {
        let spec =
            ZmqSourceSpec { bind: args.bind, kind, message_bytes_max: u64::from(u32::MAX), ..ZmqSourceSpec::pull(address) };
        ZmqSource::open(&context, &spec).map_err(|e| socket_failure(&e))
    };
    args.from.iter().map(open).collect()
}

/// Passes on the messages of one socket until the recording ends.
fn receive(mut source: ZmqSource, upstream: usize, to: &Sender<Arrived>, done: &AtomicBool) {
    let mut batch = Vec::new();
    while !done.load(Ordering::Acquire) {
        if let Err(error) = source.receive(ATTEMPT, BATCH_MESSAGES, &mut batch) {
            let _ = to.send(Err(socket_failure(&error)));
            return;
        }
        let now = Instant::now();
        if let Some(largest) = batch.iter().map(Message::bytes).max() {
            source.bound(largest, QUEUE_BYTES);
        }
        for message in batch.drain(..) {
            if to.send(Ok((now, upstream, message))).is_err() {
                return;
            }
        }
    }
}

/// Writes messages until the wanted number or time is reached; returns their number.
fn keep(
    args: &RecordArgs,
    from: &Receiver<Arrived>,
    recording: &mut Recording,
    interrupted: &AtomicBool,
) -> Result<u64, Failure> {
    let begun = Instant::now();
    let end = args.seconds.map(|seconds| begun + Duration::from_secs_f64(seconds));
    let mut progress = console::Progress::new(args.quiet || args.json);
    let mut messages = 0;
    let mut first = None;
    let outcome = loop {
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        if is_over || interrupted.load(Ordering::Acquire) || args.messages == Some(messages) {
            break Ok(());
        }
        let left = end.map_or(ATTEMPT, |end| end.saturating_duration_since(Instant::now()).min(ATTEMPT));
        match from.recv_timeout(left) {
            Ok(arrived) => {
                let written = arrived.and_then(|(at, upstream, message)| {
                    let since = at.saturating_duration_since(*first.get_or_insert(at));
                    recording.write(&message, u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), upstream)
                });
                if let Err(failure) = written {
                    break Err(failure);
                }
                messages += 1;
                progress.update(|| format!("recorded {} messages, {}", text::count(messages), text::bytes(recording.bytes())));
            }
            // A program that reads the file meanwhile finds all messages that have arrived.
            Err(RecvTimeoutError::Timeout) => {
                if let Err(failure) = recording.flush() {
                    break Err(failure);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        }
    };
    progress.end();
    outcome.map(|()| messages)
}
