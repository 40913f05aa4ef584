//! Opens the receivers of the streams of one interface, in the best way that the kernel allows.

use super::errors::{Refusal, Step};
use super::filter::{COUNTERS, Filter, MapFds, program};
use super::frame::OVERHEAD_BYTES;
use super::receiver::{Attached, Queue, Report, StreamQueue, XdpReceiver};
use super::rings::{FillRing, PacketMemory, ReceiveRing};
use super::sys::{self, Hook, Interface, MapKind};
use crate::udp::UdpReceiver;
use konkordia_core::failure::{Exit, Failure};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// Chunks of a queue beyond those that can wait in receive rings: what drivers keep in the rings of the card.
const FREE_CHUNKS: u32 = 4096;
/// Bytes that the kernel leaves free before the packet in each chunk (XDP_PACKET_HEADROOM).
const HEADROOM_BYTES: u32 = 256;
/// Receive rings have at least and at most this many entries.
const RING_ENTRIES: (u32, u32) = (64, 1 << 20);
/// How often and after which time a queue is tried again that another socket still has. The kernel cleans up behind a
/// closed socket after the call has returned.
const BUSY_TRIES: u32 = 50;
const BUSY_WAIT: Duration = Duration::from_millis(20);
/// Packets that a call takes from the driver when polling busily.
const BUSY_POLL_PACKETS: u32 = 64;

/// Which ways of receiving are tried, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ways {
    /// In the driver without copies, in the driver with a copy, in the network stack.
    #[default]
    Any,
    /// In the driver only, with or without copies.
    Native,
    /// In the network stack only: works with every driver.
    Generic,
}

/// How to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The address to which the detector sends; `0.0.0.0` = any over IPv4, `::` = any.
    pub address: IpAddr,
    /// Bytes of packet memory for each stream on each queue. It is locked; with Q queues it is needed Q times, because
    /// the card decides by which queue a stream comes. The ordinary socket of a stream asks for as much, which is not
    /// locked.
    pub buffer_bytes: usize,
    /// The queues that get sockets; `None` = all. Datagrams on other queues come through the ordinary socket.
    pub queues: Option<Vec<u32>>,
    /// The ways that are tried.
    pub ways: Ways,
    /// The thread of the stream runs the driver's receive loop itself for at most this time, µs, instead of waiting for
    /// interrupts. It then uses a whole core, and saves the switches between driver and thread. Needs
    /// `napi_defer_hard_irqs` and `gro_flush_timeout` of the interface to be set. `None` = wait.
    pub busy_poll_us: Option<u32>,
    /// Compare UDP checksums, where senders computed one. Costs a pass over each such datagram.
    pub checks_sums: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            buffer_bytes: 64 << 20,
            queues: None,
            ways: Ways::Any,
            busy_poll_us: None,
            checks_sums: true,
        }
    }
}

/// One way of receiving.
#[derive(Clone, Copy, Debug)]
struct Way {
    hook: Hook,
    is_zero_copy: bool,
    name: &'static str,
}

impl Ways {
    fn list(self) -> &'static [Way] {
        static WAYS: [Way; 3] = [
            Way { hook: Hook::Native, is_zero_copy: true, name: "in the driver, without copies" },
            Way { hook: Hook::Native, is_zero_copy: false, name: "in the driver, with a copy" },
            Way { hook: Hook::Generic, is_zero_copy: false, name: "in the network stack, with a copy" },
        ];
        match self {
            Self::Any => &WAYS,
            Self::Native => &WAYS[..2],
            Self::Generic => &WAYS[2..],
        }
    }
}

/// Opens a receiver for each of the `ports` of an interface; port 0 = one that the kernel chooses. From now on the
/// interface's datagrams to these ports come to the receivers, until the last of them is dropped or the process ends.
///
/// # Errors
/// There is no such interface, or it is down; a port is in use; the rights are missing; the kernel or the driver cannot
/// do it; another program uses AF_XDP or XDP on the interface; there is not enough memory that may be locked.
pub fn open(interface: &str, ports: &[u16], options: &Options) -> Result<Vec<XdpReceiver>, Failure> {
    if ports.is_empty() {
        return Ok(Vec::new());
    }
    let failure = |refusal: Refusal| refusal.failure(interface);
    let bind = |port: u16| {
        let address = SocketAddr::new(options.address, port);
        UdpReceiver::bind_without_gro(address, options.buffer_bytes).map_err(Refusal::of(Step::Port(port)))
    };
    let rest = ports.iter().map(|port| bind(*port)).collect::<Result<Vec<_>, _>>().map_err(failure)?;
    let local = |socket: &UdpReceiver| socket.local_addr().map(|address| address.port());
    let ports = rest.iter().map(local).collect::<Result<Vec<_>, _>>().map_err(Refusal::of(Step::Port(0))).map_err(failure)?;
    let facts = Interface::read(interface, rest[0].as_fd()).map_err(Refusal::of(Step::Interface)).map_err(failure)?;
    if !facts.is_up {
        return Err(failure(Refusal::of(Step::Interface)(io::Error::from_raw_os_error(libc::ENETDOWN))));
    }
    let mut queues = options.queues.clone().unwrap_or_else(|| (0..facts.queues).collect());
    queues.sort_unstable();
    queues.dedup();
    if let Some(queue) = queues.iter().find(|queue| **queue >= facts.queues) {
        let why = format!("{interface} has {} queues, 0 to {}", facts.queues, facts.queues - 1);
        let fix = format!("give queues that exist, or make more: sudo ethtool -L {interface} combined N");
        return Err(Failure::new(Exit::Configuration, format!("{interface} has no queue {queue}"), why, fix));
    }
    let frame_bytes_max = facts.mtu + OVERHEAD_BYTES as u32;
    let filter = Filter { mac: facts.mac, address: options.address, ports, frame_bytes_max };
    let opening = Opening { filter, facts, queues, options };
    let mut notes = Vec::new();
    for (number, way) in options.ways.list().iter().enumerate() {
        match opening.try_way(*way) {
            Ok(opened) => return Ok(opened.finish(*way, notes, rest, options)),
            Err(refusal) if refusal.leaves_other_ways() && number + 1 < options.ways.list().len() => {
                notes.push(format!("not {}: {}: {}", way.name, refusal.failure(interface).what, refusal.error));
            }
            Err(refusal) => return Err(failure(refusal)),
        }
    }
    unreachable!("each list of ways has a last one, and that returned")
}

/// The interface that has this address, for [`open`]. `None` for `0.0.0.0` and `::`, which are of no interface.
///
/// # Errors
/// The kernel does not say.
pub fn interface_of(address: IpAddr) -> io::Result<Option<String>> {
    sys::interface_of(address)
}

/// What is the same for all ways.
struct Opening<'a> {
    facts: Interface,
    filter: Filter,
    queues: Vec<u32>,
    options: &'a Options,
}

/// Everything that one way made.
struct Opened {
    interface: String,
    /// For each stream its sockets on the queues.
    streams: Vec<Vec<StreamQueue>>,
    sockets: OwnedFd,
    counters: OwnedFd,
    link: OwnedFd,
    is_zero_copy: bool,
    has_huge_pages: bool,
    queues: Vec<u32>,
    memory_bytes: usize,
}

impl Opening<'_> {
    /// Bytes of a chunk: with a small MTU a packet fits half a page.
    fn chunk_bytes(&self) -> u32 {
        if self.filter.frame_bytes_max + HEADROOM_BYTES <= 2048 { 2048 } else { 4096 }
    }

    fn ring_entries(&self) -> u32 {
        let wanted = self.options.buffer_bytes as u64 / u64::from(self.chunk_bytes());
        let bounded = wanted.clamp(u64::from(RING_ENTRIES.0), u64::from(RING_ENTRIES.1)) as u32;
        bounded.next_power_of_two()
    }

    fn chunk_count(&self) -> u32 {
        self.filter.ports.len() as u32 * self.ring_entries() + FREE_CHUNKS
    }

    /// Makes everything; the program is attached last, so that no datagram finds its socket missing.
    fn try_way(&self, way: Way) -> Result<Opened, Refusal> {
        let streams = self.filter.ports.len();
        let keys = (self.queues.iter().max().map_or(0, |queue| queue + 1) * streams as u32).max(1);
        let sockets = sys::create_map(MapKind::Sockets, 4, 4, keys).map_err(Refusal::of(Step::Maps))?;
        let counters = sys::create_map(MapKind::PerCpuArray, 4, 8, COUNTERS as u32).map_err(Refusal::of(Step::Maps))?;
        let maps = MapFds { sockets: sockets.as_raw_fd(), counters: counters.as_raw_fd() };
        let program =
            sys::load_program(&program(&self.filter, maps)).map_err(|(error, log)| Refusal { step: Step::Load, error, log })?;
        let mut of_streams: Vec<Vec<StreamQueue>> = (0..streams).map(|_| Vec::new()).collect();
        for &queue in &self.queues {
            for (stream, opened) in self.open_queue(queue, way)?.into_iter().enumerate() {
                let key = queue * streams as u32 + stream as u32;
                sys::set_socket(sockets.as_fd(), key, opened.socket.as_fd()).map_err(Refusal::of(Step::Maps))?;
                of_streams[stream].push(opened);
            }
        }
        let link = sys::attach(program.as_fd(), self.facts.index, way.hook).map_err(Refusal::of(Step::Attach))?;
        let first = of_streams[0].first();
        Ok(Opened {
            interface: self.facts.name.clone(),
            is_zero_copy: first.is_some_and(|queue| sys::is_zero_copy(queue.socket.as_fd()).unwrap_or(way.is_zero_copy)),
            has_huge_pages: first.is_some_and(|queue| queue.queue.memory.is_huge()),
            streams: of_streams,
            sockets,
            counters,
            link,
            queues: self.queues.clone(),
            memory_bytes: self.queues.len() * self.chunk_count() as usize * self.chunk_bytes() as usize,
        })
    }

    /// The sockets of all streams on one queue.
    fn open_queue(&self, number: u32, way: Way) -> Result<Vec<StreamQueue>, Refusal> {
        for _ in 1..BUSY_TRIES {
            match self.try_queue(number, way) {
                Err(refusal) if refusal.may_pass() => sleep(BUSY_WAIT),
                other => return other,
            }
        }
        self.try_queue(number, way)
    }

    fn try_queue(&self, number: u32, way: Way) -> Result<Vec<StreamQueue>, Refusal> {
        let (chunk_bytes, chunk_count, entries) = (self.chunk_bytes(), self.chunk_count(), self.ring_entries());
        let rings = Refusal::of(Step::Rings);
        let owner = Arc::new(self.socket(entries)?);
        let bytes = chunk_count as usize * chunk_bytes as usize;
        let (memory, mut chunks) =
            PacketMemory::register(owner.as_fd(), chunk_bytes, chunk_count).map_err(Refusal::of(Step::Memory { bytes }))?;
        // As long as the memory has chunks, so that all of them can always be given back.
        let fill_entries = chunk_count.next_power_of_two();
        sys::set_ring(owner.as_fd(), libc::XDP_UMEM_FILL_RING, fill_entries).map_err(&rings)?;
        // Nothing is sent, but the kernel wants this ring.
        sys::set_ring(owner.as_fd(), libc::XDP_UMEM_COMPLETION_RING, 1).map_err(&rings)?;
        let mut fill = FillRing::map(owner.as_fd(), fill_entries).map_err(&rings)?;
        fill.give(&memory, &mut chunks);
        self.bind(&owner, number, way).map_err(Refusal::of(Step::Bind { queue: number }))?;
        let queue = Arc::new(Queue { number, memory, fill: Mutex::new(fill), owner });
        let open = |stream: usize| {
            let socket = if stream == 0 {
                queue.owner.clone()
            } else {
                let socket = Arc::new(self.socket(entries)?);
                sys::bind(socket.as_fd(), self.facts.index, number, 0, Some(queue.owner.as_fd()))
                    .map_err(Refusal::of(Step::Bind { queue: number }))?;
                socket
            };
            let ring = ReceiveRing::map(socket.as_fd(), entries).map_err(&rings)?;
            Ok(StreamQueue::new(queue.clone(), socket, ring))
        };
        (0..self.filter.ports.len()).map(open).collect()
    }

    fn socket(&self, entries: u32) -> Result<OwnedFd, Refusal> {
        let socket = sys::socket().map_err(Refusal::of(Step::Socket))?;
        sys::set_ring(socket.as_fd(), libc::XDP_RX_RING, entries).map_err(Refusal::of(Step::Rings))?;
        if let Some(us) = self.options.busy_poll_us {
            sys::prefer_busy_poll(socket.as_fd(), us, BUSY_POLL_PACKETS).map_err(Refusal::of(Step::Socket))?;
        }
        Ok(socket)
    }

    /// Binds the first socket of a queue, for packets in several chunks if the kernel can do that. Kernels before 6.6
    /// cannot, and need not if a chunk is large enough for the MTU.
    fn bind(&self, socket: &OwnedFd, queue: u32, way: Way) -> io::Result<()> {
        let copy = if way.is_zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let flags = copy | libc::XDP_USE_NEED_WAKEUP;
        let bind = |flags| sys::bind(socket.as_fd(), self.facts.index, queue, flags, None);
        let fits_a_chunk = self.filter.frame_bytes_max + HEADROOM_BYTES <= self.chunk_bytes();
        match bind(flags | libc::XDP_USE_SG) {
            Err(error) if fits_a_chunk && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => bind(flags),
            other => other,
        }
    }
}

impl Opened {
    fn finish(self, way: Way, mut notes: Vec<String>, rest: Vec<UdpReceiver>, options: &Options) -> Vec<XdpReceiver> {
        if self.memory_bytes > 2 << 30 {
            let queues = self.queues.len();
            notes.push(format!(
                "{} GiB of memory are locked for {queues} queues; fewer queues (sudo ethtool -L {} combined N) need less",
                self.memory_bytes >> 30,
                self.interface
            ));
        }
        let report = Report {
            interface: self.interface,
            is_native: way.hook == Hook::Native,
            is_zero_copy: self.is_zero_copy,
            has_huge_pages: self.has_huge_pages,
            queues: self.queues,
            memory_bytes: self.memory_bytes,
            notes,
        };
        let attached = Arc::new(Attached {
            _link: self.link,
            sockets: self.sockets,
            counters: self.counters,
            streams: rest.len() as u32,
            busy_poll: options.busy_poll_us.is_some(),
            checks_sums: options.checks_sums,
            report,
        });
        let streams = (0..).zip(self.streams).zip(rest);
        streams.map(|((stream, queues), rest)| XdpReceiver::new(attached.clone(), stream, queues, rest)).collect()
    }
}
