//! Puts threads and memory where the plan wants them.

use crate::sys::{self, MemoryPolicy};
use konkordia_core::affinity::{Affinity, Cpus, Priority};
use std::io;
use std::marker::PhantomData;
use std::thread::Builder;

/// Puts the calling thread, entry `index` of `list`, where the plan wants it. Arm has found out what the kernel
/// permits. If it refuses now, because the processors of a container have changed, the thread runs on any processor:
/// slower, but correctly.
pub(crate) fn settle(affinity: &Affinity, list: &[Cpus], index: usize) {
    if let Some(cpus) = Affinity::nth(list, index) {
        let _ = sys::run_on(cpus);
    }
    let _ = sys::set_priority(affinity.priority);
}

/// Whether a thread of this process may have this priority: one is started that tries.
///
/// # Errors
/// The kernel does not permit it, or starts no thread.
pub fn check_priority(priority: Priority) -> io::Result<()> {
    if priority == Priority::Normal {
        return Ok(());
    }
    let trial = Builder::new().name("priority".into()).spawn(move || sys::set_priority(priority))?;
    trial.join().unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
}

/// While it lives, memory that this thread touches for the first time comes from one NUMA node as long as the node has
/// some free. Memory keeps its place afterwards. Threads that are started meanwhile do the same, always.
pub struct PreferredNode {
    before: MemoryPolicy,
    /// It belongs to one thread.
    of_thread: PhantomData<*const ()>,
}

impl PreferredNode {
    /// Begins.
    ///
    /// # Errors
    /// The kernel does not permit it (many containers do not), or has no such node.
    pub fn new(node: u32) -> io::Result<Self> {
        let before = MemoryPolicy::current()?;
        MemoryPolicy::preferred(node)?.set()?;
        Ok(Self { before, of_thread: PhantomData })
    }
}

impl Drop for PreferredNode {
    fn drop(&mut self) {
        // What was permitted before is permitted still.
        let _ = self.before.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preferred_node_is_preferred_only_while_it_is_asked_for() {
        let Ok(before) = MemoryPolicy::current() else {
            // Without the right, or on a kernel without nodes: then nothing may be preferred either.
            assert!(PreferredNode::new(0).is_err());
            return;
        };
        let preferred = MemoryPolicy::preferred(0).unwrap();
        if let Ok(guard) = PreferredNode::new(0) {
            assert_eq!(MemoryPolicy::current().unwrap(), preferred);
            drop(guard);
        }
        assert_eq!(MemoryPolicy::current().unwrap(), before);
        // No machine has so many.
        assert!(PreferredNode::new(1023).is_err() && PreferredNode::new(1 << 20).is_err());
        assert_eq!(MemoryPolicy::current().unwrap(), before);
    }

    #[test]
    fn a_thread_may_always_be_less_important_and_never_more_than_there_is() {
        check_priority(Priority::Normal).unwrap();
        check_priority(Priority::Nice(19)).unwrap();
        // Above the greatest priority of the kernel.
        assert!(check_priority(Priority::RealTime(100)).is_err());
    }
}
