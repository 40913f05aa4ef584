//! Messages of real form, damaged and in any order, through decoder and sort. Nothing panics, every series that begins
//! ends, its ledger balances, and its images come in order.
//!
//! The fuzz target `messages_through_engine` and the tests of the engine use this.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{Message, MessageSource, ServiceLevel, Sink, SinkError};
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_engine::deliver::{self, Reports};
use konkordia_engine::output_queue::{OutputQueueSpec, OutputQueues, PreviewBuffer};
use konkordia_engine::series::protocols::decoder;
use konkordia_engine::series::{self, Notice, SeriesSpec, Upstream};
use konkordia_wire::stream::Bounds;
use konkordia_wire::zmsg;

/// Patience with the scene itself; more than any run of it takes.
const AT_REST_WITHIN: Duration = Duration::from_secs(60);
const MESSAGES_MAX: usize = 64;
const BOUNDS: Bounds = Bounds { text_bytes_max: 1 << 14, image_bytes_max: 1 << 20, table_bytes_max: 1 << 20, channels_max: 4 };

macro_rules! captures {
    ($($name:literal),*) => { &[$(include_bytes!(concat!("../seeds/", $name)) as &[u8]),*] };
}

/// One message of each kind, as captures.
const STINS: &[&[u8]] = captures!(
    "stins/header",
    "stins/header_metadata",
    "stins/image_raw",
    "stins/image_three",
    "stins/image_line",
    "stins/image_mono12p",
    "stins/end"
);
const DECTRIS_V1: &[&[u8]] = captures!(
    "dectris_v1/header_all",
    "dectris_v1/header_basic",
    "dectris_v1/header_none",
    "dectris_v1/image_raw",
    "dectris_v1/image_lz4",
    "dectris_v1/image_bslz4",
    "dectris_v1/end"
);
const DECTRIS_V2: &[&[u8]] = captures!("dectris_v2/start", "dectris_v2/image_one", "dectris_v2/image_three", "dectris_v2/end");
const SLS_JSON: &[&[u8]] = captures!("sls_json/image", "sls_json/image_12_bits", "sls_json/end");

/// The messages of one upstream; `None` where none comes for a moment.
struct Replay(VecDeque<Option<Message>>);

impl MessageSource for Replay {
    fn receive(&mut self, timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> std::io::Result<()> {
        for _ in 0..messages_max {
            match self.0.pop_front() {
                Some(Some(message)) => into.push(message),
                Some(None) => {
                    std::thread::sleep(timeout.min(Duration::from_millis(1)));
                    break;
                }
                None => break,
            }
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.0.is_empty()
    }

    fn name(&self) -> String {
        "scene".into()
    }
}

/// Checks the order of what it gets.
#[derive(Clone, Default)]
struct Checker(Arc<Mutex<Option<u64>>>);

impl Sink for Checker {
    fn start(&mut self, _: &Arc<SeriesStart>) -> Result<(), SinkError> {
        assert_eq!(self.0.lock().unwrap().replace(0), None, "a series starts within another");
        Ok(())
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let mut next = self.0.lock().unwrap();
        let next = next.as_mut().expect("an image belongs to a series");
        assert_eq!(image.number, *next, "images come in order");
        assert_eq!(image.status.has_pixels(), !image.channels.is_empty());
        *next += 1;
        Ok(())
    }

    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        assert_eq!(self.0.lock().unwrap().take(), Some(end.ledger.images.expected), "{end:?}");
        Ok(())
    }
}

/// A sink that fails or panics is a failure of this scene.
struct Strict;

impl Reports for Strict {
    fn failed(&mut self, error: &SinkError, _: u64) {
        eprintln!("{error}");
        std::process::abort();
    }

    fn ended(&mut self, _: &Arc<SeriesEnd>, _: u64) {}
}

/// Damages a message at one place, cuts it, or leaves it as it is.
fn damaged(capture: &[u8], [how, place, value]: [u8; 3]) -> Message {
    let mut message = zmsg::Message::default();
    let bounds = zmsg::Bounds { parts_max: 16, message_bytes_max: 1 << 16 };
    assert_eq!(zmsg::Reader::new(capture, bounds).read(&mut message).ok(), Some(true), "the seeds are captures");
    let mut parts: Vec<Vec<u8>> = message.parts().iter().map(|part| part.to_vec()).collect();
    let count = parts.len();
    let part = &mut parts[usize::from(how >> 3) % count];
    let at = usize::from(place) * part.len().max(1) / 256;
    match how & 7 {
        0 if !part.is_empty() => part[at] ^= value,
        1 => part.truncate(at),
        // Another digit: most numbers are text or CBOR of one byte.
        2 | 3 => {
            let digits: Vec<usize> = (0..part.len()).filter(|n| part[*n].is_ascii_digit()).collect();
            if let Some(n) = digits.get(usize::from(place) % digits.len().max(1)) {
                part[*n] = b'0' + value % 10;
            }
        }
        4 if count > 1 => drop(parts.pop()),
        _ => {}
    }
    Message { parts: parts.into_iter().map(Bytes::from).collect() }
}

/// One stream path; the input says what comes. Returns the images that were committed. All times are multiples of
/// `patience_ns`.
pub fn check(data: &[u8], patience_ns: u64) -> u64 {
    let Some(([choice, window], steps)) = data.split_first_chunk::<2>() else { return 0 };
    let (protocol, captures) = [
        (Protocol::Stins, STINS),
        (Protocol::DectrisV1, DECTRIS_V1),
        (Protocol::DectrisV2, DECTRIS_V2),
        (Protocol::SlsJson, SLS_JSON),
    ][usize::from(choice & 3)];
    let upstreams = 1 + usize::from(choice >> 2 & 1);
    let mut lists = vec![VecDeque::new(); upstreams];
    for [which, damage @ ..] in steps.as_chunks::<4>().0.iter().take(MESSAGES_MAX) {
        let list = &mut lists[usize::from(which >> 7) % upstreams];
        let capture = captures[usize::from(which & 15) % captures.len()];
        list.push_back((which & 64 == 0 || damage[0] & 1 == 0).then(|| damaged(capture, *damage)));
    }
    let spec = SeriesSpec {
        bounds: BOUNDS,
        window_images: 1 + u64::from(*window),
        wait_ns: 3 * patience_ns,
        drain_ns: 3 * patience_ns,
        stall_timeout_ns: 10 * patience_ns,
        budget_bytes: 1 << 20,
        check_pixels: choice & 8 != 0,
        ..SeriesSpec::new(protocol)
    };
    run(spec, protocol, lists)
}

fn run(spec: SeriesSpec, protocol: Protocol, lists: Vec<VecDeque<Option<Message>>>) -> u64 {
    let sent = lists.iter().flatten().flatten().count() as u64;
    let queues = Arc::new(OutputQueues::new(Some(Arc::new(PreviewBuffer::new(2, 1 << 20)))));
    let reader = queues.add(OutputQueueSpec {
        name: "file".into(),
        service: ServiceLevel::Reliable,
        queue_images: 16,
        queue_bytes: 1 << 20,
        borrows: false,
    });
    let upstream = |list| Upstream { source: Box::new(Replay(list)), decoder: decoder(protocol, BOUNDS) };
    let series = series::open(spec, lists.into_iter().map(upstream).collect(), Arc::clone(&queues)).expect("the parts fit");
    let control = series.control();
    let clock = series.control();
    let delivery = deliver::spawn("file", reader, Checker::default(), Strict, move || clock.now_ns()).expect("there is a thread");
    let until = Instant::now() + AT_REST_WITHIN;
    let (mut ended, mut of_series) = (0, 0);
    // Until every message is in a ledger, and every series that began has ended.
    loop {
        for notice in series.notices().try_iter() {
            match notice {
                Notice::Ended(end) => {
                    assert_eq!(end.ledger.imbalances(), [], "{:?}", end.ledger);
                    (ended, of_series) = (ended + 1, of_series + end.ledger.total().received);
                }
                Notice::Broken { why } => panic!("{why}"),
                Notice::SourceFailed { why, .. } => panic!("no source fails, but: {why}"),
                _ => {}
            }
        }
        let progress = control.progress();
        if progress.series_started == ended && of_series + progress.between.total().received == sent {
            break;
        }
        assert!(Instant::now() < until, "of {sent} messages {of_series} are in {ended} series: {progress:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let progress = control.progress();
    assert_eq!(progress.between.imbalances(), [], "{:?}", progress.between);
    drop(series);
    queues.remove("file");
    delivery.join().expect("the sink does not panic");
    progress.images_committed
}
