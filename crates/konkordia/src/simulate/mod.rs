//! `konkordia simulate`: a detector that sends packets.

pub mod detector;
mod excalibur;
pub mod fault_args;
pub mod feed;
mod frames;
mod link;
mod roce;
pub mod roce_args;
pub mod sample;
pub mod send;
pub mod setup;
pub mod xfel_args;
mod xfel_train;

use crate::choice::DriftChoice;
use crate::cli::{EigerArgs, JungfrauArgs, SendArgs, SimulateDetector};
use crate::{console, detectors};
use detector::{packetiser, wrong};
use feed::Feed;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_core::tile::TileFormat;
use konkordia_sim::eiger::{EigerModel, SyntheticEiger};
use konkordia_sim::fault::{FaultCounts, FaultLink, FaultModel};
use konkordia_sim::jungfrau::{DriftShape, JungfrauModel, SyntheticJungfrau};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};
use konkordia_sim::scene::MODULE_PIXELS;
use link::{address, fault_json, fault_model_of};
use send::{Pace, Senders, Sent};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Images of a synthetic detector without `--images`.
const IMAGES_DEFAULT: u64 = 100;
/// Header bytes that `--corrupt` changes: detector type and version, in which a receiver can notice an error. A
/// receiver cannot notice a wrong frame or packet number that is still possible; on a real network the UDP checksum
/// catches it.
const CORRUPT_HEADER_BYTES: std::ops::Range<usize> = 46..48;

/// `konkordia simulate ...`
pub fn command(detector: &SimulateDetector) -> Result<Exit, Failure> {
    match detector {
        SimulateDetector::Jungfrau(args) => jungfrau_command(&detectors::simulated(args)?),
        SimulateDetector::Eiger(args) => eiger_command(args),
        SimulateDetector::XfelTrain(args) => xfel_train::command(args),
        SimulateDetector::Excalibur(args) => excalibur::command(args),
    }
}

fn jungfrau_command(args: &JungfrauArgs) -> Result<Exit, Failure> {
    let to = address(&args.send.to)?;
    if let Some(folder) = &args.write_calibration {
        return setup::write(args, to, folder);
    }
    let model = synthetic_model(args)?;
    let mut feed = if args.raw.is_empty() {
        prepare_note(&args.send);
        synthetic_feed(args, &model)?
    } else {
        Feed::raw_jungfrau(&args.raw, jungfrau_packetiser(args, &model)?)?
    };
    let images = images(&args.send, &feed, args.raw.is_empty());
    match TileFormat::jungfrau(args.interfaces.into()).filter(|_| args.send.roce.roce) {
        Some(tile) => roce::write(&args.send, to, &mut feed, read_out(tile, &args.send)?, images),
        None => transmit(&args.send, to, &mut feed, images),
    }
}

/// The tile of a detector of which perhaps not all rows are read.
fn read_out(tile: TileFormat, args: &SendArgs) -> Result<TileFormat, Failure> {
    let rows = args.rows.map_or(Some(tile), |rows| tile.with_rows(rows.into()));
    rows.ok_or_else(|| wrong("it cannot read so many rows"))
}

/// The synthetic detector with the options of the command line; all else is as in [`detector::jungfrau`].
fn synthetic_model(args: &JungfrauArgs) -> Result<JungfrauModel, Failure> {
    let s = &args.synthetic;
    if s.drift_adu != 0.0 && args.send.rate_hz() <= 0.0 {
        return Err(wrong("a drift in seconds needs the rate of the images: give --rate"));
    }
    Ok(JungfrauModel {
        drift_adu: s.drift_adu,
        drift_images: (s.drift_s * args.send.rate_hz()).max(1e-6),
        drift_shape: match s.drift_shape {
            DriftChoice::Linear => DriftShape::Linear,
            DriftChoice::Exponential => DriftShape::Exponential,
        },
        storage_cells: s.storage_cells,
        scene: args.sample.scene(args.send.modules),
        ..JungfrauModel::for_modules(args.send.modules as usize)
    })
}

fn jungfrau_packetiser(args: &JungfrauArgs, model: &JungfrauModel) -> Result<Packetiser, Failure> {
    let kind = DetectorKind::Jungfrau { interfaces: args.interfaces };
    let first_frame = args.send.first_frame.unwrap_or(1);
    let plain = packetiser(kind, args.send.modules, model.scene.modules_down, first_frame, args.send.rate_hz())?;
    let mut packets = plain.model().clone();
    packets.rows_read = args.send.rows;
    packets.storage_cells = model.storage_cells;
    packets.daq_info = match (args.synthetic.force_gain, args.synthetic.high_gain) {
        (Some(1), _) => 1 << 12,
        (Some(_), _) => 1 << 13,
        (None, true) => 1,
        (None, false) => 0,
    };
    Packetiser::new(&packets).map_err(|e| wrong(&e.to_string()))
}

fn synthetic_feed(args: &JungfrauArgs, model: &JungfrauModel) -> Result<Feed, Failure> {
    let s = args.synthetic;
    let packetiser = jungfrau_packetiser(args, model)?;
    if s.dark {
        let detector = SyntheticJungfrau::new(model).map_err(|e| wrong(&e.to_string()))?;
        args.sample.write(detector.scene(), args.send.images.unwrap_or(IMAGES_DEFAULT), |_| Vec::new())?;
        let stage = if s.high_gain { 3 } else { s.force_gain.map_or(0, usize::from) };
        return Ok(Feed::generated(packetiser, Box::new(move |image| dark_frame(&detector, image, stage, s.stray))));
    }
    let detector =
        SyntheticJungfrau::new(&JungfrauModel { drift_adu: 0.0, ..model.clone() }).map_err(|e| wrong(&e.to_string()))?;
    // Each image of the loop always belongs to the same storage cell.
    let cells = u64::from(s.storage_cells);
    let distinct = (args.sample.distinct / cells * cells).max(cells);
    let images = args.send.images.unwrap_or(IMAGES_DEFAULT).min(distinct);
    args.sample.write(detector.scene(), images, |image| detector.spots(image))?;
    let feed = Feed::synthetic_jungfrau(&detector, packetiser, images);
    if s.drift_adu == 0.0 {
        return Ok(feed);
    }
    let model = model.clone();
    Ok(feed.drifting(Box::new(move |image| model.drift_adu(image))))
}

/// All modules of a dark frame.
fn dark_frame(detector: &SyntheticJungfrau, image: u64, stage: usize, stray: f64) -> Vec<u16> {
    let mut words = vec![0; detector.pixels()];
    for (module, words) in words.chunks_exact_mut(MODULE_PIXELS).enumerate() {
        detector.dark_into(image, module, stage, words);
        if stray > 0.0 {
            detector.add_stray_photons(image, module, stray, words);
        }
    }
    words
}

fn eiger_command(args: &EigerArgs) -> Result<Exit, Failure> {
    let to = address(&args.send.to)?;
    let mut feed = if args.raw.is_empty() {
        prepare_note(&args.send);
        let scene = args.sample.scene(args.send.modules);
        let kind = DetectorKind::Eiger { bits: args.bits };
        let first_frame = args.send.first_frame.unwrap_or(1);
        let plain = packetiser(kind, args.send.modules, scene.modules_down, first_frame, args.send.rate_hz())?;
        let model = PacketModel { rows_read: args.send.rows, ten_giga: args.ten_giga, ..plain.model().clone() };
        let packetiser = Packetiser::new(&model).map_err(|e| wrong(&e.to_string()))?;
        let images = args.send.images.unwrap_or(IMAGES_DEFAULT).min(args.sample.distinct);
        let detector = SyntheticEiger::new(&EigerModel { scene, bits: args.bits }).map_err(|e| wrong(&e.to_string()))?;
        args.sample.write(detector.scene(), images, |image| detector.spots(image))?;
        Feed::synthetic_eiger(&detector, packetiser, images)
    } else {
        Feed::dump_eiger(&args.raw, args.send.first_frame)?
    };
    let images = images(&args.send, &feed, args.raw.is_empty());
    match TileFormat::eiger(args.bits.into()).filter(|_| args.send.roce.roce) {
        Some(tile) => roce::write(&args.send, to, &mut feed, read_out(tile, &args.send)?, images),
        None => transmit(&args.send, to, &mut feed, images),
    }
}

fn images(args: &SendArgs, feed: &Feed, synthetic: bool) -> u64 {
    args.images.unwrap_or(if synthetic { IMAGES_DEFAULT } else { feed.images() })
}

fn prepare_note(args: &SendArgs) {
    if !args.quiet {
        console::to_stderr(&format!("making synthetic images of {} module(s) ...", args.modules));
    }
}

fn transmit(args: &SendArgs, to: SocketAddr, feed: &mut Feed, images: u64) -> Result<Exit, Failure> {
    let rate_hz = args.rate_hz();
    if !rate_hz.is_finite() || rate_hz < 0.0 {
        return Err(wrong(&format!("a rate cannot be {rate_hz} images per second")));
    }
    if let Some(stream) = args.silent.iter().find(|s| **s >= feed.streams()) {
        return Err(wrong(&format!("there is no stream {stream} to be silent; there are {}, counted from 0", feed.streams())));
    }
    let mut senders = Senders::consecutive(to, feed.streams(), &args.silent)?;
    let expected = images * (feed.streams() * feed.packets_per_tile()) as u64;
    let mut progress = console::Progress::new(args.quiet || args.json);
    let (sent, faults) = if args.has_faults() {
        let mut link = FaultLink::new(&fault_model(args, feed.first_frame));
        let sent = send::send_with_faults(feed, &mut senders, rate_hz, images, &mut link)?;
        (sent, Some(link.log().counts))
    } else {
        let mut before_burst = |sent: &Sent| {
            progress.update(|| format!("sent {} of {} images", text::count(sent.images), text::count(images)));
            true
        };
        (send::send(feed, &mut senders, &Pace::at(rate_hz), 0..images, &mut before_burst)?, None)
    };
    progress.end();
    report(args, feed, &sent, expected, faults);
    Ok(Exit::Complete)
}

fn fault_model(args: &SendArgs, first_frame_number: u64) -> FaultModel {
    FaultModel {
        first_frame_number,
        corrupt_header: args.corrupt,
        header_bytes: CORRUPT_HEADER_BYTES,
        foreign: args.foreign,
        restart_at_image: args.restart_at,
        ..fault_model_of(&args.faults)
    }
}

fn report(args: &SendArgs, feed: &Feed, sent: &Sent, expected: u64, faults: Option<FaultCounts>) {
    let rate = if sent.seconds > 0.0 { sent.images as f64 / sent.seconds } else { 0.0 };
    let gigabytes = sent.bytes as f64 / sent.seconds.max(1e-9) / 1e9;
    if args.json {
        let faults = faults.map_or(Value::Null, |c| fault_json(&c));
        console::json(
            &json!({
                "images": sent.images, "packets_sent": sent.packets, "packets_expected": expected, "bytes_sent": sent.bytes,
                "seconds": sent.seconds, "rate_hz": rate, "gigabytes_per_second": gigabytes, "streams": feed.streams(),
                "packets_per_tile": feed.packets_per_tile(), "first_frame": feed.first_frame, "faults": faults,
            }),
            true,
        );
        return;
    }
    let (images, packets) = (text::count(sent.images), text::count(sent.packets));
    console::to_stdout(&format!(
        "sent {images} images, {packets} packets in {:.2} s: {rate:.1} Hz, {gigabytes:.2} GB/s",
        sent.seconds
    ));
    if let Some(counts) = faults {
        let done: Vec<String> = fault_json(&counts)
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, n)| n.as_u64() > Some(0) && !matches!(name.as_str(), "sent" | "delivered"))
            .map(|(name, n)| format!("{n} {name}"))
            .collect();
        console::to_stdout(&format!("faults: {}", if done.is_empty() { "none".into() } else { done.join(", ") }));
    }
}
