//! A source that hands out datagrams prepared in memory: tests and simulations run the engine without a socket.

use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use std::io;
use std::time::Duration;

/// Hands out prepared datagrams in order, `batch` at a time.
#[derive(Debug)]
pub struct MemorySource {
    datagrams: std::vec::IntoIter<(Vec<u8>, Sender)>,
    batch: usize,
}

impl MemorySource {
    /// A source of `datagrams`, `batch` for each call of `receive`.
    pub fn new(datagrams: Vec<Vec<u8>>, batch: usize) -> Self {
        Self::from_senders(datagrams.into_iter().map(|datagram| (datagram, Sender::NONE)).collect(), batch)
    }

    /// The same, each with its sender.
    pub fn from_senders(datagrams: Vec<(Vec<u8>, Sender)>, batch: usize) -> Self {
        assert!(batch > 0);
        Self { datagrams: datagrams.into_iter(), batch }
    }
}

impl Source for MemorySource {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        let mut count = 0;
        for (datagram, from) in self.datagrams.by_ref().take(self.batch) {
            take(&datagram, from);
            count += 1;
        }
        if count == 0 {
            std::thread::sleep(timeout);
        }
        Ok(count)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}
