//! Images of a run over UDP on their way to those who look and to streams, with the counts and times that the service tells.

use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Plan;
use konkordia_core::ports::{CommittedImage, Sink, SinkError};
use konkordia_core::series::SeriesStart;
use konkordia_engine::outlet::Outlets;
use konkordia_engine::run_tap::RunTap;
use konkordia_kernels::isa::Isa;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known of the images of a run as they are committed.
#[derive(Debug, Default)]
pub struct ImageCounts {
    /// Complete.
    pub complete: AtomicU64,
    /// Some packets are missing.
    pub partial: AtomicU64,
    /// No packet came.
    pub lost: AtomicU64,
    /// Left out by policy.
    pub discarded: AtomicU64,
    /// Consumers were told that the run begins.
    pub begun: AtomicBool,
}

impl ImageCounts {
    fn enter(&self, status: ImageStatus) {
        let counter = match status {
            ImageStatus::Complete => &self.complete,
            ImageStatus::Partial => &self.partial,
            ImageStatus::Lost => &self.lost,
            ImageStatus::Discarded => &self.discarded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// When the images of the ring were committed.
#[derive(Debug)]
pub struct Stamps {
    images_max: usize,
    list: Mutex<VecDeque<(u64, Instant)>>,
}

impl Stamps {
    /// For a ring of so many images.
    pub fn new(images_max: usize) -> Self {
        Self { images_max, list: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Instant)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, number: u64) {
        let mut list = self.lock();
        if list.len() >= self.images_max {
            list.pop_front();
        }
        list.push_back((number, Instant::now()));
    }

    /// Time since the image of this number was committed, if it is one of the newest.
    pub fn age(&self, number: u64) -> Option<Duration> {
        self.lock().iter().rev().find(|(n, _)| *n == number).map(|(_, at)| at.elapsed())
    }
}

/// The sink of one run: counts, and hands the images on. Consumers hear of the run when it begins, not of an arm that came to nothing.
pub struct RunSink {
    plan: Arc<Plan>,
    start: Option<SeriesStart>,
    outlets: Arc<Outlets>,
    counts: Arc<ImageCounts>,
    stamps: Arc<Stamps>,
    /// The run is being cancelled: nobody is waited for.
    give_up: Arc<AtomicBool>,
    tap: Option<RunTap>,
}

impl RunSink {
    /// For the images of `plan`.
    pub fn new(
        plan: Arc<Plan>,
        start: SeriesStart,
        outlets: Arc<Outlets>,
        (counts, stamps): (Arc<ImageCounts>, Arc<Stamps>),
        give_up: Arc<AtomicBool>,
    ) -> Self {
        Self { plan, start: Some(start), outlets, counts, stamps, give_up, tap: None }
    }

    fn begin(&mut self) {
        if let Some(start) = self.start.take() {
            let give_up = Arc::clone(&self.give_up);
            let waits = move || give_up.load(Ordering::Acquire);
            self.tap = Some(RunTap::new(&self.plan, Isa::detect(), start, Arc::clone(&self.outlets), waits));
            self.counts.begun.store(true, Ordering::Release);
        }
    }
}

impl Sink for RunSink {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        self.begin();
        self.counts.enter(image.head.status);
        if let Some(tap) = &mut self.tap {
            tap.write(image)?;
        }
        if image.head.status.has_pixels() {
            self.stamps.note(image.image);
        }
        Ok(())
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SinkError> {
        self.begin();
        Ok(())
    }
}
