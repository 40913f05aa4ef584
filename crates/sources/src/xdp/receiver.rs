//! The source of one stream: reads the receive rings of the stream, one for each queue of the interface, and beside
//! them an ordinary socket on the same port.

use super::filter;
use super::losses::Losses;
use super::rings::{Chunk, FillRing, METADATA_BYTES, PacketMemory, ReceiveRing};
use super::sys;
use crate::frame::{Arrival, Checksum, Refusals, Refused, datagram, gather};
use crate::sys::options;
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
    /// Where the program runs, and whether datagrams are copied, for people.
    pub way: &'static str,
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
    /// Memory of that for the ring of a stream on one queue.
    pub ring_bytes: usize,
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
    /// For the streams, on a queue that has no socket; the ordinary sockets of the streams got them.
    pub without_socket: u64,
    /// For the streams, but several datagrams in one frame, as the kernel joins them (GRO, or GSO of a sender on the
    /// same machine), or longer than the MTU was when the receivers were opened; the kernel divided them, and the
    /// ordinary sockets got them.
    pub joined: u64,
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
    /// IP packets are lent, and not only payloads.
    pub lends_packets: bool,
    /// The program puts metadata in front of the frames that it redirects.
    pub has_metadata: bool,
    pub report: Report,
}

/// Receives one stream by AF_XDP.
pub struct XdpReceiver {
    // Dropped first: the program is detached before its sockets are closed.
    attached: Arc<Attached>,
    stream: u32,
    queues: Vec<StreamQueue>,
    address: SocketAddr,
    rest: UdpReceiver,
    /// Where the parts of a datagram are put together.
    joined: Vec<u8>,
    descriptors: Vec<libc::pollfd>,
    calls: u32,
    /// Why the sockets are of no use any more.
    failed: Option<io::Error>,
    losses: Arc<Mutex<Losses>>,
    refusals: Arc<Refusals>,
}

/// Takes a datagram, with what the program has put in front of its frame.
type TakeWithMetadata<'a> = dyn FnMut(Option<&[u8; METADATA_BYTES]>, &[u8], Sender) + 'a;

/// What happens to datagrams, apart from rings and sockets.
struct Reader<'a> {
    joined: &'a mut [u8],
    /// Where the stream is received.
    to: SocketAddr,
    lends_packets: bool,
    has_metadata: bool,
    refusals: &'a Refusals,
    take: &'a mut TakeWithMetadata<'a>,
}

impl Reader<'_> {
    /// One whole frame, in one or several chunks. False if it is refused.
    fn frame(&mut self, memory: &PacketMemory, chunks: &[Chunk]) -> bool {
        let Some(first) = chunks.first().map(|chunk| memory.data(chunk)) else { return false };
        let bytes = chunks.iter().map(Chunk::bytes).sum();
        // The kernel does not say which frames never were on a wire.
        let checksum = if self.lends_packets { Checksum::Superseded } else { Checksum::MaybeLeft };
        let arrival = Arrival { checksum, ..Arrival::whole(bytes) };
        let taken = datagram(first, arrival, self.to).and_then(|found| {
            let range = if self.lends_packets { &found.packet } else { &found.payload };
            let lent = match first.get(range.clone()) {
                Some(lent) => lent,
                None => {
                    let pieces = chunks.iter().map(|chunk| memory.data(chunk));
                    gather(pieces, range, self.joined).ok_or(Refused::Length)?
                }
            };
            found.check(&lent[found.payload.start - range.start..])?;
            let metadata = if self.has_metadata { chunks.first().and_then(|chunk| memory.metadata(chunk)) } else { None };
            (self.take)(metadata, lent, found.sender);
            Ok(())
        });
        taken.map_err(|why| self.refusals.count(why)).is_ok()
    }
}

impl StreamQueue {
    pub(crate) fn new(queue: Arc<Queue>, socket: Arc<OwnedFd>, ring: ReceiveRing) -> Self {
        let held = Vec::with_capacity(FRAME_CHUNKS_MAX);
        let spent = Vec::with_capacity(BATCH_CHUNKS as usize + FRAME_CHUNKS_MAX);
        Self { queue, socket, ring, held, is_oversized: false, spent }
    }

    /// Reads what is in the ring, at most a batch; returns the numbers of frames and of datagrams among them.
    fn receive(&mut self, reader: &mut Reader<'_>) -> (usize, usize) {
        let available = self.ring.begin().min(BATCH_CHUNKS);
        let (mut frames, mut datagrams) = (0, 0);
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
                reader.refusals.count(Refused::Joined);
            } else {
                datagrams += usize::from(reader.frame(&self.queue.memory, &self.held));
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
        (frames, datagrams)
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
    /// `rest` = the ordinary socket of the stream, with its address.
    pub(crate) fn new(attached: Arc<Attached>, stream: u32, queues: Vec<StreamQueue>, rest: (SocketAddr, UdpReceiver)) -> Self {
        let (address, rest) = rest;
        let sockets = queues.iter().map(|queue| sys::readable(queue.socket.as_fd()));
        let descriptors = sockets.chain([sys::readable(rest.as_fd())]).collect();
        Self {
            attached,
            stream,
            queues,
            address,
            rest,
            joined: vec![0; PAYLOAD_BYTES_MAX],
            descriptors,
            calls: 0,
            failed: None,
            losses: Arc::default(),
            refusals: Arc::default(),
        }
    }

    /// The address that was bound, with the port that the kernel chose if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The counters of refused frames.
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// What was lost, as of the last call of [`Source::dropped`].
    pub fn losses(&self) -> Arc<Mutex<Losses>> {
        Arc::clone(&self.losses)
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
            without_socket: read(filter::WITHOUT_SOCKET)?,
            joined: read(filter::JOINED)?,
        })
    }

    /// Asks the kernel for its counters. Without an answer the last ones hold.
    fn count_losses(&mut self) -> Losses {
        let mut now = Losses { other_socket: self.rest.dropped(), ..Losses::default() };
        for queue in &self.queues {
            if let Ok(counted) = sys::statistics(queue.socket.as_fd()) {
                now.ring_full += counted.rx_ring_full;
                now.no_memory += counted.rx_dropped;
                // The counter belongs to the fill ring, which the streams of a queue share.
                now.memory_empty += counted.rx_fill_ring_empty_descs;
            }
        }
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.ring_full = losses.ring_full.max(now.ring_full);
        losses.no_memory = losses.no_memory.max(now.no_memory);
        losses.other_socket = now.other_socket;
        losses.memory_empty = losses.memory_empty.max(now.memory_empty);
        *losses
    }

    /// Waits until something can be read.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        // The kernel tells a socket that its interface is gone, but does not report that to those who poll.
        if self.failed.is_none() {
            self.failed = self.queues.iter().find_map(|queue| options::take_error(&queue.socket));
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

impl XdpReceiver {
    /// As [`Source::receive`], with the metadata that the program has put in front of the frame, if it did.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive_with_metadata(&mut self, timeout: Duration, take: &mut TakeWithMetadata<'_>) -> io::Result<usize> {
        loop {
            let (mut frames, mut datagrams) = (0, 0);
            for queue in &mut self.queues {
                let (lends_packets, has_metadata) = (self.attached.lends_packets, self.attached.has_metadata);
                let (joined, to, refusals) = (&mut *self.joined, self.address, &*self.refusals);
                let mut reader = Reader { joined, to, lends_packets, has_metadata, refusals, take: &mut *take };
                let (of_queue, good) = queue.receive(&mut reader);
                frames += of_queue;
                datagrams += good;
            }
            self.calls = self.calls.wrapping_add(1);
            if datagrams == 0 || self.calls.is_multiple_of(REST_INTERVAL) {
                if self.attached.lends_packets {
                    frames += self.rest.receive(Duration::ZERO, &mut |_, _| self.refusals.count(Refused::Headerless))?;
                } else {
                    datagrams += self.rest.receive(Duration::ZERO, &mut |datagram, sender| take(None, datagram, sender))?;
                }
            }
            if datagrams > 0 {
                return Ok(datagrams);
            }
            if frames == 0 {
                break;
            }
            // Only refused frames. To refuse one takes less time than the kernel takes to receive it, so this ends.
        }
        if !timeout.is_zero() {
            // As with other sockets: what comes now is for the next call.
            self.wait(timeout)?;
        }
        Ok(0)
    }
}

impl Source for XdpReceiver {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        self.receive_with_metadata(timeout, &mut |_, datagram, sender| take(datagram, sender))
    }

    /// Datagrams that found no room in the ring or in the memory, or that the ordinary socket of the port dropped; each
    /// is counted once. What is refused is not among them ([`XdpReceiver::refusals`]).
    fn dropped(&mut self) -> u64 {
        self.count_losses().datagrams()
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
