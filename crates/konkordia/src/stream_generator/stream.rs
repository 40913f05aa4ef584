//! `konkordia stream`: sends what a detector unit would send.

use super::args::{CompressionChoice, DetailChoice, ProtocolChoice, SendKind, StreamArgs};
use super::content;
use super::form::Form;
use super::send::OutputQueues;
use crate::console;
use crate::run::signals;
use bytes::Bytes;
use konkordia_core::array::{Packing, Shape};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{PackScratch, pack};
use konkordia_sim::rng::Rng;
use konkordia_wire::stream::Refusal;
use serde_json::json;
use std::time::{Duration, Instant};

/// With `--shuffle` an image is sent fewer places than this from its own.
const SHUFFLE_WINDOW: u64 = 16;
/// Default of `--shape`.
const SHAPE_DEFAULT: [u64; 2] = [512, 1024];
/// Period in the headers, if images are sent as fast as possible.
const PERIOD_DEFAULT_NS: u64 = 1_000_000;

fn wrong(why: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "this stream cannot be made", why, "`konkordia help stream` lists the options")
}

/// `konkordia stream`
pub fn command(args: &StreamArgs) -> Result<Exit, Failure> {
    let mut stream = Stream::new(args)?;
    let interrupted = signals::stop_flag()?;
    let kind = if args.protocol == ProtocolChoice::Sls { SendKind::Pub } else { SendKind::Push };
    let message_bytes = stream.pool.iter().map(|image| image.iter().map(|c| c.len() as u64).sum()).max().unwrap_or(0);
    let mut output_queues = OutputQueues::open(&args.to, kind, args.upstreams as usize, message_bytes, interrupted)?;
    if !args.quiet {
        console::to_stderr(&format!("sending by {}", output_queues.names().join(", ")));
    }
    let mut is_whole = output_queues.wait_for_receivers()?;
    let begun = Instant::now();
    for n in 0..args.series {
        if n > 0 {
            is_whole = is_whole && output_queues.sleep_until(Instant::now() + Duration::from_secs_f64(args.pause));
        }
        is_whole = is_whole && stream.series(&mut output_queues, args.first_series + n)?;
    }
    stream.progress.end();
    let seconds = begun.elapsed().as_secs_f64();
    let (images, total) = (stream.images_sent, output_queues.total);
    let (rate, gigabytes) = (images as f64 / seconds.max(1e-9), total.bytes as f64 / seconds.max(1e-9) / 1e9);
    let names = output_queues.names();
    // Waits until the last messages have been sent.
    drop(output_queues);
    if args.json {
        let report = json!({
            "images": images, "messages": total.messages, "bytes": total.bytes, "seconds": seconds, "rate_hz": rate,
            "gigabytes_per_second": gigabytes, "series": args.series, "upstreams": names, "interrupted": !is_whole,
            "image_bytes": stream.image_bytes(), "packed_bytes": message_bytes,
        });
        console::json(&report, true);
    } else {
        let (count, bytes) = (text::count(images), text::bytes(total.bytes));
        console::to_stdout(&format!("sent {count} images, {bytes} in {seconds:.2} s: {rate:.1} Hz, {gigabytes:.2} GB/s"));
    }
    Ok(if is_whole { Exit::Complete } else { Exit::Interrupted })
}

/// The messages to send.
struct Stream<'a> {
    args: &'a StreamArgs,
    /// By upstream.
    forms: Vec<Form>,
    /// The different images, each with its compressed channels.
    pool: Vec<Vec<Bytes>>,
    /// Next message number of each sender. STINS counts messages over the life of a sender; each upstream is a sender
    /// of its own only with `--per-module`.
    msg_numbers: Vec<u64>,
    images_sent: u64,
    progress: console::Progress,
}

impl<'a> Stream<'a> {
    fn new(args: &'a StreamArgs) -> Result<Self, Failure> {
        let shape = shape(args)?;
        let packing = packing(args)?;
        if args.channels > 1 && args.protocol != ProtocolChoice::Stream2 {
            return Err(wrong("only stream2 has channels"));
        }
        if args.protocol == ProtocolChoice::Stream1 && shape.dimensions().len() != 2 && args.header_detail == DetailChoice::All {
            return Err(wrong("--header-detail all needs two numbers in --shape: give them, or --header-detail basic"));
        }
        let modules = if args.per_module { args.upstreams } else { 1 };
        let channels = match args.channels {
            3 => ["threshold_1", "threshold_2", "difference"].map(String::from).to_vec(),
            n => (1..=n).map(|n| format!("threshold_{n}")).collect(),
        };
        let period_ns = if args.rate_hz() > 0.0 { (1e9 / args.rate_hz()) as u64 } else { PERIOD_DEFAULT_NS };
        let form = |module| Form {
            protocol: args.protocol,
            shape,
            element: args.dtype,
            packing,
            channels: channels.clone(),
            detail: args.header_detail,
            images: args.images,
            period_ns,
            module,
            modules: modules as u16,
        };
        let pool = pool(args, &shape, packing)?;
        let forms: Vec<Form> = (0..modules as u16).map(form).collect();
        let progress = console::Progress::new(args.quiet || args.json);
        let stream = Self { args, msg_numbers: vec![0; forms.len()], forms, pool, images_sent: 0, progress };
        // What the protocol cannot express is refused before a socket is opened.
        stream.form(0).image(0, 0, 0, None, &stream.pool[0]).map_err(|e| no_form(&e))?;
        stream.form(0).start(0, 0, None).map_err(|e| no_form(&e))?;
        Ok(stream)
    }

    fn image_bytes(&self) -> u64 {
        let form = &self.forms[0];
        (form.shape.elements() * u64::from(form.element.bits())).div_ceil(8) * self.args.channels
    }

    /// The form of an upstream. All upstreams share one if they only divide the messages.
    fn form(&self, upstream: usize) -> &Form {
        &self.forms[upstream % self.forms.len()]
    }

    fn next_number(&mut self, upstream: usize) -> u64 {
        let place = upstream % self.msg_numbers.len();
        self.msg_numbers[place] += 1;
        self.msg_numbers[place] - 1
    }

    /// Number of upstreams that get the start and the end of a series. STINS numbers its messages, so one is enough if
    /// the upstreams divide the messages. In other protocols every upstream gets them.
    fn controlled(&self) -> usize {
        if self.args.protocol == ProtocolChoice::Stins && !self.args.per_module { 1 } else { self.args.upstreams as usize }
    }

    /// One series; false if interrupted.
    fn series(&mut self, output_queues: &mut OutputQueues, series: u64) -> Result<bool, Failure> {
        let filename = self.args.filename.as_ref().map(|name| name.replace("{}", &series.to_string()));
        let filename = filename.as_deref();
        for upstream in 0..self.controlled() {
            let number = if self.args.protocol == ProtocolChoice::Sls { 0 } else { self.next_number(upstream) };
            let start = self.form(upstream).start(series, number, filename).map_err(|e| no_form(&e))?;
            if let Some(parts) = start
                && !output_queues.send(upstream, &parts)?
            {
                return Ok(false);
            }
        }
        // A message number belongs to an image, not to a place in the order of sending.
        let first_numbers = self.msg_numbers.clone();
        self.msg_numbers.iter_mut().for_each(|number| *number += self.args.images);
        let begun = Instant::now();
        let is_whole = self.images(output_queues, series, filename, &first_numbers, begun)?;
        if self.args.no_end || !is_whole {
            return Ok(is_whole);
        }
        for upstream in 0..self.controlled() {
            let number = self.next_number(upstream);
            let parts = self.form(upstream).end(series, number).map_err(|e| no_form(&e))?;
            if !output_queues.send(upstream, &parts)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn images(
        &mut self,
        output_queues: &mut OutputQueues,
        series: u64,
        filename: Option<&str>,
        first_numbers: &[u64],
        begun: Instant,
    ) -> Result<bool, Failure> {
        let (args, rate) = (self.args, self.args.rate_hz());
        let mut order: Vec<u64> = Vec::new();
        for place in 0..args.images {
            if rate > 0.0 && !output_queues.sleep_until(begun + Duration::from_secs_f64(place as f64 / rate)) {
                return Ok(false);
            }
            let frame = match args.shuffle {
                None => place,
                Some(seed) => {
                    if order.is_empty() {
                        order = shuffled(place, args.images, seed, series);
                    }
                    order.pop().unwrap_or(place)
                }
            };
            let every = if args.per_module { output_queues.count() } else { 1 };
            for module in 0..every {
                let upstream = if args.per_module { module } else { (frame % output_queues.count() as u64) as usize };
                let form = self.form(upstream);
                let number = first_numbers[upstream % first_numbers.len()] + frame;
                let channels = &self.pool[((frame + module as u64) % self.pool.len() as u64) as usize];
                let parts = form.image(series, frame, number, filename, channels).map_err(|e| no_form(&e))?;
                if !output_queues.send(upstream, &parts)? {
                    return Ok(false);
                }
            }
            self.images_sent += 1;
            let (sent, images) = (self.images_sent, args.images * args.series);
            self.progress.update(|| format!("sent {} of {} images", text::count(sent), text::count(images)));
        }
        Ok(true)
    }
}

fn no_form(refusal: &Refusal) -> Failure {
    wrong(&refusal.why)
}

/// The images of the next window in a random order; the last one is sent first.
fn shuffled(from: u64, images: u64, seed: u64, series: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (from..images.min(from + SHUFFLE_WINDOW)).collect();
    let mut rng = Rng::keyed(seed, &[0x7368_7566, series, from]);
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    order
}

/// The different images, compressed; every channel has its own content.
fn pool(args: &StreamArgs, shape: &Shape, packing: Packing) -> Result<Vec<Vec<Bytes>>, Failure> {
    let mut scratch = PackScratch::new();
    let mut one = |image: u64, channel: u64| {
        let number = image * args.channels + channel;
        let bytes = content::image(args.content, shape, args.dtype, args.seed, number);
        if packing == Packing::None {
            return Ok(Bytes::from(bytes));
        }
        let mut out = Vec::new();
        pack(packing, Isa::detect(), args.dtype, &bytes, &mut out, &mut scratch).map_err(wrong)?;
        Ok(Bytes::from(out))
    };
    (0..args.pool.min(args.images)).map(|image| (0..args.channels).map(|channel| one(image, channel)).collect()).collect()
}

fn shape(args: &StreamArgs) -> Result<Shape, Failure> {
    let Some(bytes) = args.size else {
        let default = Shape::new(&SHAPE_DEFAULT).ok_or_else(|| wrong("there is no shape"))?;
        return Ok(args.shape.unwrap_or(default));
    };
    let bits = u64::from(args.dtype.bits());
    let pixels = bytes * 8 / bits;
    if pixels * bits != bytes * 8 {
        return Err(wrong(format!("{bytes} bytes are not a whole number of {} pixels", args.dtype.name())));
    }
    // As near to a square as the number of pixels allows.
    let rows = (1..=pixels.isqrt()).rev().find(|rows| pixels.is_multiple_of(*rows)).unwrap_or(1);
    Shape::new(&[rows, pixels / rows]).ok_or_else(|| wrong("an image has at least one pixel"))
}

fn packing(args: &StreamArgs) -> Result<Packing, Failure> {
    match (args.compression, args.protocol) {
        (CompressionChoice::None, _) => Ok(Packing::None),
        (_, ProtocolChoice::Sls) => Err(wrong("the slsReceiver does not compress")),
        (CompressionChoice::Bslz4, _) => Ok(Packing::BitshuffleLz4),
        (CompressionChoice::Lz4, ProtocolChoice::Stream1) => Ok(Packing::Lz4Block),
        (CompressionChoice::Lz4, _) => Ok(Packing::Lz4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_every_image_once_and_near_its_place() {
        let (mut order, mut all): (Vec<u64>, Vec<u64>) = Default::default();
        for place in 0..50 {
            if order.is_empty() {
                order = shuffled(place, 50, 7, 1);
            }
            all.push(order.pop().unwrap());
        }
        assert!(all.iter().zip(0..).all(|(frame, place)| frame.abs_diff(place) < SHUFFLE_WINDOW));
        assert_ne!(all, (0..50).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<_>>());
    }
}
