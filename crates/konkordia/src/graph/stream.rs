//! The stage that takes the images of a stream of ZeroMQ. While the graph is full it does not read; what its sender
//! drops then is missing among the numbers of the images, and is said at the end.

use super::image::{About, Image, packed_mask};
use super::read::{run_text, valid};
use super::work::{Report, Reports};
use bytes::Bytes;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_core::ports::Message;
use konkordia_core::protocol::Protocol;
use konkordia_core::series::SeriesStart;
use konkordia_graph::file::{Socket, Stage};
use konkordia_kernels::transform::Unpacker;
use konkordia_sinks::hdf5::{FileSpec, Metadata, SeriesFacts, limits_of_series};
use konkordia_wire::message::{DecoderOptions, DecoderSetup, Event, ImagePart, MessageDecoder};
use konkordia_wire::protocols;
use konkordia_wire::stream::Bounds;
use konkordia_wire::unpacker::ArrayUnpacker;
use std::time::{Duration, Instant};

/// Messages that wait in the socket.
const WAITING_MAX: i32 = 8;
/// Most bytes of a part of a message.
const PART_BYTES_MAX: i64 = 1 << 30;
/// Parts of a message.
const PARTS_MAX: usize = 64;
/// How long is waited for a message.
const WAIT_MS: i64 = 100;
/// A stream ends if nothing comes for so long.
const SILENT: Duration = Duration::from_secs(60);

/// Takes images until their series ends.
pub fn receive(stage: &Stage, reports: &Reports) {
    reports.end(all(stage, reports));
}

/// A series of images.
struct Series {
    start: SeriesStart,
    /// From the first image on.
    about: Option<(About, Vec<u8>)>,
    /// One past the newest image.
    next: u64,
    taken: u64,
    unpacker: ArrayUnpacker,
}

fn all(stage: &Stage, reports: &Reports) -> Result<(), Failure> {
    let (context, mut decoder) = (zmq::Context::new(), decoder(stage)?);
    let socket = open(&context, stage).map_err(|error| {
        let fix = "correct 'address' in the graph file, for example tcp://host:9999";
        Failure::new(Exit::Io, format!("cannot take the stream {}", stage.address), error.to_string(), fix)
    })?;
    let silent = stage.silent_s_max.map_or(SILENT, Duration::from_secs_f64);
    let (mut series, mut heard, mut unreadable) = (None::<Series>, Instant::now(), 0_u64);
    let why = loop {
        let Some(message) = message(&socket) else {
            if series.is_some() && heard.elapsed() > silent {
                break Some(format!("nothing came for {} s", silent.as_secs_f64()));
            }
            continue;
        };
        heard = Instant::now();
        match decoder.read(&message).map(|read| read.event) {
            Ok(Event::Start(_, start)) => match &series {
                Some(series) if series.taken > 0 => break Some("another series began before its end".into()),
                _ => series = Some(Series::new(*start)),
            },
            Ok(Event::Part(part)) => {
                let known = || part.start.as_deref().cloned().unwrap_or_default();
                let series = series.get_or_insert_with(|| Series::new(known()));
                // The clock stands while the graph is full.
                match series.image(&part, reports) {
                    Ok(true) => heard = Instant::now(),
                    Ok(false) => return Ok(()),
                    Err(why) => {
                        unreadable += 1;
                        crate::console::note(&format!("stage '{}': image {}: {why}", stage.name, part.number));
                    }
                }
            }
            Ok(Event::End(_)) if series.is_some() => break None,
            Ok(Event::End(_) | Event::Other) => {}
            Err(refusal) => {
                unreadable += 1;
                crate::console::note(&format!("stage '{}': a message cannot be read: {refusal}", stage.name));
            }
        }
    };
    if let Some(why) = series.as_ref().and_then(|series| series.missing(why, unreadable)) {
        reports.say(Report::Short(format!("the stream {}: {why}", stage.address)));
    }
    Ok(())
}

impl Series {
    fn new(start: SeriesStart) -> Self {
        Self { start, about: None, next: 0, taken: 0, unpacker: ArrayUnpacker::new(Box::new(Unpacker::new())) }
    }

    /// Hands an image to the graph, and waits while it is full. False if nobody takes images any more.
    fn image(&mut self, part: &ImagePart, reports: &Reports) -> Result<bool, String> {
        if part.number < self.next {
            return Err("it came again, or after a newer one".into());
        }
        let array = &part.channels.first().ok_or("it has no pixels")?.array;
        let (Some(pixel), &[rows, columns]) = (array.element.pixel(), array.shape.dimensions()) else {
            return Err(format!("{} of shape {:?} is no image of numbers", array.element.name(), array.shape.dimensions()));
        };
        let shape = [rows as usize, columns as usize];
        let (about, mask) = match &self.about {
            Some(known) => known,
            None => self.about.insert(known(&self.start, shape, pixel)?),
        };
        let whole = self.unpacker.one_piece(array, &[])?;
        let pixels = &whole.pieces[0];
        let about = About { partial: part.is_partial, ..about.clone() };
        let image = Image { shape, pixel, pixels, about, numbers: Vec::new(), mask };
        (self.next, self.taken) = (part.number + 1, self.taken + 1);
        Ok(reports.say(Report::Made(part.number, image.encode())))
    }

    /// What did not come, in words.
    fn missing(&self, why: Option<String>, unreadable: u64) -> Option<String> {
        let planned = self.start.images_planned.unwrap_or(0).max(self.next);
        let missing = planned - self.taken;
        let count = (missing > 0).then(|| format!("{missing} of {planned} images did not come"));
        let unreadable = (unreadable > 0).then(|| format!("{unreadable} messages could not be used"));
        let said: Vec<String> = [count, unreadable, why].into_iter().flatten().collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// What is known of the images of a series, and their mask.
fn known(start: &SeriesStart, shape: [usize; 2], pixel: PixelType) -> Result<(About, Vec<u8>), String> {
    let facts = SeriesFacts::new(&Metadata::default(), start, shape.map(|edge| edge as u64));
    let (underload, saturation) = limits_of_series(start, pixel);
    let run = FileSpec { metadata: facts.metadata, underload, saturation, ..FileSpec::default() };
    let about = About { run: run_text(&run, shape), valid: valid(pixel.valid_range(underload, saturation)), ..About::default() };
    let mask = packed_mask(&facts.pixel_mask).map_err(|failure| failure.what)?;
    Ok((about, mask))
}

fn decoder(stage: &Stage) -> Result<Box<dyn MessageDecoder>, Failure> {
    let name = stage.protocol.as_deref().unwrap_or("stins");
    let known = Protocol::of_source(name).filter(|protocol| *protocol != Protocol::Files);
    let Some(protocol) = known else {
        let what = format!("stage '{}': there is no protocol '{name}'", stage.name);
        let fix = "write stins, stream1, stream2 or sls";
        return Err(Failure::new(Exit::Configuration, what, "docs/streams.md lists them", fix));
    };
    let (bounds, options) = (Bounds::default(), DecoderOptions::default());
    Ok(protocols::decoder(protocol, DecoderSetup { bounds, options, unpacker: Box::new(Unpacker::new()) }))
}

fn open(context: &zmq::Context, stage: &Stage) -> Result<zmq::Socket, zmq::Error> {
    let is_sub = stage.socket == Some(Socket::Sub);
    let socket = context.socket(if is_sub { zmq::SUB } else { zmq::PULL })?;
    socket.set_rcvhwm(WAITING_MAX)?;
    socket.set_maxmsgsize(PART_BYTES_MAX)?;
    socket.set_linger(0)?;
    if is_sub {
        socket.set_subscribe(b"")?;
    }
    socket.connect(&stage.address)?;
    Ok(socket)
}

/// The next message, if one comes soon. One of too many parts is left out.
fn message(socket: &zmq::Socket) -> Option<Message> {
    // An error is one of a signal.
    if socket.poll(zmq::POLLIN, WAIT_MS).ok()? == 0 {
        return None;
    }
    let parts = super::links::take(socket, PARTS_MAX).filter(|parts| !parts.is_empty())?;
    Some(Message { parts: parts.into_iter().map(|part| Bytes::from_owner(Part(part))).collect() })
}

/// A part of a message in the memory of libzmq.
struct Part(zmq::Message);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_is_counted() {
        let mut series = Series::new(SeriesStart { images_planned: Some(10), ..SeriesStart::default() });
        (series.next, series.taken) = (10, 10);
        assert_eq!(series.missing(None, 0), None);
        (series.next, series.taken) = (8, 7);
        assert_eq!(series.missing(None, 0).unwrap(), "3 of 10 images did not come");
        let said = series.missing(Some("nothing came for 2 s".into()), 1).unwrap();
        assert_eq!(said, "3 of 10 images did not come; 1 messages could not be used; nothing came for 2 s");
    }
}
