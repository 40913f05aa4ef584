//! What a GPU did in a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts the strips of a run with a GPU; the first failure is kept.
#[derive(Debug)]
pub(crate) struct GpuTally {
    name: String,
    by_gpu: AtomicU64,
    by_processor: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// What a GPU did so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReport {
    /// The device.
    pub name: String,
    /// Strips of images that it made.
    pub strips: u64,
    /// Strips that its threads made without it: of frames that are not complete, and all after a failure. Those of the
    /// other workers are not counted.
    pub strips_by_processor: u64,
    /// Why it was given up in the run.
    pub failure: Option<String>,
}

impl GpuTally {
    pub fn new(name: String) -> Self {
        Self { name, by_gpu: AtomicU64::new(0), by_processor: AtomicU64::new(0), failure: Mutex::default() }
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
            strips: self.by_gpu.load(Ordering::Relaxed),
            strips_by_processor: self.by_processor.load(Ordering::Relaxed),
            failure: self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl GpuReport {
    /// What the user must know, and what to do.
    pub fn warning(&self) -> Option<String> {
        let why = self.failure.as_ref()?;
        Some(format!("the GPU was given up in the run, and the processor made the other images: {why}"))
    }
}
