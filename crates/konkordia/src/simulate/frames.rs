//! Sends frames whose datagrams are made one frame at a time: those of detectors that are not of PSI.

use super::link::fault_json;
use super::send::{Senders, Sent, failed, wait_until};
use crate::console;
use konkordia_core::failure::Failure;
use konkordia_core::text;
use konkordia_sim::fault::{Datagram, FaultCounts, FaultLink};
use serde_json::json;
use std::time::Instant;

/// The packets of a frame are spread over this part of its period.
const SPREAD: f64 = 0.8;

/// How many frames, and how fast.
pub struct Pace {
    /// Frames to send.
    pub frames: u64,
    /// Frames per second, 0 = as fast as possible.
    pub rate_hz: f64,
    /// What frames of this detector are called.
    pub name: &'static str,
    /// No progress line.
    pub is_quiet: bool,
}

/// Sends frames of `streams` streams, which take turns packet by packet, as on a real network. `datagrams` makes those
/// of a stream and frame; all frames have as many.
pub fn send(
    pace: &Pace,
    streams: usize,
    senders: &mut Senders,
    link: &mut FaultLink,
    mut datagrams: impl FnMut(usize, u64) -> Vec<Vec<u8>>,
) -> Result<Sent, Failure> {
    let period = if pace.rate_hz > 0.0 { 1.0 / pace.rate_hz } else { 0.0 };
    let start = Instant::now();
    let (mut sent, mut error) = (Sent::default(), None);
    let mut deliver = |datagram: Datagram<'_>| {
        sent.packets += 1;
        sent.bytes += datagram.bytes.len() as u64;
        if let Err(e) = senders.send(datagram.stream, datagram.bytes) {
            error.get_or_insert(e);
        }
    };
    let mut progress = console::Progress::new(pace.is_quiet);
    for frame in 0..pace.frames {
        progress.update(|| format!("sent {} of {} {}", text::count(frame), text::count(pace.frames), pace.name));
        let tiles: Vec<_> = (0..streams).map(|stream| datagrams(stream, frame)).collect();
        let packets = tiles.iter().map(Vec::len).max().unwrap_or(0);
        for packet in 0..packets {
            wait_until(start, (frame as f64 + SPREAD * packet as f64 / packets as f64) * period);
            for (stream, datagrams) in tiles.iter().enumerate() {
                link.push(Datagram { stream, bytes: &datagrams[packet], is_other_sender: false }, &mut deliver);
            }
        }
    }
    link.flush(&mut deliver);
    progress.end();
    match error {
        Some(e) => Err(failed(&e)),
        None => Ok(Sent { images: pace.frames, seconds: start.elapsed().as_secs_f64(), ..sent }),
    }
}

/// Prints what was sent, on so many streams with so many packets per frame. `own`: as JSON, with these numbers beside
/// those that all have.
pub fn report(pace: &Pace, (streams, packets): (usize, usize), sent: &Sent, faults: &FaultCounts, own: Option<&[(&str, u64)]>) {
    let expected = sent.images * (streams * packets) as u64;
    let rate = if sent.seconds > 0.0 { sent.images as f64 / sent.seconds } else { 0.0 };
    if let Some(own) = own {
        let mut value = json!({
            "images": sent.images, "packets_sent": sent.packets, "packets_expected": expected, "bytes_sent": sent.bytes,
            "seconds": sent.seconds, "rate_hz": rate, "streams": streams, "packets_per_tile": packets,
        });
        for (name, number) in own {
            value[*name] = json!(number);
        }
        value["faults"] = fault_json(faults);
        return console::json(&value, true);
    }
    let (frames, sent_packets) = (text::count(sent.images), text::count(sent.packets));
    console::to_stdout(&format!("sent {frames} {}, {sent_packets} packets in {:.2} s: {rate:.1} Hz", pace.name, sent.seconds));
    if sent.packets != expected {
        console::to_stdout(&format!(
            "{} packets were to be sent; the others fell victim to the faults asked for",
            text::count(expected)
        ));
    }
}
