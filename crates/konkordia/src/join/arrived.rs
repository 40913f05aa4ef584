//! What the threads of the sockets hand to the thread that joins.

use bytes::Bytes;

/// What a source says of a trigger.
#[derive(Debug)]
pub enum Part {
    /// An image.
    Image(Image),
    /// Numbers by name.
    Scalars(Vec<(String, f64)>),
}

/// An image with its message.
#[derive(Debug)]
pub struct Image {
    /// Number in its series.
    pub number: u64,
    /// Which series of its source, from 0.
    pub series: u64,
    /// The message as it came.
    pub message: Vec<Bytes>,
}

/// What came.
#[derive(Debug)]
pub enum Arrived {
    /// A part.
    Part {
        /// Its source.
        source: usize,
        /// Number of its trigger.
        trigger: u64,
        /// The part.
        part: Part,
        /// Bytes of its message.
        bytes: u64,
    },
    /// An image of a further series, where the numbers of images begin anew.
    OtherSeries(usize),
    /// A series of a stream has begun; the name of its file, if its sender says one.
    Begun(usize, String),
    /// A series of a stream has ended.
    Ended(usize),
}

/// What one socket has received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Address.
    pub address: String,
    /// All messages.
    pub messages: u64,
    /// Of these, parts with a trigger number.
    pub parts: u64,
    /// Starts and ends of series.
    pub control: u64,
    /// Messages that say no trigger number, or one that is below 0 or beyond 64 bits with the offset.
    pub unnumbered: u64,
    /// Numbers of a device that is not configured for this address.
    pub unknown: u64,
    /// Messages that cannot be read.
    pub malformed: u64,
    /// Senders that were disconnected because of the size of their message.
    pub disconnected: u64,
    /// Connections that were refused because there were too many.
    pub refused: u64,
    /// What was wrong with the first message that was not used.
    pub first_problem: Option<String>,
    /// Why the socket failed.
    pub failed: Option<String>,
}

impl Received {
    /// Notes why a message was not used.
    pub fn problem(&mut self, why: impl FnOnce() -> String) {
        self.first_problem.get_or_insert_with(why);
    }

    /// Messages that are accounted for.
    pub fn accounted(&self) -> u64 {
        self.parts + self.control + self.unnumbered + self.unknown + self.malformed
    }
}
