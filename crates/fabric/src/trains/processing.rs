//! Trains on their way through programs of users, which say numbers about them and may reject them. No program can hold
//! up the others for longer than the time-out: what is not answered goes on as it is, and is counted.

use std::collections::VecDeque;

/// What a program says about a train.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// False: the pixels of the train are not wanted.
    pub is_kept: bool,
    /// Numbers that go with the train.
    pub values: Vec<(String, f64)>,
}

/// The account: each train that was offered is in one of the first four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessingCounts {
    /// Judged and kept.
    pub kept: u64,
    /// Judged and rejected.
    pub rejected: u64,
    /// Went on without judgement: no program asked for it in time, or too many waited.
    pub skipped: u64,
    /// Went on without judgement, because the program that had it did not answer in time.
    pub unanswered: u64,
    /// Judgements of trains that nobody had, or that had gone on.
    pub late: u64,
}

#[derive(Debug)]
enum State {
    Waiting,
    Given,
    Judged(Judgement),
    /// Goes on as it is.
    Skipped,
}

#[derive(Debug)]
struct Open<T> {
    train_id: u64,
    train: T,
    due_us: u64,
    state: State,
}

/// Gives trains to programs and hands them on in the order in which they came.
#[derive(Debug)]
pub struct Processing<T> {
    open: VecDeque<Open<T>>,
    open_max: usize,
    timeout_us: u64,
    counts: ProcessingCounts,
}

impl<T> Processing<T> {
    /// At most `open_max` trains wait for a program or its judgement, each for at most `timeout_us`.
    pub fn new(open_max: usize, timeout_us: u64) -> Self {
        Self { open: VecDeque::new(), open_max, timeout_us, counts: ProcessingCounts::default() }
    }

    /// The account so far.
    pub fn counts(&self) -> &ProcessingCounts {
        &self.counts
    }

    /// True if no train is here.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a train that came at `now_us`, with an id above that of the train before.
    pub fn offer(&mut self, train_id: u64, train: T, now_us: u64) {
        let busy = self.open.iter().filter(|open| matches!(open.state, State::Waiting | State::Given)).count();
        let state = if busy < self.open_max { State::Waiting } else { State::Skipped };
        self.open.push_back(Open { train_id, train, due_us: now_us + self.timeout_us, state });
    }

    /// The oldest train that no program has; `send` gives it to the program that asks, and says whether it could.
    pub fn give(&mut self, send: impl FnOnce(&T) -> bool) {
        if let Some(open) = self.open.iter_mut().find(|open| matches!(open.state, State::Waiting)) {
            open.state = if send(&open.train) { State::Given } else { State::Waiting };
        }
    }

    /// True if a train waits for a program.
    pub fn has_waiting(&self) -> bool {
        self.open.iter().any(|open| matches!(open.state, State::Waiting))
    }

    /// Takes a judgement.
    pub fn judge(&mut self, train_id: u64, judgement: Judgement) {
        let given = self.open.iter_mut().find(|open| open.train_id == train_id && matches!(open.state, State::Given));
        match given {
            Some(open) => open.state = State::Judged(judgement),
            None => self.counts.late += 1,
        }
    }

    /// The next train that goes on at `now_us`, with its judgement if there is one.
    pub fn pop(&mut self, now_us: u64) -> Option<(T, Option<Judgement>)> {
        let first = self.open.front()?;
        let is_due = now_us >= first.due_us || matches!(first.state, State::Judged(_) | State::Skipped);
        if !is_due {
            return None;
        }
        let Open { train, state, .. } = self.open.pop_front()?;
        let judgement = match state {
            State::Judged(judgement) => Some(judgement),
            State::Waiting | State::Skipped => {
                self.counts.skipped += 1;
                None
            }
            State::Given => {
                self.counts.unanswered += 1;
                None
            }
        };
        match &judgement {
            Some(Judgement { is_kept: true, .. }) => self.counts.kept += 1,
            Some(_) => self.counts.rejected += 1,
            None => (),
        }
        Some((train, judgement))
    }
}
