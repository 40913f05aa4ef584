//! `konkordia simulate excalibur`: FEMs that send random counts of 12 bits.

use super::detector::wrong;
use super::frames::{Pace, send};
use super::link::{address, fault_json, fault_model_of};
use super::send::{Senders, Sent};
use crate::cli::ExcaliburArgs;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sim::excalibur::{ExcaliburModel, FRAME_PACKETS};
use konkordia_sim::fault::{FaultCounts, FaultLink};
use serde_json::json;

/// Sends the frames.
pub fn command(args: &ExcaliburArgs) -> Result<Exit, Failure> {
    if !args.rate.is_finite() || args.rate < 0.0 {
        return Err(wrong(&format!("a rate cannot be {} images per second", args.rate)));
    }
    let model = ExcaliburModel { fems: args.fems as usize, first_frame: args.first_frame, seed: args.faults.seed };
    let mut senders = Senders::consecutive(address(&args.to)?, model.fems, &[])?;
    let mut link = FaultLink::new(&fault_model_of(&args.faults));
    let pace = Pace { frames: args.images, rate_hz: args.rate, name: "images", is_quiet: args.quiet || args.json };
    let sent = send(&pace, model.fems, &mut senders, &mut link, |fem, frame| model.datagrams(fem, frame))?;
    report(args, &model, &sent, &link.log().counts);
    Ok(Exit::Complete)
}

fn report(args: &ExcaliburArgs, model: &ExcaliburModel, sent: &Sent, faults: &FaultCounts) {
    let expected = sent.images * (model.fems * FRAME_PACKETS) as u64;
    let rate = if sent.seconds > 0.0 { sent.images as f64 / sent.seconds } else { 0.0 };
    if args.json {
        let value = json!({
            "images": sent.images, "packets_sent": sent.packets, "packets_expected": expected, "bytes_sent": sent.bytes,
            "seconds": sent.seconds, "rate_hz": rate, "streams": model.fems, "packets_per_tile": FRAME_PACKETS,
            "first_frame": model.first_frame, "faults": fault_json(faults),
        });
        return console::json(&value, true);
    }
    let (images, packets) = (text::count(sent.images), text::count(sent.packets));
    console::to_stdout(&format!("sent {images} images, {packets} packets in {:.2} s: {rate:.1} Hz", sent.seconds));
    if sent.packets != expected {
        console::to_stdout(&format!(
            "{} packets were to be sent; the others fell victim to the faults asked for",
            text::count(expected)
        ));
    }
}
