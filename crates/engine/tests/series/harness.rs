//! A tiny protocol, sources that tests feed, and a sink that keeps everything.

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::ServiceLevel;
use konkordia_core::ports::{Message, MessageSource, Sink, SinkError};
use konkordia_core::series::{Ended, SeriesEnd, SeriesStart};
use konkordia_engine::deliver::{self, Reports};
use konkordia_engine::output_queue::{OutputQueueSpec, OutputQueues, PreviewBuffer};
use konkordia_engine::series::{self, Notice, Protocol, Series, SeriesControl, SeriesSpec, Upstream};
use konkordia_wire::message::{Event, ImagePart, MessageDecoder, Read, SeriesKey};
use konkordia_wire::stream::Refusal;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const MS: u64 = 1_000_000;
/// Nothing takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Messages of the tiny protocol: kind, series, message number + 1 (0 = none), value, columns; then the pixels, uint16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TinyMessage {
    /// Images planned, 0 = unknown.
    Start(u64),
    /// An image, see [`pixel`].
    Image(u64),
    End,
    Other,
    /// Cannot be read.
    Junk,
    /// Makes the decoder panic.
    Bug,
    /// An image of another shape.
    Wide(u64),
    /// An image whose bytes do not match what they claim to be.
    Broken(u64),
}

/// Pixels of image `number` of `series` from `upstream`: rows x columns, all different from the others.
pub fn pixel(series: u64, number: u64, upstream: usize, index: usize) -> u16 {
    (series * 7919 + number * 104_729 + upstream as u64 * 31 + index as u64 * 3) as u16 % 60_000
}

#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub rows: u64,
    pub columns: u64,
    pub has_numbers: bool,
}

impl Default for Form {
    fn default() -> Self {
        Self { rows: 3, columns: 4, has_numbers: false }
    }
}

pub fn message(form: Form, upstream: usize, series: u64, number: u64, tiny: TinyMessage) -> Message {
    let (kind, value, columns) = match tiny {
        TinyMessage::Start(planned) => (0u64, planned, 0),
        TinyMessage::Image(image) => (1, image, form.columns),
        TinyMessage::Wide(image) => (1, image, form.columns + 1),
        TinyMessage::Broken(image) => (2, image, form.columns),
        TinyMessage::End => (3, 0, 0),
        TinyMessage::Other => (4, 0, 0),
        TinyMessage::Junk => (5, 0, 0),
        TinyMessage::Bug => (6, 0, 0),
    };
    let number = if form.has_numbers { number + 1 } else { 0 };
    let words = [kind, series, number, value, form.rows, columns];
    let mut parts = vec![Bytes::from(words.map(u64::to_le_bytes).concat())];
    if columns > 0 {
        let pixels = (0..(form.rows * columns) as usize).map(|index| pixel(series, value, upstream, index));
        parts.push(Bytes::from(pixels.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()));
    }
    Message { parts }
}

/// The decoder of the tiny protocol.
pub struct TinyDecoder;

impl MessageDecoder for TinyDecoder {
    fn read(&mut self, message: &Message) -> Result<Read, Refusal> {
        let word = |n: usize| {
            let bytes = message.parts[0].get(n * 8..n * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or_else(|| Refusal::new(0, "it is too short"))
        };
        let (kind, key, value) = (word(0)?, SeriesKey(word(1)?), word(3)?);
        let event = match kind {
            0 => {
                let images_planned = (value > 0).then_some(value);
                let filename = Some(format!("series-{}", key.0));
                let start = SeriesStart { series: key.0, images_planned, filename, store: true, ..SeriesStart::default() };
                Event::Start(key, Box::new(start))
            }
            1 | 2 => {
                let packing = if kind == 1 { Packing::None } else { Packing::BitshuffleLz4 };
                let shape = Shape::new(&[word(4)?, word(5)?]).ok_or_else(|| Refusal::new(0, "no shape"))?;
                let array = Array { shape, element: Element::Uint16, packing, pieces: vec![message.parts[1].clone()] };
                Event::Part(Box::new(ImagePart {
                    series: key,
                    number: value,
                    channels: vec![Channel { name: "".into(), array }],
                    store: true,
                    is_partial: false,
                    times: None,
                    header_json: Bytes::new(),
                    start: None,
                }))
            }
            3 => Event::End(key),
            4 => Event::Other,
            6 => panic!("the decoder has a bug"),
            _ => return Err(Refusal::new(0, "it is junk")),
        };
        Ok(Read { message_number: word(2)?.checked_sub(1), event })
    }
}

/// Messages that a test sends at any time. It ends when the sender is dropped.
pub struct ChannelSource {
    receiver: Receiver<Message>,
    is_finished: bool,
    is_cut: bool,
    pub refused: Arc<AtomicU64>,
    pub accepted: Arc<AtomicU64>,
}

impl MessageSource for ChannelSource {
    fn receive(&mut self, timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> io::Result<()> {
        if self.is_cut {
            return Err(io::Error::other("the cable was cut"));
        }
        match self.receiver.recv_timeout(timeout) {
            Ok(message) => into.push(message),
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                self.is_finished = true;
                return Ok(());
            }
        }
        into.extend(self.receiver.try_iter().take(messages_max - 1));
        if let Some(at) = into.iter().position(|message| message.parts.is_empty()) {
            into.truncate(at);
            self.is_cut = true;
        }
        Ok(())
    }

    fn accepted(&mut self, messages: usize) {
        self.accepted.fetch_add(messages as u64, Ordering::SeqCst);
    }

    fn refused(&mut self, messages: usize) {
        self.refused.fetch_add(messages as u64, Ordering::SeqCst);
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn name(&self) -> String {
        "test".into()
    }
}

/// What a sink saw of one series.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub start: Option<Arc<SeriesStart>>,
    pub images: Vec<Arc<CommittedImage>>,
    pub end: Option<Arc<SeriesEnd>>,
}

impl Kept {
    /// One letter per position.
    pub fn states(&self) -> String {
        let letter = |image: &Arc<CommittedImage>| match image.status {
            ImageStatus::Complete => 'c',
            ImageStatus::Partial => 'p',
            ImageStatus::Lost => '-',
            ImageStatus::Discarded => 'd',
            ImageStatus::Vetoed => 'v',
        };
        self.images.iter().map(letter).collect()
    }
}

/// Keeps everything; can be slow, and fail or panic at an image.
#[derive(Clone, Default)]
pub struct Collector {
    pub kept: Arc<Mutex<Vec<Kept>>>,
    pub pause: Duration,
    pub fails_at: Option<u64>,
    pub panics_at: Option<u64>,
}

impl Sink for Collector {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        self.kept.lock().unwrap().push(Kept { start: Some(Arc::clone(start)), ..Kept::default() });
        Ok(())
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        if self.fails_at == Some(image.number) {
            return Err(SinkError { what: "cannot write".into(), why: "the test says so".into(), fix: "nothing".into() });
        }
        assert!(self.panics_at != Some(image.number), "the sink has a bug");
        std::thread::sleep(self.pause);
        self.kept.lock().unwrap().last_mut().unwrap().images.push(Arc::clone(image));
        Ok(())
    }

    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        self.kept.lock().unwrap().last_mut().unwrap().end = Some(Arc::clone(end));
        Ok(())
    }
}

/// What happened at the sink.
#[derive(Default)]
pub struct AtSink {
    /// Images with pixels that it took.
    pub written: AtomicU64,
    /// Images with pixels that it did not take.
    pub unwritten: AtomicU64,
    /// Series whose end it has seen.
    pub series_ended: AtomicU64,
    /// Its failures.
    pub errors: Mutex<Vec<SinkError>>,
}

impl AtSink {
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::SeqCst)
    }

    pub fn series_ended(&self) -> u64 {
        self.series_ended.load(Ordering::SeqCst)
    }
}

struct SinkReports(Arc<AtSink>);

impl Reports for SinkReports {
    fn failed(&mut self, error: &SinkError, _: u64) {
        self.0.errors.lock().unwrap().push(error.clone());
    }

    fn ended(&mut self, _: &Arc<SeriesEnd>, _: u64) {
        self.0.series_ended.fetch_add(1, Ordering::SeqCst);
    }

    fn taken(&mut self, _: &CommittedImage) {
        self.0.written.fetch_add(1, Ordering::SeqCst);
    }

    fn missed(&mut self, _: &CommittedImage) {
        self.0.unwritten.fetch_add(1, Ordering::SeqCst);
    }
}

/// A stream path with a reliable sink, fed by the test.
pub struct Bench {
    pub form: Form,
    pub senders: Vec<Sender<Message>>,
    pub output_queues: Arc<OutputQueues>,
    pub series: Series,
    pub collector: Collector,
    pub sink: Arc<AtSink>,
    pub refused: Vec<Arc<AtomicU64>>,
    pub accepted: Vec<Arc<AtomicU64>>,
    seen: Vec<Notice>,
}

impl Bench {
    pub fn new(spec: SeriesSpec, upstreams: usize, form: Form) -> Self {
        Self::with(spec, upstreams, form, Collector::default())
    }

    pub fn with(spec: SeriesSpec, upstreams: usize, form: Form, collector: Collector) -> Self {
        let output_queues = Arc::new(OutputQueues::new(Some(Arc::new(PreviewBuffer::new(4, 1 << 20)))));
        let (mut senders, mut refused, mut accepted, mut parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..upstreams {
            let (sender, receiver) = channel();
            let source =
                ChannelSource { receiver, is_finished: false, is_cut: false, refused: Arc::default(), accepted: Arc::default() };
            senders.push(sender);
            refused.push(Arc::clone(&source.refused));
            accepted.push(Arc::clone(&source.accepted));
            parts.push(Upstream { source: Box::new(source), decoder: Box::new(TinyDecoder) });
        }
        let service = ServiceLevel::Reliable;
        let reader = output_queues.add(OutputQueueSpec {
            name: "file".into(),
            service,
            queue_images: 16,
            queue_bytes: 1 << 20,
            borrows: false,
        });
        let series = series::open(spec, parts, Arc::clone(&output_queues)).unwrap();
        let (sink, control) = (Arc::<AtSink>::default(), series.control());
        // It ends when the output queues do: nobody waits for it.
        deliver::spawn("file", reader, collector.clone(), SinkReports(Arc::clone(&sink)), move || control.now_ns()).unwrap();
        Self { form, senders, output_queues, series, collector, sink, refused, accepted, seen: Vec::new() }
    }

    pub fn control(&self) -> Arc<SeriesControl> {
        self.series.control()
    }

    /// Number of the newest image of the preview buffer.
    pub fn newest(&self) -> Option<u64> {
        let preview = self.output_queues.preview().unwrap();
        preview.look(None, Instant::now()).map(|planes| planes.image().number)
    }

    /// Sends messages of `series` over `upstream`; their numbers begin with `number`.
    pub fn send(&self, upstream: usize, series: u64, number: u64, messages: &[TinyMessage]) {
        for (n, tiny) in messages.iter().enumerate() {
            let message = message(self.form, upstream, series, number + n as u64, *tiny);
            self.senders[upstream].send(message).unwrap();
        }
    }

    /// Makes a source fail.
    pub fn cut(&self, upstream: usize) {
        self.senders[upstream].send(Message::default()).unwrap();
    }

    /// Waits for the first notice that matches; skips the others.
    pub fn wait<T>(&mut self, what: &str, mut is_it: impl FnMut(&Notice) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            let notice = self.series.notices().recv_deadline(until).unwrap_or_else(|_| {
                panic!("{what} never came; before: {:#?}, {:#?}", self.seen.iter().rev().take(5), self.control().progress())
            });
            let found = is_it(&notice);
            self.seen.push(notice);
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Waits for the end of a series and checks its ledger.
    pub fn end(&mut self) -> Arc<SeriesEnd> {
        let end = self.wait("an end", |notice| match notice {
            Notice::Ended(end) => Some(Arc::clone(end)),
            _ => None,
        });
        assert_eq!(end.ledger.imbalances(), [], "{:#?}", end.ledger);
        end
    }

    pub fn ended(&mut self) -> Ended {
        self.end().ended
    }

    /// Texts of the refusals reported so far.
    pub fn refusals(&mut self) -> Vec<String> {
        self.seen.extend(self.series.notices().try_iter());
        let words = self.seen.iter().filter_map(|notice| match notice {
            Notice::Refused { why, .. } => Some(why.clone()),
            _ => None,
        });
        words.collect()
    }

    /// What the sink kept, once it has seen so many ends.
    pub fn kept(&self, series: usize) -> Vec<Kept> {
        eventually("the sink sees the ends", || self.sink.series_ended() >= series as u64);
        let kept = self.collector.kept.lock().unwrap().clone();
        // A series that has not ended yet is not checked.
        kept.iter().filter(|kept| kept.end.is_some()).for_each(check_kept);
        kept
    }

    /// Waits until all memory in flight was given back.
    pub fn assert_at_rest(&self) {
        eventually("the budget is free", || self.control().progress().in_flight_bytes() == 0);
    }
}

/// A stream path with short times, so that tests do not wait long for them.
pub fn quick(protocol: Protocol) -> SeriesSpec {
    SeriesSpec {
        window_images: 32,
        wait_ns: 150 * MS,
        drain_ns: 150 * MS,
        stall_timeout_ns: 300 * MS,
        budget_bytes: 1 << 20,
        ..SeriesSpec::new(protocol)
    }
}

pub const PLAIN: Form = Form { rows: 3, columns: 4, has_numbers: false };
pub const NUMBERED: Form = Form { has_numbers: true, ..PLAIN };

/// Waits until something holds.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it never happens that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Positions are in order, without a gap, and as many as the ledger says.
pub fn check_kept(kept: &Kept) {
    let end = kept.end.as_ref().expect("each start has its end");
    assert!(kept.images.iter().enumerate().all(|(n, image)| image.number == n as u64), "{:?}", kept.states());
    let is_prefix = end.ended == Ended::Cancelled && kept.images.len() as u64 <= end.ledger.images.expected;
    assert!(is_prefix || kept.images.len() as u64 == end.ledger.images.expected, "{end:?}");
    for image in &kept.images {
        assert_eq!(image.status.has_pixels(), !image.channels.is_empty());
    }
}
