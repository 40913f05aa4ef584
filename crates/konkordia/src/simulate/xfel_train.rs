//! `konkordia simulate xfel-train`: modules of European XFEL that send trains of random images.

use super::detector::wrong;
use super::frames::{Pace, report, send};
use super::link::{address, fault_model_of};
use super::send::Senders;
use super::xfel_args::XfelTrainArgs;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::tile::XfelDetector;
use konkordia_sim::fault::FaultLink;
use konkordia_sim::xfel_train::TrainModel;

/// Most images of a train; `konkordia receive` and `serve` take fewer (docs/configuration.md), `trains` takes all.
const IMAGES_MAX: u32 = 1024;

/// Sends the trains.
pub fn command(args: &XfelTrainArgs) -> Result<Exit, Failure> {
    if !args.rate.is_finite() || args.rate < 0.0 {
        return Err(wrong(&format!("a rate cannot be {} trains per second", args.rate)));
    }
    let model = model(args)?;
    let mut senders = Senders::consecutive(address(&args.to)?, model.modules, &[])?;
    let mut link = FaultLink::new(&fault_model_of(&args.faults));
    let pace = Pace { frames: args.trains, rate_hz: args.rate, name: "trains", is_quiet: args.quiet || args.json };
    let sent = send(&pace, model.modules, &mut senders, &mut link, |module, train| model.datagrams(module, train))?;
    let own = [("first_frame", u64::from(model.first_frame)), ("first_train_id", model.first_train_id)];
    report(&pace, (model.modules, model.packets()), &sent, &link.log().counts, args.json.then_some(&own[..]));
    Ok(Exit::Complete)
}

fn model(args: &XfelTrainArgs) -> Result<TrainModel, Failure> {
    let detector = XfelDetector::ALL.into_iter().find(|known| known.name() == args.model);
    let detector = detector.ok_or_else(|| wrong("its model is not lpd, dssc or agipd"))?;
    if !(1..=IMAGES_MAX).contains(&args.images_per_train) {
        return Err(wrong(&format!("a train has 1 to {IMAGES_MAX} images, not {}", args.images_per_train)));
    }
    let (rows, columns) = detector.image_size();
    Ok(TrainModel {
        image_pixels: (rows * columns) as usize,
        specific_bytes: detector.specific_bytes() as usize,
        first_frame: args.first_frame,
        seed: args.faults.seed,
        ..TrainModel::lpd(args.images_per_train as usize, args.modules as usize)
    })
}
