//! One thread per sink: hands it what its output queue brings. After an error the sink sees nothing more of the series
//! but its end.

use super::control::{Notice, SeriesControl};
use crate::contain::contain;
use crate::output_queue::{Item, OutputQueueReader};
use konkordia_core::ports::{SeriesSink, SinkError};
use konkordia_core::series::SeriesImage;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time without a tick.
const TICK: Duration = Duration::from_millis(100);

/// The thread of a sink. Dropping it ends the thread after it has taken what is queued.
pub struct SinkThread {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_ending: AtomicBool,
    written: AtomicU64,
    unwritten: AtomicU64,
    series_ended: AtomicU64,
}

impl SinkThread {
    /// Images with pixels that the sink took.
    pub fn written(&self) -> u64 {
        self.state.written.load(Ordering::Relaxed)
    }

    /// Images with pixels that it did not take because it had failed.
    pub fn unwritten(&self) -> u64 {
        self.state.unwritten.load(Ordering::Relaxed)
    }

    /// Series that are brought into their final state.
    pub fn series_ended(&self) -> u64 {
        self.state.series_ended.load(Ordering::Acquire)
    }

    /// True when its output queue was removed and everything has been taken, or the thread has ended otherwise.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for SinkThread {
    fn drop(&mut self) {
        self.state.is_ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A call of a sink; a panic in it is a failure of the sink.
///
/// # Errors
/// The sink's, or its panic.
pub fn guarded(call: impl FnOnce() -> Result<(), SinkError>) -> Result<(), SinkError> {
    contain(call).unwrap_or_else(|panic| {
        Err(SinkError {
            what: format!("a bug in konkordia, on the thread {}", panic.thread),
            why: panic.why,
            fix: "please report this text with the configuration; `konkordia repair FILE` saves what is in the files".into(),
        })
    })
}

struct Delivery {
    name: String,
    sink: Box<dyn SeriesSink>,
    control: Arc<SeriesControl>,
    state: Arc<State>,
    /// The sink takes no more of this series.
    error: Option<SinkError>,
    /// Images of this series that it did not take.
    unwritten: u64,
}

/// Starts the thread that drains `reader` into `sink`.
///
/// # Errors
/// The thread cannot be started.
pub fn spawn_sink(
    name: &str,
    reader: OutputQueueReader,
    sink: Box<dyn SeriesSink>,
    control: Arc<SeriesControl>,
) -> io::Result<SinkThread> {
    let state = Arc::new(State::default());
    let delivery = Delivery { name: name.into(), sink, control, state: Arc::clone(&state), error: None, unwritten: 0 };
    let thread = super::run::spawn(format!("sink-{name}"), move || delivery.run(reader))?;
    Ok(SinkThread { state, thread: Some(thread) })
}

impl Delivery {
    fn run(mut self, mut reader: OutputQueueReader) {
        let (mut items, mut ticked) = (Vec::new(), Instant::now());
        loop {
            // What was queued before the end was asked for is still taken.
            let is_ending = self.state.is_ending.load(Ordering::Acquire);
            let patience = if is_ending { Duration::ZERO } else { TICK.saturating_sub(ticked.elapsed()) };
            let is_open = reader.take(patience, &mut items);
            let is_empty = items.is_empty();
            for item in items.drain(..) {
                self.take(item);
                self.tick(&mut ticked);
            }
            self.tick(&mut ticked);
            if !is_open || (is_ending && is_empty) {
                return;
            }
        }
    }

    fn tick(&mut self, ticked: &mut Instant) {
        if ticked.elapsed() < TICK {
            return;
        }
        *ticked = Instant::now();
        if self.error.is_none()
            && let Err(error) = guarded(|| self.sink.tick(self.control.now_ns()))
        {
            self.fail(error);
        }
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Start(start) => {
                (self.error, self.unwritten) = (None, 0);
                if let Err(error) = guarded(|| self.sink.start(&start)) {
                    self.fail(error);
                }
            }
            Item::Image(image) => self.image(&image),
            Item::End(end) => {
                // Also after an error: what was written is brought into a final state.
                let result = guarded(|| self.sink.end(&end));
                match (self.error.take(), result) {
                    (Some(error), _) => self.notify(error),
                    (None, Err(error)) => self.notify(error),
                    (None, Ok(())) => {}
                }
                self.unwritten = 0;
                self.state.series_ended.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn image(&mut self, image: &Arc<SeriesImage>) {
        let wanted = u64::from(image.status.has_pixels());
        if self.error.is_none() {
            match guarded(|| self.sink.image(image)) {
                Ok(()) => {
                    self.state.written.fetch_add(wanted, Ordering::Relaxed);
                    return;
                }
                Err(error) => self.fail(error),
            }
        }
        self.unwritten += wanted;
        self.state.unwritten.fetch_add(wanted, Ordering::Relaxed);
    }

    fn fail(&mut self, error: SinkError) {
        self.notify(error.clone());
        self.error = Some(error);
    }

    fn notify(&self, error: SinkError) {
        self.control.notify(Notice::SinkFailed { sink: self.name.clone(), error, unwritten: self.unwritten });
    }
}
