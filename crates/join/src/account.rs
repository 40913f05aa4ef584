//! What became of the parts of each source, and of the trigger numbers.

use crate::ranges::Noted;

/// The parts of one source: one counter for each thing that can happen to a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceAccount {
    /// Parts that came with a trigger number.
    pub received: u64,
    /// Of these, left in a complete number.
    pub joined: u64,
    /// Left alone: a required source was absent when the time was over, or at the end.
    pub alone: u64,
    /// Left alone before the time was over, because the memory was full.
    pub pushed_out: u64,
    /// Came after their number had left.
    pub late: u64,
    /// The source had given the number before.
    pub doubled: u64,
    /// Images of a further series whose numbers begin anew, so that they say nothing about the trigger.
    pub other_series: u64,
    /// Wait for other sources.
    pub waiting: u64,
    /// Numbers that left without this source.
    pub absent: u64,
    /// How often a number was lower than the one before.
    pub backwards: u64,
    /// Numbers of the parts that left alone or were pushed out.
    pub alone_at: Noted,
    /// Numbers that left without this source.
    pub absent_at: Noted,
}

impl SourceAccount {
    /// The sum that does not hold, in words.
    pub fn imbalance(&self, name: &str) -> Option<String> {
        let sum = self.rows()[1..].iter().map(|(_, count)| count).sum::<u64>();
        (sum != self.received)
            .then(|| format!("{} parts of {name} came, but {sum} are accounted for: {:?} (a bug)", self.received, self.rows()))
    }

    /// The counters that balance: the first one is the sum of the others.
    pub fn rows(&self) -> [(&'static str, u64); 8] {
        [
            ("received", self.received),
            ("joined", self.joined),
            ("alone", self.alone),
            ("pushed_out", self.pushed_out),
            ("late", self.late),
            ("doubled", self.doubled),
            ("other_series", self.other_series),
            ("waiting", self.waiting),
        ]
    }
}

/// The trigger numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberAccount {
    /// All required sources had given them.
    pub complete: u64,
    /// Incomplete when their time was over.
    pub timed_out: u64,
    /// Incomplete and pushed out, because the memory was full.
    pub pushed_out: u64,
    /// Incomplete at the end.
    pub at_end: u64,
    /// Of the incomplete ones, not handed on.
    pub dropped: u64,
}

impl NumberAccount {
    /// Numbers that left incomplete.
    pub fn incomplete(&self) -> u64 {
        self.timed_out + self.pushed_out + self.at_end
    }

    /// Names and values.
    pub fn rows(&self) -> [(&'static str, u64); 5] {
        [
            ("complete", self.complete),
            ("timed_out", self.timed_out),
            ("pushed_out", self.pushed_out),
            ("at_end", self.at_end),
            ("dropped", self.dropped),
        ]
    }
}
