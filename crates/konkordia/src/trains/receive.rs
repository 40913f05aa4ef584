//! The thread of one module: packets in, trains of this module out.

use super::shared::Buffer;
use crossbeam_channel::{Receiver, Sender};
use konkordia_core::ports::Source;
use konkordia_fabric::trains::{Channel, ChannelCounts, ModuleTrain};
use konkordia_sources::udp::UdpReceiver;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a packet; then trains are looked at, and the stop flag.
const WAIT: Duration = Duration::from_millis(2);

/// What the thread has.
pub struct Receive {
    /// Number of the module.
    pub module: usize,
    /// Its socket.
    pub socket: UdpReceiver,
    /// The rules.
    pub channel: Channel,
    /// Pixels leave in the order of the image.
    pub is_ordered: bool,
    /// Trains of the module, to the builder.
    pub out: Sender<(usize, ModuleTrain)>,
    /// Buffers that come back.
    pub returns: Receiver<Buffer>,
    /// Set when the run ends.
    pub stop: Arc<AtomicBool>,
    /// The clock of the run.
    pub begun: Instant,
    /// When the newest packet of any module came, in microseconds of that clock.
    pub newest_us: Arc<AtomicU64>,
}

/// What the thread has counted.
pub struct Received {
    /// Number of the module.
    pub module: usize,
    /// By the rules.
    pub counts: ChannelCounts,
    /// Datagrams that the kernel dropped.
    pub dropped: u64,
    /// Why it ended, if not by the stop flag.
    pub error: Option<io::Error>,
}

impl Receive {
    /// Runs until the stop flag is set and nothing waits in the socket.
    pub fn run(mut self) -> Received {
        let mut scratch = Vec::new();
        let mut error = None;
        loop {
            let stops = self.stop.load(Ordering::Acquire);
            let now_us = self.begun.elapsed().as_micros() as u64;
            let channel = &mut self.channel;
            let came = match self.socket.receive(WAIT, &mut |datagram, _| _ = channel.take(datagram, now_us)) {
                Ok(came) => came,
                Err(why) => {
                    error = Some(why);
                    break;
                }
            };
            if came > 0 {
                self.newest_us.fetch_max(now_us, Ordering::AcqRel);
            }
            self.channel.tick(now_us);
            self.hand_on(&mut scratch);
            if came == 0 && stops {
                break;
            }
        }
        self.channel.finish();
        self.hand_on(&mut scratch);
        Received { module: self.module, counts: *self.channel.counts(), dropped: self.socket.dropped(), error }
    }

    fn hand_on(&mut self, scratch: &mut Vec<[u8; 2]>) {
        while let Ok((bytes, arrived)) = self.returns.try_recv() {
            self.channel.give_back(bytes, arrived);
        }
        let spec = *self.channel.spec();
        while let Some(mut train) = self.channel.pop() {
            // Here, because each module has a thread; the builder does it where the shape is not known yet.
            train.finish_pixels(&spec, self.is_ordered, scratch);
            if self.out.send((self.module, train)).is_err() {
                return;
            }
        }
    }
}
