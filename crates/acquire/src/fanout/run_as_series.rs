//! Passes the images of a UDP run on to the preview buffer and to streams, and keeps the counts and times that the
//! service reports.

use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Plan;
use konkordia_core::ports::{CommittedImage, Sink, SinkError};
use konkordia_core::series::SeriesStart;
use konkordia_engine::output_queue::OutputQueues;
use konkordia_engine::run_as_series::RunAsSeries;
use konkordia_kernels::isa::Isa;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The images of a run by state, counted as they are committed.
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
    /// Consumers have got the start of the run.
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

/// When the images in the preview buffer were committed.
#[derive(Debug)]
pub struct Stamps {
    images_max: usize,
    list: Mutex<VecDeque<(u64, Instant)>>,
}

impl Stamps {
    /// For a preview buffer of so many images.
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

/// The sink of one run: counts the images and passes them on. Consumers get its start only when the run begins, so that
/// they do not see an arm without a run.
pub struct RunSink {
    plan: Arc<Plan>,
    start: Option<SeriesStart>,
    output_queues: Arc<OutputQueues>,
    counts: Arc<ImageCounts>,
    stamps: Arc<Stamps>,
    /// The run is being cancelled: nobody waits for consumers.
    give_up: Arc<AtomicBool>,
    series: Option<RunAsSeries>,
}

impl RunSink {
    /// For the images of `plan`.
    pub fn new(
        plan: Arc<Plan>,
        start: SeriesStart,
        output_queues: Arc<OutputQueues>,
        (counts, stamps): (Arc<ImageCounts>, Arc<Stamps>),
        give_up: Arc<AtomicBool>,
    ) -> Self {
        Self { plan, start: Some(start), output_queues, counts, stamps, give_up, series: None }
    }

    fn begin(&mut self) {
        if let Some(start) = self.start.take() {
            let give_up = Arc::clone(&self.give_up);
            let waits = move || give_up.load(Ordering::Acquire);
            self.series = Some(RunAsSeries::new(&self.plan, Isa::detect(), start, Arc::clone(&self.output_queues), waits));
            self.counts.begun.store(true, Ordering::Release);
        }
    }
}

impl Sink for RunSink {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        self.begin();
        self.counts.enter(image.head.status);
        if let Some(series) = &mut self.series {
            series.write(image)?;
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
