//! Messages between the processes (ranks) that `mpirun` of Open MPI 5 has started. With `mpirun --with-ft ulfm` the
//! others go on when one dies. The library is opened when it is needed.
//!
//! This is no [`crate::Link`]: there are many partners, and nobody writes into memory of another one.

use crate::sys::mpi;
use std::collections::BTreeSet;

/// MPI cannot be used, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Absent(String);

/// The processes that `mpirun` has started. All calls are from the thread that has opened it.
pub struct World(mpi::World);

/// A message of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its rank.
    pub from: usize,
    /// What it gave to [`World::send`].
    pub tag: u16,
    /// The message.
    pub bytes: Vec<u8>,
}

/// The rank of this process, if Open MPI's `mpirun` has started it.
pub fn rank_of_environment() -> Option<usize> {
    std::env::var("OMPI_COMM_WORLD_RANK").ok()?.parse().ok()
}

impl World {
    /// Joins the other processes; waits until all have done so. Once in the life of a program.
    ///
    /// # Errors
    /// There is no Open MPI 5, or it cannot begin.
    pub fn open() -> Result<Self, Absent> {
        mpi::World::open().map(Self).map_err(Absent)
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// Ranks that are known to have failed. A process that is stopped or cut off is not among them.
    pub fn failed(&self) -> &BTreeSet<usize> {
        self.0.failed()
    }

    /// Begins to send a message of at most 2 GiB. False if that process has failed, or has too many messages waiting.
    pub fn send(&mut self, to: usize, tag: u16, bytes: Vec<u8>) -> bool {
        self.0.send(to, tag, bytes)
    }

    /// Messages that the others have not taken.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }

    /// The next message, if one is there. Messages of one process come in their order unless they differ much in size.
    pub fn receive(&mut self) -> Option<Message> {
        self.0.receive().map(|mpi::Taken { from, tag, bytes }| Message { from, tag, bytes })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.0.close();
    }
}
