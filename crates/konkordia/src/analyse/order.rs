//! The order of images: threads get one after the other, and results come back in the same order.

use konkordia_analysis::analyser::Results;
use konkordia_analysis::figures::Decision;
use konkordia_core::failure::Failure;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Results that may be ready before those of an earlier image, for each thread.
const AHEAD_PER_WORKER: u64 = 4;

/// The results of an image.
#[derive(Debug)]
pub struct Done {
    /// All of them.
    pub results: Results,
    /// Those that files and rules take, as numbers, behind what is known of the image.
    pub figures: Vec<u64>,
    /// What the model says of it, or why nothing; `None` if there is no model.
    pub score: Option<Result<f32, String>>,
    /// What the rules say; of spots without a rule whether they make a hit.
    pub decision: Decision,
}

/// What came of an image.
#[derive(Debug)]
pub enum Outcome {
    /// Its results.
    Done(Box<Done>),
    /// It was never written.
    Absent,
    /// Why it could not be analysed.
    Failed(String),
}

/// Hands images out in their order, and takes results back in any order.
pub struct Order {
    state: Mutex<State>,
    changed: Condvar,
    ahead_max: u64,
}

struct State {
    /// The next image that a thread gets.
    next: u64,
    /// The image that is reported next.
    wanted: u64,
    ready: BTreeMap<u64, Outcome>,
    failure: Option<Failure>,
    is_over: bool,
}

impl Order {
    /// From this image on.
    pub fn new(from: u64, workers: usize) -> Self {
        let state = State { next: from, wanted: from, ready: BTreeMap::new(), failure: None, is_over: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), ahead_max: AHEAD_PER_WORKER * workers as u64 }
    }

    fn wait_while(&self, is_waiting: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.wait_while(state, |state| is_waiting(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next image for a thread, when it is not too far ahead; `None` at the end.
    pub fn next(&self, to: u64) -> Option<u64> {
        let mut state = self.wait_while(|s| !s.is_over && s.next < to && s.next >= s.wanted + self.ahead_max);
        let image = state.next;
        let has_image = !state.is_over && image < to;
        state.next += u64::from(has_image);
        has_image.then_some(image)
    }

    /// Takes the result of an image.
    pub fn give(&self, image: u64, outcome: Outcome) {
        self.wait_while(|_| false).ready.insert(image, outcome);
        self.changed.notify_all();
    }

    /// A thread cannot work.
    pub fn fail(&self, failure: Failure) {
        self.wait_while(|_| false).failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    /// The result of an image, when it is ready.
    ///
    /// # Errors
    /// A thread cannot work.
    pub fn take(&self, image: u64) -> Result<Outcome, Failure> {
        let mut state = self.wait_while(|s| s.failure.is_none() && !s.ready.contains_key(&image));
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.wanted = image + 1;
        self.changed.notify_all();
        Ok(state.ready.remove(&image).expect("it is ready"))
    }
}

/// Ends the threads, whatever happens to the one that reports.
pub struct StopOnDrop<'a>(pub &'a Order);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wait_while(|_| false).is_over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_threads_do_not_run_ahead() {
        let order = Order::new(10, 2);
        let taken: Vec<u64> = (0..AHEAD_PER_WORKER * 2).filter_map(|_| order.next(1000)).collect();
        assert_eq!(taken, (10..10 + AHEAD_PER_WORKER * 2).collect::<Vec<_>>());
        for image in taken.iter().rev() {
            order.give(*image, Outcome::Failed(image.to_string()));
        }
        for image in &taken {
            assert!(matches!(order.take(*image).unwrap(), Outcome::Failed(of) if of == image.to_string()));
        }
        assert_eq!((order.next(19), order.next(19)), (Some(18), None));
        drop(StopOnDrop(&order));
        assert_eq!(order.next(1000), None);
    }

    #[test]
    fn a_thread_that_cannot_work_ends_all() {
        let order = Order::new(0, 1);
        order.fail(Failure::new(konkordia_core::failure::Exit::Io, "a", "b", "c"));
        assert_eq!(order.take(0).unwrap_err().what, "a");
    }
}
