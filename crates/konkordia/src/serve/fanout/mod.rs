//! Who gets the images of a detector beside its files: the ring of the newest ones, and consumers of streams.

pub mod consumer;
pub mod held_back;
pub mod run_tap;

use super::events::EventLog;
use super::handle::{ConsumerStatistics, ImageRing};
use super::settings::ServiceSettings;
use crate::config::service::{ConsumerSettings, DetectorConfig, OutProtocol, ServiceLevel};
use crate::failure::{Exit, Failure, reason};
use consumer::{Told, Words};
use konkordia_core::series::{SeriesImage, SeriesStart};
use konkordia_engine::outlet::{OnFull, Outlet, OutletSpec, Outlets, Service, Tap};
use konkordia_engine::series::encode::Outgoing;
use konkordia_sinks::zmq::{Context, OnFull as SocketOnFull, StreamSink, StreamStats, ZmqOut, ZmqOutKind, ZmqOutSpec};
use run_tap::Stamps;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Messages that may wait inside of libzmq for each receiver; the queue that counts is ours.
const SOCKET_QUEUE: i32 = 4;

/// How old an image of the ring is.
pub type Age = Box<dyn Fn(&SeriesImage) -> Option<Duration> + Send + Sync>;

/// The newest images as HTTP sees them.
pub struct Ring {
    tap: Arc<Tap>,
    age: Age,
}

impl Ring {
    /// The ring of `tap`.
    pub fn new(tap: Arc<Tap>, age: Age) -> Self {
        Self { tap, age }
    }
}

impl ImageRing for Ring {
    fn get(&self, number: Option<u64>) -> Option<(Arc<SeriesStart>, Arc<SeriesImage>)> {
        let tapped = match number {
            Some(number) => self.tap.image_at(number),
            None => self.tap.newest(),
        }?;
        Some((tapped.start, tapped.image))
    }

    fn numbers(&self) -> Vec<u64> {
        self.tap.numbers()
    }

    fn age(&self, number: u64) -> Option<Duration> {
        (self.age)(&self.tap.image_at(number)?.image)
    }
}

/// One consumer of the configuration.
struct Consumer {
    settings: ConsumerSettings,
    address: String,
    outlet: Arc<Outlet>,
    stats: Arc<StreamStats>,
    /// Images that its protocol cannot say, or that were left out after one that failed.
    untaken: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The fan-out of one detector, for the life of the service.
pub struct Fanout {
    /// The writing side.
    pub outlets: Arc<Outlets>,
    /// The ring.
    pub tap: Arc<Tap>,
    /// When images of runs over UDP were committed.
    pub stamps: Arc<Stamps>,
    /// Zero of the clock of the consumers.
    pub began: Instant,
    consumers: Vec<Consumer>,
    /// Nobody is waited for any more.
    stop: Arc<AtomicBool>,
}

impl Fanout {
    /// The ring, and a thread for each consumer of the configuration.
    ///
    /// # Errors
    /// A consumer's address cannot be used.
    pub fn open(config: &DetectorConfig, settings: &ServiceSettings, events: &EventLog) -> Result<Self, Failure> {
        let tap = Arc::new(Tap::new(settings.ring_images, settings.ring_bytes));
        let outlets = Arc::new(Outlets::new((settings.ring_images > 0).then(|| Arc::clone(&tap))));
        let stamps = Arc::new(Stamps::new(settings.ring_images.max(1)));
        let mut fanout = Self { outlets, tap, stamps, began: Instant::now(), consumers: Vec::new(), stop: Arc::default() };
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

    fn add(&self, context: &Context, detector: &str, wanted: &ConsumerSettings, events: &EventLog) -> Result<Consumer, Failure> {
        let fail = |why: String| {
            let what = format!("the stream for consumer '{}' of '{detector}' cannot be opened", wanted.name);
            Failure::new(Exit::Io, what, why, "correct [[stream]] in the configuration")
        };
        let kind = match (wanted.publish, wanted.service) {
            (false, _) => ZmqOutKind::Push,
            // What such a socket drops by itself nobody counts.
            (true, ServiceLevel::Reliable | ServiceLevel::ReliableSkip) => ZmqOutKind::PubReliable,
            (true, ServiceLevel::Latest) => ZmqOutKind::Pub,
        };
        let linger = Duration::from_millis(500);
        let (address, bind, peers_max) = (wanted.address.clone(), wanted.bind, crate::machine::connections_per_port());
        let spec = ZmqOutSpec { address, bind, kind, queue_messages: SOCKET_QUEUE, linger, peers_max };
        let out = ZmqOut::open(context, &spec).map_err(|error| fail(reason(&error)))?;
        let address = out.name().to_string();
        let protocol = match wanted.protocol {
            OutProtocol::Stins => Outgoing::Stins,
            OutProtocol::DectrisV2 => Outgoing::DectrisV2,
            OutProtocol::SlsJson => Outgoing::SlsJson,
        };
        // What a full receiver costs is decided by the outlet; its thread waits for it alone.
        let sink = StreamSink::new(out, Words::of(protocol), SocketOnFull::Wait, Arc::clone(&self.stop));
        let stats = sink.stats();
        let service = match wanted.service {
            ServiceLevel::Reliable => Service::Reliable { on_full: OnFull::Wait },
            ServiceLevel::ReliableSkip => Service::Reliable { on_full: OnFull::Skip },
            ServiceLevel::Latest => Service::Latest,
        };
        let reader = self.outlets.add(OutletSpec {
            name: wanted.name.clone(),
            service,
            queue_images: wanted.queue_images,
            queue_bytes: wanted.queue_bytes,
        });
        reader.set_connected(false);
        let outlet = self.outlets.list().into_iter().find(|outlet| outlet.spec().name == wanted.name);
        let outlet = outlet.ok_or_else(|| fail("there are two of this name".into()))?;
        let (peers, untaken) = (Arc::clone(&stats), Arc::<AtomicU64>::default());
        let reports = Told {
            events: events.clone(),
            detector: detector.into(),
            name: wanted.name.clone(),
            peers: Box::new(move || peers.peers.load(Ordering::Relaxed)),
            was_connected: Some(false),
            untaken: Arc::clone(&untaken),
        };
        let began = self.began;
        let thread = consumer::spawn(&wanted.name, reader, sink, reports, move || began.elapsed().as_nanos() as u64);
        let thread = thread.map_err(|error| fail(reason(&error)))?;
        Ok(Consumer { settings: wanted.clone(), address, outlet, stats, untaken, thread: Mutex::new(Some(thread)) })
    }

    /// Whether everybody is there without whom nothing is armed.
    ///
    /// # Errors
    /// Somebody is not.
    pub fn check_required(&self) -> Result<(), Failure> {
        let absent = |c: &&Consumer| c.settings.required && c.stats.peers.load(Ordering::Relaxed) == 0;
        let Some(consumer) = self.consumers.iter().find(absent) else { return Ok(()) };
        let what = format!("consumer '{}' is not connected", consumer.settings.name);
        let why = format!("the configuration says that nothing is armed without it; it is expected at {}", consumer.address);
        Err(Failure::new(Exit::State, what, why, "start it, or set required = false for it in [[stream]]"))
    }

    /// How the consumers keep up; the fill of their queues goes to `queues`.
    pub fn statistics(&self, queues: &mut BTreeMap<String, f64>) -> Vec<ConsumerStatistics> {
        let look = |consumer: &Consumer| {
            let (outlet, stream) = (consumer.outlet.stats(), &consumer.stats);
            let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
            let unsent = load(&stream.skipped) + load(&stream.nobody) + load(&consumer.untaken);
            let queued = load(&outlet.queued);
            queues.insert(
                format!("outlet_{}", consumer.settings.name),
                (queued as f64 / consumer.settings.queue_images as f64).min(1.0),
            );
            ConsumerStatistics {
                name: consumer.settings.name.clone(),
                address: consumer.address.clone(),
                service: consumer.settings.service.name().into(),
                connected: load(&stream.peers) > 0,
                delivered: load(&outlet.delivered).saturating_sub(unsent),
                skipped: load(&outlet.skipped) + unsent,
                lag_images: queued,
            }
        };
        self.consumers.iter().map(look).collect()
    }

    /// From now on nobody is waited for: what a consumer does not take at once is skipped, and counted.
    pub fn give_up(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Ends the consumers; what waits for those who do not take it is given up.
    pub fn close(&self) {
        self.give_up();
        for consumer in &self.consumers {
            self.outlets.remove(&consumer.settings.name);
        }
        for consumer in &self.consumers {
            let thread = consumer.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
    }
}
