//! The queues in which modules tell a receiver what they have written into its memory. A queue of which nothing can be
//! believed, or whose module has ended before it told its end, is reported, and the others go on.

use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_fabric::rashpa::receiver_control::Reception;
use konkordia_fabric::rashpa::terms::ModuleId;
use konkordia_links::shm::{Entry, Memory, Reader};
use std::time::{Duration, Instant};

/// Entries that are taken of a queue before the next one is looked at.
const BATCH: usize = 256;
/// How often it is asked whether the writers are still there.
const LOOK: Duration = Duration::from_millis(50);

/// The queue of a module.
struct Queue {
    module: ModuleId,
    reader: Reader,
    /// Why nothing is taken any more.
    fault: Option<String>,
}

/// The queues of all modules.
pub struct Queues {
    list: Vec<Queue>,
    looked: Instant,
}

impl Queues {
    /// Empty queues; nothing comes before [`Self::open`].
    pub fn new(memory: &Memory, reception: &Reception) -> Result<Self, Failure> {
        let mut list = Vec::with_capacity(reception.modules.len());
        for (&module, place) in reception.modules.iter().zip(&reception.queues) {
            let reader = place.and_then(|(begin, entries)| Reader::new(memory, usize::try_from(begin).ok()?, entries));
            let Some(reader) = reader else {
                let why = format!("its buffer for the events of {module} is too small for a queue");
                let fix = "the manager has to be of the same release";
                return Err(Failure::new(Exit::State, "modules cannot write into shared memory", why, fix));
            };
            list.push(Queue { module, reader, fault: None });
        }
        Ok(Self { list, looked: Instant::now() })
    }

    /// Lets the modules begin.
    pub fn open(&self, memory: &Memory) {
        self.list.iter().for_each(|queue| queue.reader.open(memory));
    }

    /// Lets no further module begin.
    pub fn close(&self, memory: &Memory) {
        self.list.iter().for_each(|queue| queue.reader.close(memory));
    }

    /// Takes some of what was told, with the numbers of the senders; the number of entries.
    pub fn take(&mut self, memory: &Memory, take: &mut dyn FnMut(usize, &Entry)) -> usize {
        let mut count = 0;
        for (sender, queue) in self.list.iter_mut().enumerate().filter(|(_, queue)| queue.fault.is_none()) {
            for _ in 0..BATCH {
                match queue.reader.next(memory) {
                    Ok(Some(entry)) => take(sender, &entry),
                    Ok(None) => break,
                    Err(why) => {
                        queue.fail(&format!("breaks the rules of the queue: {why}; nothing more is taken from it"));
                        break;
                    }
                }
                count += 1;
            }
        }
        count
    }

    /// Senders that have ended, or let the memory go, since this was asked last, although `is_ended` does not say that
    /// they told their end. All that they told was taken.
    pub fn gone(&mut self, memory: &Memory, is_ended: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut gone = Vec::new();
        if self.looked.elapsed() < LOOK {
            return gone;
        }
        self.looked = Instant::now();
        for (sender, queue) in self.list.iter_mut().enumerate() {
            // A system that cannot say it now says it later.
            let may_be_gone = queue.fault.is_none() && !is_ended(sender);
            // What was told at the last moment is taken first.
            if may_be_gone && queue.reader.is_writer_gone(memory).unwrap_or(false) && queue.reader.is_empty(memory) {
                queue.fail("has left the shared memory before it told its end: its program has ended");
                gone.push(sender);
            }
        }
        gone
    }

    /// What is wrong with the module with this number.
    pub fn fault(&self, sender: usize) -> Option<&str> {
        self.list.get(sender).and_then(|queue| queue.fault.as_deref())
    }
}

impl Queue {
    fn fail(&mut self, why: &str) {
        console::note(&format!("{} {why}", self.module));
        self.fault = Some(why.to_owned());
    }
}
