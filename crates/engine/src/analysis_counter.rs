//! Counts what becomes of images at their analysis.

use konkordia_core::analysis_counts::{AnalysisCounter, AnalysisTally};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What an analyser says of an image beside its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// It is a hit.
    pub is_hit: bool,
    /// The veto rejects it.
    pub is_rejected: bool,
}

/// Written by the threads of one run or series, read by any.
#[derive(Debug, Default)]
pub struct Counter {
    analysed: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
    hits: AtomicU64,
    rejected: AtomicU64,
    vetoed: AtomicU64,
    indexed: AtomicU64,
    unanswered: AtomicU64,
    unscored: AtomicU64,
    busy_ns: AtomicU64,
    problem: Mutex<Option<String>>,
    indexing_problem: Mutex<Option<String>>,
    model_problem: Mutex<Option<String>>,
    unsaid: Mutex<Option<String>>,
}

fn text(of: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(to: &AtomicU64, count: u64) {
    to.fetch_add(count, Ordering::Relaxed);
}

impl Counter {
    /// An image was analysed.
    pub(crate) fn analysed(&self, looked: Looked) {
        add(&self.analysed, 1);
        add(&self.hits, u64::from(looked.is_hit));
        add(&self.rejected, u64::from(looked.is_rejected));
    }

    /// A rejected image is dropped.
    pub(crate) fn vetoed(&self) {
        add(&self.vetoed, 1);
    }

    /// The indexing program has answered about an image.
    pub fn index_answered(&self, is_indexed: bool) {
        add(&self.indexed, u64::from(is_indexed));
    }

    /// The indexing program has given no answer about an image that can be used.
    pub fn index_unanswered(&self, why: String) {
        *text(&self.indexing_problem) = Some(why);
        add(&self.unanswered, 1);
    }

    /// The model has given no score for an image.
    pub fn unscored(&self, why: String) {
        *text(&self.model_problem) = Some(why);
        add(&self.unscored, 1);
    }

    /// An image passed without analysis, which was too slow for it.
    pub(crate) fn skipped(&self) {
        add(&self.skipped, 1);
    }

    /// An image could not be analysed.
    pub(crate) fn failed(&self, why: String) {
        self.note(why);
        add(&self.failed, 1);
    }

    /// Images from now on cannot be analysed, for this reason.
    pub(crate) fn note(&self, why: String) {
        *text(&self.problem) = Some(why);
    }

    /// What the sender does not say of its images.
    pub(crate) fn unsaid(&self, what: String) {
        *text(&self.unsaid) = Some(what);
    }

    /// As [`Self::failed`], for the reason that is known.
    pub(crate) fn failed_too(&self) {
        add(&self.failed, 1);
    }

    /// A thread has worked for so long.
    pub(crate) fn worked(&self, time: Duration) {
        add(&self.busy_ns, time.as_nanos() as u64);
    }
}

impl AnalysisCounter for Counter {
    fn read(&self) -> AnalysisTally {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        AnalysisTally {
            analysed: load(&self.analysed),
            skipped: load(&self.skipped),
            failed: load(&self.failed),
            hits: load(&self.hits),
            rejected: load(&self.rejected),
            vetoed: load(&self.vetoed),
            indexed: load(&self.indexed),
            unanswered: load(&self.unanswered),
            unscored: load(&self.unscored),
            busy_ns: load(&self.busy_ns),
            problem: text(&self.problem).clone(),
            indexing_problem: text(&self.indexing_problem).clone(),
            model_problem: text(&self.model_problem).clone(),
            unsaid: text(&self.unsaid).clone(),
        }
    }
}
