//! The source of one stream: reads the receive rings of the stream, one for each queue of the interface, and beside
//! them an ordinary socket on the same port.

use super::filter;
use super::frame::{self, Datagram};
use super::rings::{Chunk, FillRing, PacketMemory, ReceiveRing};
use super::sys;
use crate::udp::UdpReceiver;
use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Chunks that are taken from one ring in one call.
const BATCH_CHUNKS: u32 = 256;
/// Chunks that are given back to the kernel at once.
const RETURN_CHUNKS: usize = 64;
/// Chunks of one frame, at most: the first buffer, and as many as the kernel's MAX_SKB_FRAGS.
const FRAME_CHUNKS_MAX: usize = 18;
/// Payload bytes of the longest datagram.
const PAYLOAD_BYTES_MAX: usize = 65_535;
/// While packets come all the time, the ordinary socket is read in every such call.
const REST_INTERVAL: u32 = 32;

/// How a receiver came to receive. The same for all receivers of one call of [`super::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the interface.
    pub interface: String,
    /// The program runs in the driver; otherwise in the network stack, after the kernel has made its own form of each
    /// packet.
    pub is_native: bool,
    /// The network card writes packets to the memory of this process; otherwise the kernel copies them.
    pub is_zero_copy: bool,
    /// The memory lies in huge pages that were reserved (`vm.nr_hugepages`).
    pub has_huge_pages: bool,
    /// The queues that have sockets.
    pub queues: Vec<u32>,
    /// Locked memory for packets, of all queues.
    pub memory_bytes: usize,
    /// What a person should know: which better ways the kernel refused, and why.
    pub notes: Vec<String>,
}

/// Frames that the filter has seen on the interface since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Not for the streams; the kernel got them.
    pub passed: u64,
    /// To the sockets of the streams.
    pub redirected: u64,
    /// To a port of the streams, with a wrong IPv4 checksum or wrong lengths; the kernel got them.
    pub malformed: u64,
    /// For the streams, on a queue that has no socket; the ordinary sockets of the streams got them.
    pub without_socket: u64,
    /// For the streams, but several datagrams in one frame, as the kernel joins them (GRO, or GSO of a sender on the
    /// same machine), or longer than the MTU was when the receivers were opened; the kernel divided them, and the
    /// ordinary sockets got them.
    pub joined: u64,
}

/// What was lost of one stream since it was opened, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The stream's ring was full: its thread was too slow.
    pub ring_full: u64,
    /// There was no free chunk, or the datagram did not fit (as the kernel counts it: `rx_dropped`).
    pub no_memory: u64,
    /// The UDP checksum was wrong.
    pub wrong_checksum: u64,
    /// No whole datagram, though the filter took it for one.
    pub damaged: u64,
    /// By the ordinary socket of the port.
    pub other_socket: u64,
    /// How often the kernel or the card looked for a free chunk in vain. This is not a number of datagrams: what the
    /// card then drops, it counts itself (`rx_missed_errors` and the like in `ethtool -S`).
    pub memory_empty: u64,
}

/// The memory and the fill ring of one queue; its streams share them.
pub(crate) struct Queue {
    pub number: u32,
    pub memory: PacketMemory,
    pub fill: Mutex<FillRing>,
    /// The socket that the memory is registered with. It is the socket of the first stream.
    pub owner: Arc<OwnedFd>,
}

/// The socket of one stream on one queue.
pub(crate) struct StreamQueue {
    pub queue: Arc<Queue>,
    pub socket: Arc<OwnedFd>,
    pub ring: ReceiveRing,
    /// The chunks of a frame that is not whole yet.
    held: Vec<Chunk>,
    /// The frame that is coming has too many chunks.
    is_oversized: bool,
    /// Chunks to be given back.
    spent: Vec<Chunk>,
}

/// What keeps the program attached. When the last receiver goes, the kernel detaches it.
pub(crate) struct Attached {
    pub _link: OwnedFd,
    pub sockets: OwnedFd,
    pub counters: OwnedFd,
    pub streams: u32,
    pub busy_poll: bool,
    pub checks_sums: bool,
    pub report: Report,
}

/// Receives one stream by AF_XDP.
pub struct XdpReceiver {
    // Dropped first: the program is detached before its sockets are closed.
    attached: Arc<Attached>,
    stream: u32,
    queues: Vec<StreamQueue>,
    rest: UdpReceiver,
    /// Where the parts of a datagram are put together.
    joined: Vec<u8>,
    descriptors: Vec<libc::pollfd>,
    calls: u32,
    /// Why the sockets are of no use any more.
    failed: Option<io::Error>,
    losses: Losses,
}

/// What happens to datagrams, apart from rings and sockets.
struct Reader<'a> {
    joined: &'a mut [u8],
    losses: &'a mut Losses,
    checks_sums: bool,
    take: &'a mut dyn FnMut(&[u8], Sender),
}

impl Reader<'_> {
    /// One whole frame, in one or several chunks.
    fn frame(&mut self, memory: &PacketMemory, chunks: &[Chunk]) {
        let Some(first) = chunks.first().map(|chunk| memory.data(chunk)) else { return };
        let frame_bytes = chunks.iter().map(Chunk::bytes).sum();
        let Some(datagram) = Datagram::find(first, frame_bytes) else {
            self.losses.damaged += 1;
            return;
        };
        let payload = match first.get(datagram.payload.clone()) {
            Some(payload) => payload,
            None => {
                let pieces = chunks.iter().map(|chunk| memory.data(chunk));
                match frame::gather(pieces, &datagram.payload, self.joined) {
                    Some(payload) => payload,
                    None => {
                        self.losses.damaged += 1;
                        return;
                    }
                }
            }
        };
        if self.checks_sums && !datagram.checksum_is_right(payload) {
            self.losses.wrong_checksum += 1;
            return;
        }
        (self.take)(payload, Sender::from(datagram.sender));
    }
}

impl StreamQueue {
    pub(crate) fn new(queue: Arc<Queue>, socket: Arc<OwnedFd>, ring: ReceiveRing) -> Self {
        let held = Vec::with_capacity(FRAME_CHUNKS_MAX);
        let spent = Vec::with_capacity(BATCH_CHUNKS as usize + FRAME_CHUNKS_MAX);
        Self { queue, socket, ring, held, is_oversized: false, spent }
    }

    /// Reads what is in the ring, at most a batch, and returns the number of frames.
    fn receive(&mut self, reader: &mut Reader<'_>) -> usize {
        let available = self.ring.begin().min(BATCH_CHUNKS);
        let mut frames = 0;
        for _ in 0..available {
            let Some(chunk) = self.ring.take(&self.queue.memory) else { break };
            let continues = chunk.continues;
            self.held.push(chunk);
            if continues {
                if self.held.len() >= FRAME_CHUNKS_MAX {
                    self.is_oversized = true;
                    self.spent.append(&mut self.held);
                }
                continue;
            }
            frames += 1;
            if std::mem::take(&mut self.is_oversized) {
                reader.losses.damaged += 1;
            } else {
                reader.frame(&self.queue.memory, &self.held);
            }
            self.spent.append(&mut self.held);
            if self.spent.len() >= RETURN_CHUNKS {
                self.give_back();
            }
        }
        if available > 0 {
            self.ring.end();
            self.give_back();
        }
        frames
    }

    fn give_back(&mut self) {
        let mut fill = self.queue.fill.lock().unwrap_or_else(PoisonError::into_inner);
        fill.give(&self.queue.memory, &mut self.spent);
        if fill.needs_wakeup() {
            sys::wake(self.socket.as_fd());
        }
    }
}

impl XdpReceiver {
    pub(crate) fn new(attached: Arc<Attached>, stream: u32, queues: Vec<StreamQueue>, rest: UdpReceiver) -> Self {
        let sockets = queues.iter().map(|queue| sys::readable(queue.socket.as_fd()));
        let descriptors = sockets.chain([sys::readable(rest.as_fd())]).collect();
        Self {
            attached,
            stream,
            queues,
            rest,
            joined: vec![0; PAYLOAD_BYTES_MAX],
            descriptors,
            calls: 0,
            failed: None,
            losses: Losses::default(),
        }
    }

    /// The address that was bound, with the port that the kernel chose if 0 was asked for.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.rest.local_addr()
    }

    /// How it receives.
    pub fn report(&self) -> &Report {
        &self.attached.report
    }

    /// What the filter has seen on the interface, for all its streams.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn traffic(&self) -> io::Result<Traffic> {
        let read = |index: usize| sys::sum_over_cpus(self.attached.counters.as_fd(), index as u32);
        Ok(Traffic {
            passed: read(filter::PASSED)?,
            redirected: read(filter::REDIRECTED)?,
            malformed: read(filter::MALFORMED)?,
            without_socket: read(filter::WITHOUT_SOCKET)?,
            joined: read(filter::JOINED)?,
        })
    }

    /// What was lost, by cause.
    pub fn losses(&mut self) -> Losses {
        let (mut ring_full, mut no_memory, mut memory_empty) = (0, 0, 0);
        for queue in &self.queues {
            if let Ok(counted) = sys::statistics(queue.socket.as_fd()) {
                ring_full += counted.rx_ring_full;
                no_memory += counted.rx_dropped;
                // The counter belongs to the fill ring, which the streams of a queue share.
                memory_empty += counted.rx_fill_ring_empty_descs;
            }
        }
        self.losses.ring_full = ring_full.max(self.losses.ring_full);
        self.losses.no_memory = no_memory.max(self.losses.no_memory);
        self.losses.memory_empty = memory_empty.max(self.losses.memory_empty);
        self.losses.other_socket = self.rest.dropped();
        self.losses
    }

    /// Waits until something can be read.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        // The kernel tells a socket that its interface is gone, but does not report that to those who poll.
        if self.failed.is_none() {
            self.failed = self.queues.iter().find_map(|queue| sys::take_error(queue.socket.as_fd()));
        }
        if let Some(error) = &self.failed {
            return Err(self.gone(error));
        }
        if self.attached.busy_poll && self.poll_busily(timeout) {
            return Ok(());
        }
        let timeout = if self.attached.busy_poll { Duration::ZERO } else { timeout };
        sys::wait(&mut self.descriptors, timeout)
    }

    fn gone(&self, error: &io::Error) -> io::Error {
        let name = &self.attached.report.interface;
        io::Error::new(
            error.kind(),
            format!(
                "the network interface {name} is gone ({error}): it was removed, moved to another network namespace, or its \
                 driver was restarted; look at `ip link` and dmesg, and arm again"
            ),
        )
    }

    /// Runs the driver's receive loop until something comes; false if nothing came in time.
    fn poll_busily(&mut self, timeout: Duration) -> bool {
        let start = Instant::now();
        loop {
            for queue in &mut self.queues {
                sys::wake(queue.socket.as_fd());
                if queue.ring.begin() > 0 {
                    return true;
                }
            }
            if start.elapsed() >= timeout {
                return false;
            }
        }
    }
}

impl Source for XdpReceiver {
    /// As the trait says; datagrams that are damaged or have a wrong checksum are not passed to `take`, but are in the
    /// number.
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        let checks_sums = self.attached.checks_sums;
        let mut reader = Reader { joined: &mut self.joined, losses: &mut self.losses, checks_sums, take: &mut *take };
        let mut count = self.queues.iter_mut().map(|queue| queue.receive(&mut reader)).sum();
        self.calls = self.calls.wrapping_add(1);
        if count == 0 || self.calls.is_multiple_of(REST_INTERVAL) {
            count += self.rest.receive(Duration::ZERO, take)?;
        }
        if count == 0 && !timeout.is_zero() {
            // As with other sockets: what comes now is for the next call.
            self.wait(timeout)?;
        }
        Ok(count)
    }

    /// Datagrams that did not fit the ring or the memory, whose checksum was wrong, that were damaged, or that the
    /// ordinary socket of the port dropped; each is counted once.
    fn dropped(&mut self) -> u64 {
        let losses = self.losses();
        losses.ring_full + losses.no_memory + losses.wrong_checksum + losses.damaged + losses.other_socket
    }
}

impl Drop for XdpReceiver {
    fn drop(&mut self) {
        // If other streams go on, the kernel gets the datagrams of this one again. The first stream's sockets stay open
        // for the others, so they must be taken out of the map here.
        for queue in &self.queues {
            let key = queue.queue.number * self.attached.streams + self.stream;
            let _ = sys::remove_socket(self.attached.sockets.as_fd(), key);
        }
    }
}
