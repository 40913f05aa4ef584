//! Who gets the images of a detector beside its files: the preview buffer with the newest images, and consumers of
//! streams.

pub mod consumer;
pub mod held_back;
pub mod of_run;

use super::events::EventLog;
use super::handle::{ConsumerStatistics, ImageRing, RingImage};
use super::remote::sender::{RemoteSink, State};
use consumer::ConsumerEvents;
use konkordia_config::service::{ConsumerSettings, DetectorConfig};
use konkordia_config::settings::{ServiceSettings, WriterLink, WriterTakes};
use konkordia_config::writers::WriterSettings;
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::{ServiceLevel, Sink};
use konkordia_core::results::ImageResults;
use konkordia_core::series::SeriesStart;
use konkordia_engine::deliver;
use konkordia_engine::output_queue::{OutputQueue, OutputQueueReader, OutputQueueSpec, OutputQueues, PreviewBuffer};
use konkordia_engine::series::protocols;
use konkordia_fabric::remote::Kept;
use konkordia_links::kind::Kind;
use konkordia_links::verbs::Service;
use konkordia_sinks::zmq::{Context, StreamSink, StreamStats, ZmqOut, ZmqOutKind, ZmqOutSpec};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Messages that may wait inside libzmq for each receiver. The queue that counts is our own.
const SOCKET_QUEUE: i32 = 4;

/// The run that a series is, and its facts where its start does not say all; `None` until the detector has numbered it.
pub type RunOf = Box<dyn Fn(&Arc<SeriesStart>) -> Option<NumberedRun> + Send + Sync>;

/// A run that the detector has numbered.
#[derive(Clone)]
pub struct NumberedRun {
    /// Its number.
    pub run: u64,
    /// Its facts, with those of the configuration.
    pub facts: Option<Arc<Metadata>>,
}

/// The preview buffer as HTTP sees it.
pub struct Ring {
    preview: Arc<PreviewBuffer>,
    run_of: RunOf,
}

impl Ring {
    /// A view of the preview buffer `preview`.
    pub fn new(preview: Arc<PreviewBuffer>, run_of: RunOf) -> Self {
        Self { preview, run_of }
    }
}

impl ImageRing for Ring {
    fn get(&self, number: Option<u64>, asked: Instant) -> Option<RingImage> {
        let planes = self.preview.look(number, asked)?;
        let (run, facts) = (self.run_of)(planes.start()).map_or((None, None), |known| (Some(known.run), known.facts));
        Some(RingImage { planes, run, facts })
    }

    fn newest_bytes(&self) -> Option<(u64, u64)> {
        self.preview.newest_bytes()
    }

    fn forget_pixels(&self, unasked_for: Duration) {
        self.preview.forget_pixels(unasked_for);
    }

    fn newest_results(&self) -> Option<ImageResults> {
        self.preview.newest_results()
    }

    fn numbers(&self) -> (Vec<u64>, Option<u64>) {
        (self.preview.numbers(), self.preview.series().and_then(|start| (self.run_of)(&start)).map(|known| known.run))
    }

    fn age(&self, number: u64) -> Option<Duration> {
        self.preview.age(number)
    }
}

/// The runs of the series of a stream, by the start of the series. An entry does not keep the start and its tables
/// alive. It goes when nothing else holds the start: the preview buffer and the output queues bound how many there are.
#[derive(Default)]
pub struct SeriesRuns(Mutex<Vec<(Weak<SeriesStart>, NumberedRun)>>);

impl SeriesRuns {
    fn lock(&self) -> MutexGuard<'_, Vec<(Weak<SeriesStart>, NumberedRun)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The series with this start is this run.
    pub fn enter(&self, start: &Arc<SeriesStart>, run: NumberedRun) {
        let mut list = self.lock();
        list.retain(|(other, _)| other.strong_count() > 0);
        list.push((Arc::downgrade(start), run));
    }

    /// The run of the series with this very start.
    pub fn run_of(&self, start: &Arc<SeriesStart>) -> Option<NumberedRun> {
        self.lock().iter().find(|(other, _)| std::ptr::eq(other.as_ptr(), Arc::as_ptr(start))).map(|(_, run)| run.clone())
    }
}

/// One consumer of the configuration.
struct Consumer {
    /// Nothing is armed without it.
    required: bool,
    /// Its table in the configuration.
    table: &'static str,
    takes: WriterTakes,
    address: String,
    output_queue: Arc<OutputQueue>,
    stats: Arc<StreamStats>,
    /// Images that came out of the queue and were not sent: the protocol cannot carry them, or an earlier one failed.
    unsendable: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The fan-out of one detector, for the life of the service.
pub struct Fanout {
    /// The output queues.
    pub output_queues: Arc<OutputQueues>,
    /// Those of writers of raw frames.
    raw_queues: Arc<OutputQueues>,
    /// The preview buffer.
    pub preview: Arc<PreviewBuffer>,
    /// The runs of the series that may have images in the preview buffer.
    pub series_runs: Arc<SeriesRuns>,
    /// Zero of the consumers' clock.
    pub began: Instant,
    consumers: Vec<Consumer>,
    /// True: nobody waits for consumers any more.
    stop: Arc<AtomicBool>,
}

impl Fanout {
    /// Opens the preview buffer, and a thread for each configured consumer.
    ///
    /// # Errors
    /// A consumer's address cannot be used.
    pub fn open(config: &DetectorConfig, settings: &ServiceSettings, events: &EventLog) -> Result<Self, Failure> {
        let preview = Arc::new(PreviewBuffer::new(settings.ring_images, settings.ring_bytes));
        let output_queues = OutputQueues::new((settings.ring_images > 0).then(|| Arc::clone(&preview)));
        let mut fanout = Self::without_consumers(preview, output_queues);
        for wanted in config.writers() {
            fanout.add_writer(&config.name, wanted, events)?;
        }
        if config.consumers.is_empty() {
            return Ok(fanout);
        }
        let context = Context::new();
        for wanted in &config.consumers {
            let consumer = fanout.add(&context, &config.name, wanted, events)?;
            fanout.consumers.push(consumer);
        }
        Ok(fanout)
    }

    fn without_consumers(preview: Arc<PreviewBuffer>, output_queues: OutputQueues) -> Self {
        let (series_runs, began, consumers) = (Arc::default(), Instant::now(), Vec::new());
        let (output_queues, raw_queues, stop) = (Arc::new(output_queues), Arc::default(), Arc::default());
        Self { output_queues, raw_queues, preview, series_runs, began, consumers, stop }
    }

    fn add(&self, context: &Context, detector: &str, wanted: &ConsumerSettings, events: &EventLog) -> Result<Consumer, Failure> {
        let fail = |why: String| {
            let what = format!("the stream for consumer '{}' of '{detector}' cannot be opened", wanted.name);
            Failure::new(Exit::Io, what, why, "correct [[stream]] in the configuration")
        };
        let kind = match (wanted.publish, wanted.service) {
            (false, _) => ZmqOutKind::Push,
            // A plain PUB socket drops messages without counting them.
            (true, ServiceLevel::Reliable | ServiceLevel::ReliableSkip) => ZmqOutKind::PubReliable,
            (true, ServiceLevel::Latest) => ZmqOutKind::Pub,
        };
        let linger = Duration::from_millis(500);
        let (address, bind, peers_max) = (wanted.address.clone(), wanted.bind, crate::machine::connections_per_port());
        let spec = ZmqOutSpec { address, bind, kind, queue_messages: SOCKET_QUEUE, linger, peers_max };
        let out = ZmqOut::open(context, &spec).map_err(|error| fail(reason(&error)))?;
        let address = out.name().to_string();
        let encoder = protocols::encoder(wanted.protocol);
        let encoder = encoder.ok_or_else(|| fail(format!("nothing is sent in the protocol {}", wanted.protocol.name())))?;
        // The output queue decides what happens when a receiver is full. This thread waits for its own receiver only.
        let sink = StreamSink::new(out, encoder, Arc::clone(&self.stop));
        let stats = sink.stats();
        let sizes = (wanted.queue_images, wanted.queue_bytes);
        let reader = queue(&self.output_queues, &wanted.name, wanted.service, sizes);
        let (output_queue, unsendable) = (Arc::clone(reader.output_queue()), Arc::default());
        let consumer = Consumer {
            required: wanted.required,
            table: "[[stream]]",
            takes: WriterTakes::Images,
            address,
            output_queue,
            stats,
            unsendable,
            thread: Mutex::default(),
        };
        self.started(consumer, reader, sink, detector, events).map_err(|error| fail(reason(&error)))
    }

    fn add_writer(&mut self, detector: &str, wanted: &WriterSettings, events: &EventLog) -> Result<(), Failure> {
        let fail = |why: String, fix: &str| {
            let what = format!("the writer '{}' of '{detector}' cannot be used", wanted.name);
            Failure::new(Exit::Io, what, why, fix)
        };
        let link = kind_of(&wanted.link);
        link.check().map_err(|error| fail(error.to_string(), "mend this, or use another link in [[writer]]"))?;
        let queues = match wanted.takes {
            WriterTakes::Images => &self.output_queues,
            WriterTakes::Raw => &self.raw_queues,
        };
        let reader = queue(queues, &wanted.name, wanted.service, (wanted.queue_images, wanted.queue_bytes));
        let (output_queue, stats) = (Arc::clone(reader.output_queue()), Arc::<StreamStats>::default());
        let unsendable = Arc::default();
        let (told, of) = (events.clone(), detector.to_string());
        let sink = RemoteSink {
            name: wanted.name.clone(),
            address: wanted.address.clone(),
            link,
            kept: Kept { images: wanted.keep_images, bytes: wanted.keep_bytes },
            stop: Arc::clone(&self.stop),
            stats: Arc::clone(&stats),
            queue: Arc::clone(&output_queue),
            tell: Box::new(move |severity, message, data| told.add(Some(&of), "writer", severity, message, data)),
            state: State::default(),
        };
        let consumer = Consumer {
            required: wanted.required,
            table: "[[writer]]",
            takes: wanted.takes,
            address: wanted.address.clone(),
            output_queue,
            stats,
            unsendable,
            thread: Mutex::default(),
        };
        let started = self.started(consumer, reader, sink, detector, events);
        self.consumers.push(started.map_err(|error| fail(reason(&error), "end other programs"))?);
        Ok(())
    }

    /// Starts the thread that hands the queue of a consumer to its sink.
    fn started(
        &self,
        consumer: Consumer,
        reader: OutputQueueReader,
        sink: impl Sink + 'static,
        detector: &str,
        events: &EventLog,
    ) -> io::Result<Consumer> {
        let (peers, name, began) = (Arc::clone(&consumer.stats), &consumer.output_queue.spec().name, self.began);
        let reports = ConsumerEvents {
            events: events.clone(),
            detector: detector.into(),
            name: name.clone(),
            peers: Box::new(move || peers.peers.load(Ordering::Relaxed)),
            was_connected: Some(false),
            unsendable: Arc::clone(&consumer.unsendable),
        };
        let thread = deliver::spawn(name, reader, sink, reports, move || began.elapsed().as_nanos() as u64)?;
        Ok(Consumer { thread: Mutex::new(Some(thread)), ..consumer })
    }

    /// True if files are written on other hosts too.
    pub fn has_writers(&self) -> bool {
        self.consumers.iter().any(|consumer| consumer.table == "[[writer]]" && consumer.takes == WriterTakes::Images)
    }

    /// Those who write raw frames on other hosts, if there are any.
    pub fn raw_writers(&self) -> Option<&Arc<OutputQueues>> {
        self.consumers.iter().any(|consumer| consumer.takes == WriterTakes::Raw).then_some(&self.raw_queues)
    }

    /// Checks that all consumers are connected without which nothing may be armed.
    ///
    /// # Errors
    /// One of them is not.
    pub fn check_required(&self) -> Result<(), Failure> {
        let absent = |c: &&Consumer| c.required && c.stats.peers.load(Ordering::Relaxed) == 0;
        let Some(consumer) = self.consumers.iter().find(absent) else { return Ok(()) };
        let what = format!("consumer '{}' is not connected", consumer.output_queue.spec().name);
        let why = format!("the configuration says that nothing is armed without it; it is expected at {}", consumer.address);
        let fix = format!("start it, or set required = false for it in {}", consumer.table);
        Err(Failure::new(Exit::State, what, why, fix))
    }

    /// What the consumers have received; how full their queues are is added to `queues`.
    pub fn statistics(&self, queues: &mut BTreeMap<String, f64>) -> Vec<ConsumerStatistics> {
        let look = |consumer: &Consumer| {
            let (output_queue, stream) = (consumer.output_queue.stats(), &consumer.stats);
            let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
            let unsent = load(&stream.skipped) + load(&stream.nobody) + load(&consumer.unsendable);
            let queued = load(&output_queue.queued);
            let spec = consumer.output_queue.spec();
            queues.insert(format!("output_{}", spec.name), (queued as f64 / spec.queue_images as f64).min(1.0));
            ConsumerStatistics {
                name: spec.name.clone(),
                address: consumer.address.clone(),
                service: spec.service.name().into(),
                connected: load(&stream.peers) > 0,
                delivered: load(&output_queue.delivered).saturating_sub(unsent),
                skipped: load(&output_queue.skipped) + unsent,
                lag_images: queued,
            }
        };
        self.consumers.iter().map(look).collect()
    }

    /// From now on nobody waits for consumers: what a consumer does not take at once is skipped, and counted.
    pub fn give_up(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Nothing more comes. The consumers get what waits for them, and end.
    fn end(&self) {
        for consumer in &self.consumers {
            let queues = if consumer.takes == WriterTakes::Raw { &self.raw_queues } else { &self.output_queues };
            queues.remove(&consumer.output_queue.spec().name);
        }
    }

    /// True when all consumers have ended.
    fn is_over(&self) -> bool {
        let is_over = |thread: &Mutex<Option<JoinHandle<()>>>| {
            thread.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(JoinHandle::is_finished)
        };
        self.consumers.iter().all(|consumer| is_over(&consumer.thread))
    }

    /// Ends the consumers. Images that wait for a consumer that does not take them are dropped.
    pub fn close(&self) {
        self.give_up();
        self.end();
        for consumer in &self.consumers {
            let thread = consumer.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
    }
}

/// The output queue of a consumer, to whom nobody is connected yet.
fn queue(queues: &OutputQueues, name: &str, service: ServiceLevel, sizes: (usize, u64)) -> OutputQueueReader {
    let (queue_images, queue_bytes) = sizes;
    let reader = queues.add(OutputQueueSpec { name: name.into(), service, queue_images, queue_bytes, borrows: false });
    reader.set_connected(false);
    reader
}

/// The kind of link that the configuration names.
fn kind_of(link: &WriterLink) -> Kind {
    match link {
        WriterLink::Tcp => Kind::Tcp,
        WriterLink::Shm => Kind::Shm,
        WriterLink::Libfabric(provider) => Kind::Libfabric { provider: provider.clone() },
        WriterLink::Verbs(device) => Kind::Verbs { device: device.clone(), service: Service::Reliable },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_keeps_its_run_as_long_as_somebody_holds_its_start_and_no_longer() {
        let runs = SeriesRuns::default();
        let start = || Arc::new(SeriesStart::default());
        let numbered = |run| NumberedRun { run, facts: None };
        let run_of = |start: &_| runs.run_of(start).map(|known| known.run);
        let kept = start();
        runs.enter(&kept, numbered(1));
        // Series without images leave nothing behind, however many they are.
        for run in 2..100 {
            let begun = start();
            assert_eq!(run_of(&begun), None);
            runs.enter(&begun, numbered(run));
            assert_eq!((run_of(&begun), run_of(&kept)), (Some(run), Some(1)));
        }
        runs.enter(&kept, numbered(1));
        assert!(runs.lock().len() == 2 && Arc::strong_count(&kept) == 1);
    }
}
