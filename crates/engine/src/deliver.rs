//! A sink behind its output queue. After an error it gets nothing more of the run or series but its end.

use crate::contain::{Panic, contain};
use crate::output_queue::{Item, OutputQueueReader};
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::series::SeriesEnd;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How often the sink's `tick` is called while nothing arrives.
const TICK: Duration = Duration::from_millis(100);

/// Gets the reports on what happens at a sink.
pub trait Reports: Send {
    /// The sink failed. It gets no more of this series, except its end; `unwritten` images were not taken so far.
    fn failed(&mut self, error: &SinkError, unwritten: u64);
    /// The sink panicked, which is a failure of it unless said otherwise.
    fn panicked(&mut self, panic: &Panic, unwritten: u64) {
        let error = SinkError {
            what: format!("a bug in konkordia, on the thread {}", panic.thread),
            why: panic.why.clone(),
            fix: "please report this text with the configuration; `konkordia repair FILE` saves what is in the files".into(),
        };
        self.failed(&error, unwritten);
    }
    /// A series has ended; `unwritten` images of it were not taken.
    fn ended(&mut self, end: &Arc<SeriesEnd>, unwritten: u64);
    /// The sink has taken an image with pixels.
    fn taken(&mut self, _image: &CommittedImage) {}
    /// The sink did not take an image with pixels, because it fails or has failed in this series.
    fn missed(&mut self, _image: &CommittedImage) {}
    /// The sink is done with a position, whatever became of it.
    fn passed(&mut self, _image: &CommittedImage) {}
    /// Called after each batch.
    fn looked(&mut self, _reader: &OutputQueueReader) {}
    /// Longest time between two batches while there is no series.
    fn patience(&self) -> Duration {
        TICK
    }
}

/// A sink, and who gets the reports of what happens at it.
pub struct Delivery<S: ?Sized, R> {
    /// Gets the reports.
    pub reports: R,
    /// The sink failed in this series and gets no more images of it.
    has_failed: bool,
    in_series: bool,
    unwritten: u64,
    /// The sink.
    pub sink: Box<S>,
}

/// What a call of a sink came to.
type Called = Result<Result<(), SinkError>, Panic>;

impl<S: Sink + ?Sized, R: Reports> Delivery<S, R> {
    /// A delivery to `sink`.
    pub fn new(sink: Box<S>, reports: R) -> Self {
        Self { sink, reports, has_failed: false, in_series: false, unwritten: 0 }
    }

    /// Hands over what comes, until the output queue is removed and everything has been taken.
    pub fn run(&mut self, mut reader: OutputQueueReader, now_ns: impl Fn() -> u64) {
        let mut items = Vec::with_capacity(reader.batch_max());
        loop {
            // Without a series there is nothing to write, so the wait may be long. Removing the queue wakes the thread.
            let patience = if self.in_series { TICK } else { self.reports.patience() };
            let is_open = reader.take(patience, &mut items);
            items.drain(..).for_each(|item| self.take(&item));
            if !self.has_failed {
                let called = contain(|| self.sink.tick(now_ns()));
                self.note(called);
            }
            self.reports.looked(&reader);
            if !is_open {
                return;
            }
        }
    }

    fn note(&mut self, called: Called) {
        match called {
            Ok(Ok(())) => return,
            Ok(Err(error)) => self.reports.failed(&error, self.unwritten),
            Err(panic) => self.reports.panicked(&panic, self.unwritten),
        }
        self.has_failed = true;
    }

    fn take(&mut self, item: &Item) {
        match item {
            Item::Start(start) => {
                (self.has_failed, self.in_series, self.unwritten) = (false, true, 0);
                let called = contain(|| self.sink.start(start));
                self.note(called);
                // A sink that did not take the start of a series does not get its end either.
                self.in_series = !self.has_failed;
            }
            Item::Image(image) => {
                let called = (!self.has_failed).then(|| contain(|| self.sink.image(image)));
                if image.status.has_pixels() {
                    if matches!(called, Some(Ok(Ok(())))) {
                        self.reports.taken(image);
                    } else {
                        self.unwritten += 1;
                        self.reports.missed(image);
                    }
                }
                self.reports.passed(image);
                if let Some(called) = called {
                    self.note(called);
                }
            }
            Item::End(end) => {
                if std::mem::take(&mut self.in_series) {
                    let called = contain(|| self.sink.end(end));
                    self.note(called);
                }
                self.reports.ended(end, self.unwritten);
                self.has_failed = false;
            }
        }
    }
}

/// Starts a thread that delivers to `sink`. It ends when its output queue is removed.
///
/// # Errors
/// The machine has no threads left.
pub fn spawn<S, R>(
    name: &str,
    reader: OutputQueueReader,
    sink: S,
    reports: R,
    now_ns: impl Fn() -> u64 + Send + 'static,
) -> io::Result<JoinHandle<()>>
where
    S: Sink + 'static,
    R: Reports + 'static,
{
    let mut delivery = Delivery::new(Box::new(sink), reports);
    Builder::new().name(format!("out-{name}")).spawn(move || delivery.run(reader, now_ns))
}

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod tests;
