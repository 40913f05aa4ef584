//! What a GPU did in a run.

use konkordia_gpu::pipelines::AnyPipeline;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts the strips of a run with a GPU; the first failure is kept.
#[derive(Debug)]
pub(crate) struct GpuTally {
    name: String,
    reads_ring: bool,
    copies_because: Option<String>,
    by_gpu: AtomicU64,
    by_processor: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// What a GPU did so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReport {
    /// The device.
    pub name: String,
    /// It takes the words of frames from the ring by itself.
    pub reads_ring: bool,
    /// Why it does not, although it should: the threads bring them.
    pub copies_because: Option<String>,
    /// Strips of images that it made.
    pub strips: u64,
    /// Strips that its threads made without it: of frames that are not complete, and all after a failure. Those of the
    /// other workers are not counted.
    pub strips_by_processor: u64,
    /// Why it was given up in the run.
    pub failure: Option<String>,
}

impl GpuTally {
    /// For the pipelines of a run, which are all of one device.
    pub fn new(pipelines: &[Option<Box<dyn AnyPipeline>>]) -> Self {
        let all = || pipelines.iter().flatten();
        let name = all().next().map_or(String::new(), |pipeline| pipeline.device_name().into());
        let reads_ring = all().all(|pipeline| pipeline.takes_words());
        let copies_because = all().find_map(|pipeline| pipeline.not_taken()).map(ToString::to_string);
        Self {
            name,
            reads_ring,
            copies_because,
            by_gpu: AtomicU64::new(0),
            by_processor: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    pub fn by_gpu(&self, strips: u64) {
        self.by_gpu.fetch_add(strips, Ordering::Relaxed);
    }

    pub fn by_processor(&self, strips: u64) {
        self.by_processor.fetch_add(strips, Ordering::Relaxed);
    }

    /// Every thread of the GPU says it; the first one was there when it happened.
    pub fn fail(&self, why: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    pub fn read(&self) -> GpuReport {
        GpuReport {
            name: self.name.clone(),
            reads_ring: self.reads_ring,
            copies_because: self.copies_because.clone(),
            strips: self.by_gpu.load(Ordering::Relaxed),
            strips_by_processor: self.by_processor.load(Ordering::Relaxed),
            failure: self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl GpuReport {
    /// What the user must know, and what to do.
    pub fn warning(&self) -> Option<String> {
        if let Some(why) = &self.failure {
            return Some(format!("the GPU was given up in the run, and the processor made the other images: {why}"));
        }
        let why = self.copies_because.as_ref()?;
        Some(format!("frames are copied for the GPU, because it cannot read the ring: {why}"))
    }
}
