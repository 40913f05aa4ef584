//! The connections of a ZeroMQ socket, and how much each has sent of a message that is not complete.
//!
//! libzmq hands over complete messages only. It limits the size of each part but not the number of parts, so a message
//! that never ends would fill its memory. The kernel knows how many bytes were read from a TCP connection, and libzmq
//! knows from which connection a message came. The bytes that were read since the last complete message of a connection
//! are therefore its unfinished message and complete messages that wait. A connection with too many such bytes is cut;
//! libzmq then frees the memory, and the sender may connect again. The kernel does not count the bytes of connections
//! other than TCP, so these have no such limit.

use crate::sys;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often the kernel is asked while no connection brings much.
const GRAIN: Duration = Duration::from_millis(100);
/// How often it is asked while a connection has an unfinished message of more than `MORE_BYTES`, or is new.
const GRAIN_OF_GROWTH: Duration = Duration::from_millis(10);
/// Bytes that are allowed beyond the messages, because more come while the counts are read.
const MORE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Connection {
    descriptor: i32,
    /// The kernel's identifier of this connection; unlike a descriptor it is never reused.
    cookie: u64,
    /// Bytes that libzmq had read at the first look after a complete message was taken.
    whole_bytes: u64,
    /// A complete message was taken since the last look.
    is_whole: bool,
    /// Complete messages that were taken. `None` if an earlier connection had this descriptor: some of its messages may
    /// come now, and cannot be told from those of this one.
    taken: Option<u64>,
}

/// See the top of this module.
#[derive(Debug)]
pub(crate) struct Connections {
    list: Vec<Connection>,
    /// All descriptors that connections have had; no more than a process may have.
    descriptors: BTreeSet<i32>,
    message_bytes_max: u64,
    /// Largest message that came.
    largest_bytes: u64,
    looked: Instant,
    /// At the last look a message was growing, or a connection has opened since.
    is_growing: bool,
}

impl Connections {
    /// For messages of at most `message_bytes_max` bytes, all parts together.
    pub(crate) fn new(message_bytes_max: u64) -> Self {
        Self {
            list: Vec::new(),
            descriptors: BTreeSet::new(),
            message_bytes_max,
            largest_bytes: 0,
            looked: Instant::now(),
            is_growing: false,
        }
    }

    /// Bytes that a message may have.
    pub(crate) fn message_bytes_max(&self) -> u64 {
        self.message_bytes_max
    }

    /// A connection was made.
    pub(crate) fn opened(&mut self, descriptor: i32) {
        let Some(cookie) = sys::zmq::cookie(descriptor) else { return };
        if !self.list.iter().any(|known| known.cookie == cookie) {
            self.closed(descriptor);
            let taken = self.descriptors.insert(descriptor).then_some(0);
            self.list.push(Connection { descriptor, cookie, whole_bytes: 0, is_whole: false, taken });
            self.is_growing = true;
        }
    }

    /// A connection has ended.
    pub(crate) fn closed(&mut self, descriptor: i32) {
        self.list.retain(|known| known.descriptor != descriptor);
    }

    /// A complete message of this connection was taken.
    pub(crate) fn took(&mut self, descriptor: i32, bytes: u64) {
        self.largest_bytes = self.largest_bytes.max(bytes);
        if let Some(known) = self.list.iter_mut().find(|known| known.descriptor == descriptor) {
            known.is_whole = true;
            known.taken = known.taken.map(|taken| taken + 1);
        }
    }

    /// True if it is a connection that was opened.
    pub(crate) fn knows(&self, descriptor: i32) -> bool {
        self.list.iter().any(|known| known.descriptor == descriptor)
    }

    /// Messages that were taken of this connection, if it is the only one and their number is known.
    pub(crate) fn taken_of_only(&self, descriptor: i32) -> Option<u64> {
        let [only] = &self.list[..] else { return None };
        only.taken.filter(|_| only.descriptor == descriptor)
    }

    /// Time until the kernel is to be asked again; `None` if there are no connections.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (!self.list.is_empty()).then(|| self.grain().saturating_sub(self.looked.elapsed()))
    }

    fn grain(&self) -> Duration {
        if self.is_growing { GRAIN_OF_GROWTH } else { GRAIN }
    }

    /// Cuts connections whose unfinished message is too large and returns their number; looks at most every `grain()`.
    /// In each connection `whole_messages` complete messages may wait.
    pub(crate) fn look(&mut self, whole_messages: u64) -> usize {
        if self.looked.elapsed() < self.grain() {
            return 0;
        }
        self.looked = Instant::now();
        let waiting = whole_messages * if self.largest_bytes > 0 { self.largest_bytes } else { self.message_bytes_max };
        let limit = self.message_bytes_max.saturating_add(waiting).saturating_add(MORE_BYTES);
        let mut cut = 0;
        self.is_growing = false;
        self.list.retain_mut(|known| {
            if sys::zmq::cookie(known.descriptor) != Some(known.cookie) {
                return false;
            }
            let Some(bytes) = sys::zmq::bytes_read(known.descriptor) else { return true };
            if std::mem::take(&mut known.is_whole) {
                known.whole_bytes = bytes;
            }
            let unfinished = bytes.saturating_sub(known.whole_bytes);
            self.is_growing |= unfinished > MORE_BYTES;
            if unfinished <= limit {
                return true;
            }
            cut += usize::from(sys::zmq::cut(known.descriptor));
            false
        });
        cut
    }
}
