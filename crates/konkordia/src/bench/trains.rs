//! `konkordia bench trains`: how fast one core builds trains, from datagrams in memory to trains of all modules with
//! their pixels in the order of the image: the rules that `konkordia trains` runs, without sockets and outputs. Every
//! pixel of the last train is compared with what was sent, in the order of a plain walk over the wire.

use super::args::BenchTrainsArgs;
use super::output::Output;
use super::spread::Spread;
use crate::console::Progress;
use crate::trains::detector_of;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_core::tile::XfelDetector;
use konkordia_fabric::trains::{Builder, BuilderSpec, BuiltTrain, Channel, TrainSpec};
use konkordia_sim::xfel_train::TrainModel;
use serde_json::{Value, json};
use std::time::Instant;

/// What others report.
const OTHERS: &str = "calng (European XFEL): 80 to 130 ms for the corrections of a train of 4 modules on the processor. It does other work: it corrects pixels \
                      that were built before, this bench builds them and corrects nothing";
/// Trains a second of European XFEL.
const TRAINS_HZ: f64 = 10.0;

/// One detector.
struct Row {
    model: &'static str,
    images: usize,
    modules: usize,
    bytes: usize,
    /// Milliseconds of a train of all modules, on one core.
    ms: Spread,
    /// Of these, the part that brings pixels into order.
    order_ms: Spread,
    verified: bool,
}

/// `konkordia bench trains`
pub fn command(args: &BenchTrainsArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "trains")?;
    let (images, repeats) = if args.quick { (2, 2) } else { (args.images, args.repeats.max(1)) };
    let mut progress = Progress::new(args.output.json);
    let mut rows = Vec::new();
    for model in ["lpd", "dssc", "agipd"] {
        progress.update(|| format!("{model}, {images} images, {} modules", args.modules));
        rows.push(measure(model, images, args.modules, repeats));
    }
    progress.end();
    let verified = rows.iter().all(|row| row.verified);
    let report = json!({
        "bench": "trains", "machine": machine::facts(), "repeats": repeats, "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        "others": OTHERS, "verified": verified,
    });
    output.print(report, &to_text(&rows));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

fn measure(model: &'static str, images: usize, modules: usize, repeats: usize) -> Row {
    let detector = detector_of(model);
    let spec = TrainSpec { detector, images_max: images };
    let sent = TrainModel {
        image_pixels: spec.image_bytes() / 2,
        specific_bytes: detector.specific_bytes() as usize,
        ..TrainModel::lpd(images, 1)
    };
    // All modules send the same pixels, so that the memory of the senders is that of one.
    let mut datagrams = sent.datagrams(0, 0);
    let mut channels: Vec<_> = (0..modules).map(|_| Channel::new(spec, 1, 1_000_000, 1)).collect();
    let builder = BuilderSpec { train: spec, modules, open_max: 2, timeout_us: 1_000_000, is_ordered: true };
    let mut builder = Builder::new(builder);
    let (mut scratch, mut times, mut order_times, mut verified) = (Vec::new(), Vec::new(), Vec::new(), true);
    // The first train does not count: its memory is new.
    for repeat in 0..=repeats {
        number(&mut datagrams, repeat as u64);
        let (begin, mut order_s) = (Instant::now(), 0.0);
        for (module, channel) in channels.iter_mut().enumerate() {
            for datagram in &datagrams {
                channel.take(datagram, 0);
            }
            let Some(mut train) = channel.pop() else { continue };
            let order = Instant::now();
            train.finish_pixels(&spec, true, &mut scratch);
            order_s += order.elapsed().as_secs_f64();
            verified &= builder.offer(module, train, 0).is_none();
        }
        let built = builder.pop();
        let seconds = begin.elapsed().as_secs_f64();
        if repeat > 0 {
            times.push(1e3 * seconds);
            order_times.push(1e3 * order_s);
        }
        let Some(built) = built else { return Row::failed(model, images, modules) };
        verified &= built.is_complete();
        if repeat == repeats {
            verified &= (0..modules).all(|module| is_right(&built, module, &spec, &sent));
        }
        for (channel, train) in channels.iter_mut().zip(built.modules) {
            train.into_iter().for_each(|train| channel.give_back(train.bytes, train.arrived));
        }
    }
    let bytes = modules * sent.train_bytes();
    Row { model, images, modules, bytes, ms: Spread::of(times), order_ms: Spread::of(order_times), verified }
}

/// Gives the datagrams the number of another train.
fn number(datagrams: &mut [Vec<u8>], train: u64) {
    datagrams[0][16..24].copy_from_slice(&(1000 + train).to_le_bytes());
    for datagram in datagrams {
        let at = datagram.len() - 8;
        datagram[at..at + 4].copy_from_slice(&(train as u32).to_le_bytes());
    }
}

/// Compares every pixel of a module with what was sent.
fn is_right(built: &BuiltTrain, module: usize, spec: &TrainSpec, sent: &TrainModel) -> bool {
    let Some(train) = built.module(module, spec) else { return false };
    let wire = sent.pixels(0, 0);
    let (pixels, columns) = (sent.image_pixels, spec.detector.image_size().1 as usize);
    let mut image = vec![0; pixels];
    wire.chunks(pixels).enumerate().all(|(n, wire)| {
        if spec.detector == XfelDetector::Lpd {
            walk(wire, |row, column, word| image[row * columns + column] = word);
        } else {
            image.copy_from_slice(wire);
        }
        let words = |bytes: &[u8]| bytes.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect::<Vec<_>>();
        train.image(n).map(words).as_deref() == Some(&image)
    })
}

/// The order in which LPD sends an image, one pixel after the other.
fn walk(wire: &[u16], mut put: impl FnMut(usize, usize, u16)) {
    let mut words = wire.iter();
    for pixel_row in (0..32).rev() {
        for pixel_column in 0..16 {
            for (chip_row, chip_column) in (0..8).rev().flat_map(|row| (0..16).map(move |column| (row, column))) {
                let word = words.next().copied().unwrap_or_default();
                put(chip_row * 32 + pixel_row, chip_column * 16 + pixel_column, word);
            }
        }
    }
}

impl Row {
    fn failed(model: &'static str, images: usize, modules: usize) -> Self {
        let none = Spread::of([]);
        Self { model, images, modules, bytes: 0, ms: none, order_ms: none, verified: false }
    }

    fn gigabytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.ms.median / 1e6
    }

    /// Cores for 16 modules at the rate of European XFEL.
    fn cores(&self) -> f64 {
        16.0 / self.modules as f64 * self.ms.median / 1e3 * TRAINS_HZ
    }

    fn to_json(&self) -> Value {
        json!({
            "model": self.model, "images": self.images, "modules": self.modules, "bytes": self.bytes, "ms_per_train": self.ms.to_json(),
            "order_ms": self.order_ms.to_json(), "gigabytes_per_second_per_core": self.gigabytes_per_s(),
            "cores_for_16_modules_at_10_hz": self.cores(), "verified": self.verified,
        })
    }
}

fn to_text(rows: &[Row]) -> String {
    let head = [
        "detector",
        "images",
        "modules",
        "ms per train, one core",
        "of it order",
        "GB/s per core",
        "cores for 16 modules at 10 Hz",
        "",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        table.push(vec![
            row.model.to_owned(),
            row.images.to_string(),
            row.modules.to_string(),
            row.ms.to_text(1),
            row.order_ms.to_text(1),
            format!("{:.2}", row.gigabytes_per_s()),
            format!("{:.1}", row.cores()),
            if row.verified { "verified".into() } else { "WRONG".into() },
        ]);
    }
    format!("Trains from datagrams in memory, on one core\n\n{}\n\nothers: {OTHERS}", text::table(&table))
}
