//! `konkordia simulate excalibur`: FEMs that send random counts of 12 bits.

use super::detector::wrong;
use super::frames::{Pace, report, send};
use super::link::{address, fault_model_of};
use super::send::Senders;
use crate::cli::ExcaliburArgs;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sim::excalibur::{ExcaliburModel, FRAME_PACKETS};
use konkordia_sim::fault::FaultLink;

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
    let own = [("first_frame", u64::from(model.first_frame))];
    report(&pace, (model.fems, FRAME_PACKETS), &sent, &link.log().counts, args.json.then_some(&own[..]));
    Ok(Exit::Complete)
}
