//! One consumer of images: a thread that takes what waits in its outlet and gives it to a sink.

use crate::serve::events::EventLog;
use crate::serve::handle::Severity;
use konkordia_core::ports::{SeriesSink, SinkError};
use konkordia_core::series::{SeriesEnd, SeriesImage, SeriesStart};
use konkordia_engine::outlet::{Item, OutletReader};
use konkordia_engine::series::encode::{self, Outgoing, Parts};
use konkordia_engine::series::guarded;
use konkordia_sinks::zmq::MessageEncoder;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a sink hears of the time while nothing comes.
const TICK: Duration = Duration::from_millis(100);

/// The encoder of the engine in the form that the socket wants.
pub struct Words(Box<dyn encode::Encoder>);

impl Words {
    /// Of this protocol.
    pub fn of(protocol: Outgoing) -> Box<Self> {
        Box::new(Self(encode::encoder(protocol)))
    }
}

impl MessageEncoder for Words {
    fn start(&mut self, start: &SeriesStart) -> Result<Vec<Parts>, String> {
        self.0.start(start)
    }

    fn image(&mut self, image: &SeriesImage) -> Result<Vec<Parts>, String> {
        self.0.image(image)
    }

    fn end(&mut self, end: &SeriesEnd) -> Result<Vec<Parts>, String> {
        self.0.end(end)
    }
}

/// What a thread of a consumer tells.
pub trait Reports: Send {
    /// The sink failed; it hears nothing more of this series but its end.
    fn failed(&mut self, error: &SinkError, unwritten: u64);
    /// It has taken the end of a series; `unwritten` images were not taken.
    fn ended(&mut self, end: &Arc<SeriesEnd>, unwritten: u64);
    /// The sink has taken an image with pixels.
    fn taken(&mut self, _image: &SeriesImage) {}
    /// An image goes past the sink, which has failed.
    fn passed(&mut self, _image: &SeriesImage) {}
    /// After each batch.
    fn looked(&mut self, reader: &OutletReader);
    /// Longest time between two looks while there is no series.
    fn patience(&self) -> Duration {
        TICK
    }
}

/// Tells failures of a stream to those who watch.
pub struct Told {
    /// Where.
    pub events: EventLog,
    /// Detector.
    pub detector: String,
    /// Name of the consumer.
    pub name: String,
    /// Looked at after each batch: is anybody there?
    pub peers: Box<dyn Fn() -> u64 + Send>,
    /// So it was last time.
    pub was_connected: Option<bool>,
    /// Images that came out of the queue and have no form in the protocol of this stream.
    pub untaken: Arc<AtomicU64>,
}

impl Reports for Told {
    fn failed(&mut self, error: &SinkError, _: u64) {
        let message = format!("consumer '{}': {}", self.name, error.what);
        let data = json!({ "consumer": self.name, "why": error.why, "fix": error.fix });
        self.events.add(Some(&self.detector), "consumer", Severity::Warning, message, data);
    }

    fn ended(&mut self, _: &Arc<SeriesEnd>, unwritten: u64) {
        self.untaken.fetch_add(unwritten, Ordering::Relaxed);
    }

    fn looked(&mut self, reader: &OutletReader) {
        let is_connected = (self.peers)() > 0;
        reader.set_connected(is_connected);
        if self.was_connected.replace(is_connected) != Some(is_connected) {
            let word = if is_connected { "is there" } else { "is not there" };
            let message = format!("consumer '{}' {word}", self.name);
            let data = json!({ "consumer": self.name, "connected": is_connected });
            self.events.add(Some(&self.detector), "consumer", Severity::Info, message, data);
        }
    }
}

/// A sink behind its outlet.
struct Delivery<S, R> {
    sink: S,
    reports: R,
    /// It failed in this series, which goes past it.
    failed: bool,
    in_series: bool,
    unwritten: u64,
}

impl<S: SeriesSink, R: Reports> Delivery<S, R> {
    fn note(&mut self, result: Result<(), SinkError>) {
        if let Err(error) = result {
            self.failed = true;
            self.reports.failed(&error, self.unwritten);
        }
    }

    fn take(&mut self, item: &Item) {
        match item {
            Item::Start(start) => {
                (self.failed, self.in_series, self.unwritten) = (false, true, 0);
                let result = guarded(|| self.sink.start(start));
                // Of a series that it did not take, a sink gets no end either.
                self.in_series = result.is_ok();
                self.note(result);
            }
            Item::Image(image) => {
                let result = if self.failed { None } else { Some(guarded(|| self.sink.image(image))) };
                if image.status.has_pixels() {
                    if matches!(result, Some(Ok(()))) {
                        self.reports.taken(image);
                    } else {
                        self.unwritten += 1;
                        self.reports.passed(image);
                    }
                }
                self.note(result.unwrap_or(Ok(())));
            }
            Item::End(end) => {
                if std::mem::take(&mut self.in_series) {
                    let result = guarded(|| self.sink.end(end));
                    self.note(result);
                }
                self.reports.ended(end, self.unwritten);
                self.failed = false;
            }
        }
    }
}

/// Starts the thread of a consumer; it ends when its outlet is removed.
///
/// # Errors
/// The machine has no threads left.
pub fn spawn<S, R>(
    name: &str,
    mut reader: OutletReader,
    sink: S,
    reports: R,
    now_ns: impl Fn() -> u64 + Send + 'static,
) -> io::Result<JoinHandle<()>>
where
    S: SeriesSink + 'static,
    R: Reports + 'static,
{
    let mut delivery = Delivery { sink, reports, failed: false, in_series: false, unwritten: 0 };
    let work = move || {
        let mut items = Vec::new();
        loop {
            // Without a series there is nothing to write, and what ends the thread wakes it.
            let patience = if delivery.in_series { TICK } else { delivery.reports.patience() };
            let is_open = reader.take(patience, &mut items);
            items.iter().for_each(|item| delivery.take(item));
            items.clear();
            if !delivery.failed {
                let result = guarded(|| delivery.sink.tick(now_ns()));
                delivery.note(result);
            }
            delivery.reports.looked(&reader);
            if !is_open {
                return;
            }
        }
    };
    std::thread::Builder::new().name(format!("out-{name}")).spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::series::{SeriesEnded, SeriesLedger};
    use konkordia_engine::outlet::{OnFull, OutletSpec, Outlets, Service};
    use std::sync::Mutex;

    type Log = Arc<Mutex<Vec<String>>>;

    struct Picky(Log);

    impl SeriesSink for Picky {
        fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
            self.0.lock().unwrap().push(format!("start {}", start.series));
            if start.series == 2 { Err(error("no series 2")) } else { Ok(()) }
        }
        fn image(&mut self, image: &Arc<SeriesImage>) -> Result<(), SinkError> {
            self.0.lock().unwrap().push(format!("image {}", image.number));
            if image.number == 1 { Err(error("no image 1")) } else { Ok(()) }
        }
        fn end(&mut self, _: &Arc<SeriesEnd>) -> Result<(), SinkError> {
            self.0.lock().unwrap().push("end".into());
            Ok(())
        }
        fn tick(&mut self, _: u64) -> Result<(), SinkError> {
            Ok(())
        }
    }

    fn error(what: &str) -> SinkError {
        SinkError { what: what.into(), why: String::new(), fix: String::new() }
    }

    struct Notes(Log);

    impl Reports for Notes {
        fn failed(&mut self, error: &SinkError, _: u64) {
            self.0.lock().unwrap().push(format!("failed: {}", error.what));
        }
        fn ended(&mut self, _: &Arc<SeriesEnd>, unwritten: u64) {
            self.0.lock().unwrap().push(format!("ended, {unwritten} unwritten"));
        }
        fn looked(&mut self, _: &OutletReader) {}
    }

    #[test]
    fn a_sink_that_fails_hears_the_end_of_its_series_and_the_next_one_whole() {
        let log: Log = Arc::default();
        let outlets = Outlets::new(None);
        let service = Service::Reliable { on_full: OnFull::Wait };
        let reader = outlets.add(OutletSpec { name: "a".into(), service, queue_images: 8, queue_bytes: 1 << 20 });
        let thread = spawn("a", reader, Picky(Arc::clone(&log)), Notes(Arc::clone(&log)), || 0).unwrap();
        let end = Arc::new(SeriesEnd { ended: SeriesEnded::Finished, reason: String::new(), ledger: SeriesLedger::default() });
        for series in [1, 2, 3] {
            outlets.start(&Arc::new(SeriesStart { series, ..SeriesStart::default() }), &|| false);
            for number in [0, if series == 1 { 1 } else { 5 }, 2] {
                let image = SeriesImage { status: konkordia_core::ledger::ImageStatus::Complete, ..SeriesImage::lost(number) };
                outlets.image(&Arc::new(image), &|| false);
            }
            outlets.end(&end);
        }
        outlets.remove("a");
        thread.join().unwrap();
        let expected = [
            "start 1",
            "image 0",
            "image 1",
            "failed: no image 1",
            "end",
            "ended, 2 unwritten",
            "start 2",
            "failed: no series 2",
            "ended, 3 unwritten",
            "start 3",
            "image 0",
            "image 5",
            "image 2",
            "end",
            "ended, 0 unwritten",
        ];
        assert_eq!(*log.lock().unwrap(), expected);
    }
}
