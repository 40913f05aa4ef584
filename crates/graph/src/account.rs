//! What became of the images of an edge.

/// What the producer of an edge has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Images that were handed over.
    pub produced: u64,
    /// Images that the stages behind have finished.
    pub done: u64,
    /// Images that a stage refused [`crate::producer::Limits::refusals_max`] times.
    pub given_up: u64,
    /// Images that are not finished.
    pub open: u64,
    /// Images that were sent once more, counted each time.
    pub sent_again: u64,
    /// Refusals of a stage, counted each time.
    pub refused: u64,
    /// Answers about images that were finished already.
    pub late: u64,
    /// Messages that a partner must not send, and that were dropped.
    pub dropped: u64,
    /// Partners that fell silent, or that could not be reached.
    pub deaths: u64,
    /// Partners that had an image for too long.
    pub hangs: u64,
    /// Of a broadcast: images that a partner which died or left had not finished, and that others have finished.
    pub missed: u64,
    /// Times that others have worked on all images of a partner that was lost.
    pub recoveries: u64,
    /// Longest time from its last message until then, in ms.
    pub recovery_ms_max: u64,
    /// Sum of these times, in ms.
    pub recovery_ms_sum: u64,
}

impl Account {
    /// The sum that does not hold, in words.
    pub fn imbalance(&self) -> Option<String> {
        let Self { produced, done, given_up, open, .. } = self;
        (*produced != done + given_up + open)
            .then(|| format!("{produced} images were handed over, but {done} done, {given_up} given up and {open} open (a bug)"))
    }
}

/// What the consumer of an edge has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Images that were taken.
    pub taken: u64,
    /// Of these, finished.
    pub done: u64,
    /// Of these, refused by the stage.
    pub refused: u64,
    /// Images that came again, and were not taken again.
    pub doubled: u64,
    /// Images beyond the credits, or messages that a producer must not send; the producer sends such images again.
    pub dropped: u64,
}
