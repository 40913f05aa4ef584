//! Opens the receivers of the streams of one interface, in the best way that the kernel allows.

use super::errors::{Refusal, Step};
use super::filter::{COUNTERS, Filter, MapFds, PutMetadata, Streams, program};
use super::receiver::{Attached, Queue, Report, StreamQueue, XdpReceiver};
use super::rings::{FillRing, PacketMemory, ReceiveRing};
use super::sys::{self, Hook, MapKind};
use crate::frame::OVERHEAD_BYTES;
use crate::shared_port::SharedPort;
use crate::sys::interfaces::{self, Interface};
use crate::udp::UdpReceiver;
use konkordia_core::failure::{Exit, Failure};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// Chunks of a queue beyond those that can wait in receive rings: what drivers keep in the rings of the card.
const FREE_CHUNKS: u32 = 4096;
/// Bytes that the kernel leaves free before the packet in each chunk (XDP_PACKET_HEADROOM).
const HEADROOM_BYTES: usize = 256;
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
}

impl Default for Options {
    fn default() -> Self {
        Self { buffer_bytes: 64 << 20, queues: None, ways: Ways::Any, busy_poll_us: None }
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

/// Why there are no receivers.
#[derive(Debug)]
pub enum NoSockets {
    /// The port of this stream cannot be bound.
    Port(usize, io::Error),
    /// The address stands for all interfaces, or no interface has it, as the text says.
    NoInterface(String),
    /// The interface cannot be used in this way.
    Refused(Failure),
}

/// The packet memory of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    chunk_bytes: u32,
    /// Chunks of all its streams, and free ones.
    chunk_count: u32,
    /// Entries of the ring of a stream.
    ring_entries: u32,
}

impl Sizes {
    fn of(mtu: usize, streams: usize, buffer_bytes: usize) -> Self {
        // With a small MTU a packet fits half a page.
        let chunk_bytes = if mtu + OVERHEAD_BYTES + HEADROOM_BYTES <= 2048 { 2048 } else { 4096 };
        let wanted = buffer_bytes as u64 / u64::from(chunk_bytes);
        let bounded = wanted.clamp(u64::from(RING_ENTRIES.0), u64::from(RING_ENTRIES.1)) as u32;
        let ring_entries = bounded.next_power_of_two();
        Self { chunk_bytes, chunk_count: streams as u32 * ring_entries + FREE_CHUNKS, ring_entries }
    }

    fn bytes(self) -> usize {
        self.chunk_count as usize * self.chunk_bytes as usize
    }
}

/// Locked memory that [`open`] takes for so many streams at an address on all queues; 0 if no interface has it.
pub fn memory_bytes(address: IpAddr, streams: usize, buffer_bytes: usize) -> u64 {
    let Ok(interface) = interfaces::with_address(address) else { return 0 };
    let of_queue = Sizes::of(interface.mtu, streams, buffer_bytes).bytes() as u64;
    of_queue * u64::from(interfaces::queues_of(&interface.name))
}

/// Opens a receiver for each of the `addresses`, which are ports of one address of an interface; port 0 = one that the
/// kernel chooses. From now on the interface's datagrams to these ports come to the receivers, until the last of them
/// is dropped or the process ends.
///
/// # Errors
/// No interface has the address, or it is down or no Ethernet; a port is in use; the rights are missing; the kernel or
/// the driver cannot do it; another program uses AF_XDP or XDP on the interface; there is not enough memory that may be
/// locked.
///
/// # Panics
/// If the addresses differ in more than their ports.
pub fn open(addresses: &[SocketAddr], options: &Options) -> Result<Vec<XdpReceiver>, NoSockets> {
    open_ports(addresses, None, options)
}

/// As [`open`], for receivers of [`XdpReceiver::receive_with_metadata`]. Frames that `metadata` lets pass come through
/// the ordinary sockets, without metadata.
///
/// # Errors
/// As [`open`].
///
/// # Panics
/// As [`open`].
pub fn open_with_metadata(
    addresses: &[SocketAddr],
    metadata: PutMetadata<'_>,
    options: &Options,
) -> Result<Vec<XdpReceiver>, NoSockets> {
    open_ports(addresses, Some(metadata), options)
}

fn open_ports(
    addresses: &[SocketAddr],
    metadata: Option<PutMetadata<'_>>,
    options: &Options,
) -> Result<Vec<XdpReceiver>, NoSockets> {
    let Some(first) = addresses.first() else { return Ok(Vec::new()) };
    assert!(addresses.iter().all(|address| address.ip() == first.ip()), "one address: {addresses:?}");
    let bind = |(stream, address): (usize, &SocketAddr)| {
        UdpReceiver::bind_without_gro(*address, options.buffer_bytes).map_err(|error| NoSockets::Port(stream, error))
    };
    let bind_all = || addresses.iter().enumerate().map(bind).collect();
    open_with(first.ip(), Filtering { shared: None, metadata }, options, bind_all)
}

/// As [`open`], for streams that share a port: a number in their datagrams tells them apart. They lend whole IP
/// packets, from the IP header to the end of the datagram, whose UDP checksum is not compared. What comes through the
/// ordinary sockets, which show no header, is refused.
///
/// # Errors
/// As [`open`].
pub fn open_shared(
    shared: SharedPort,
    address: SocketAddr,
    streams: usize,
    options: &Options,
) -> Result<Vec<XdpReceiver>, NoSockets> {
    if streams == 0 {
        return Ok(Vec::new());
    }
    let bind_all = || shared.bind(address, streams, options.buffer_bytes).map_err(|error| NoSockets::Port(0, error));
    open_with(address.ip(), Filtering { shared: Some(shared), metadata: None }, options, bind_all)
}

/// What the program does beside looking at ports.
#[derive(Clone, Copy)]
struct Filtering<'a> {
    /// Streams are told apart by a number in their datagrams.
    shared: Option<SharedPort>,
    /// Metadata are put in front of frames.
    metadata: Option<PutMetadata<'a>>,
}

/// Opens the receivers. `bind` = makes the ordinary sockets of the streams.
fn open_with(
    address: IpAddr,
    filtering: Filtering<'_>,
    options: &Options,
    bind: impl FnOnce() -> Result<Vec<UdpReceiver>, NoSockets>,
) -> Result<Vec<XdpReceiver>, NoSockets> {
    let interface = interfaces::with_address(address).map_err(NoSockets::NoInterface)?;
    let failure = |refusal: Refusal| NoSockets::Refused(refusal.failure(&interface.name));
    let unfit = |code| failure(Refusal::of(Step::Interface)(io::Error::from_raw_os_error(code)));
    if interface.is_loopback || !interface.is_ethernet {
        return Err(unfit(libc::EPFNOSUPPORT));
    }
    if !interface.is_up {
        return Err(unfit(libc::ENETDOWN));
    }
    let with_address = |(stream, socket): (usize, UdpReceiver)| match socket.local_addr() {
        Ok(address) => Ok((address, socket)),
        Err(error) => Err(NoSockets::Port(stream, error)),
    };
    let rest = bind()?.into_iter().enumerate().map(with_address).collect::<Result<Vec<_>, _>>()?;
    let streams = match filtering.shared {
        None => Streams::Ports(rest.iter().map(|(address, _)| address.port()).collect()),
        Some(shared) => Streams::Numbers(rest[0].0.port(), shared, rest.len()),
    };
    let queues = queues(&interface.name, options).map_err(NoSockets::Refused)?;
    let frame_bytes_max = (interface.mtu + OVERHEAD_BYTES) as u32;
    let sizes = Sizes::of(interface.mtu, rest.len(), options.buffer_bytes);
    let filter = Filter { mac: interface.mac, address, streams, frame_bytes_max };
    let opening = Opening { filter, sizes, interface: &interface, queues, metadata: filtering.metadata, options };
    let mut notes = Vec::new();
    for (number, way) in options.ways.list().iter().enumerate() {
        match opening.try_way(*way) {
            Ok(opened) => return Ok(opened.finish(*way, notes, rest, filtering, options)),
            Err(refusal) if refusal.leaves_other_ways() && number + 1 < options.ways.list().len() => {
                notes.push(format!("not {}: {}: {}", way.name, refusal.failure(&interface.name).what, refusal.error));
            }
            Err(refusal) => return Err(failure(refusal)),
        }
    }
    unreachable!("each list of ways has a last one, and that returned")
}

/// The queues that get sockets, in order.
fn queues(interface: &str, options: &Options) -> Result<Vec<u32>, Failure> {
    let present = interfaces::queues_of(interface);
    let mut queues = options.queues.clone().unwrap_or_else(|| (0..present).collect());
    queues.sort_unstable();
    queues.dedup();
    match queues.iter().find(|queue| **queue >= present) {
        None => Ok(queues),
        Some(queue) => {
            let why = format!("{interface} has {present} queues, 0 to {}", present - 1);
            let fix = format!("give queues that exist, or make more: sudo ethtool -L {interface} combined N");
            Err(Failure::new(Exit::Configuration, format!("{interface} has no queue {queue}"), why, fix))
        }
    }
}

/// What is the same for all ways.
struct Opening<'a> {
    interface: &'a Interface,
    sizes: Sizes,
    filter: Filter,
    queues: Vec<u32>,
    metadata: Option<PutMetadata<'a>>,
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
    sizes: Sizes,
}

impl Opening<'_> {
    /// Makes everything; the program is attached last, so that no datagram finds its socket missing.
    fn try_way(&self, way: Way) -> Result<Opened, Refusal> {
        let streams = self.filter.streams.count();
        let keys = (self.queues.iter().max().map_or(0, |queue| queue + 1) * streams as u32).max(1);
        let sockets = sys::create_map(MapKind::Sockets, 4, 4, keys).map_err(Refusal::of(Step::Maps))?;
        let counters = sys::create_map(MapKind::PerCpuArray, 4, 8, COUNTERS as u32).map_err(Refusal::of(Step::Maps))?;
        let maps = MapFds { sockets: sockets.as_raw_fd(), counters: counters.as_raw_fd() };
        let program = sys::load_program(&program(&self.filter, maps, self.metadata)).map_err(|(error, log)| Refusal {
            step: Step::Load,
            error,
            log,
        })?;
        let mut of_streams: Vec<Vec<StreamQueue>> = (0..streams).map(|_| Vec::new()).collect();
        for &queue in &self.queues {
            for (stream, opened) in self.open_queue(queue, way)?.into_iter().enumerate() {
                let key = queue * streams as u32 + stream as u32;
                sys::set_socket(sockets.as_fd(), key, opened.socket.as_fd()).map_err(Refusal::of(Step::Maps))?;
                of_streams[stream].push(opened);
            }
        }
        let link = sys::attach(program.as_fd(), self.interface.index, way.hook).map_err(Refusal::of(Step::Attach))?;
        let first = of_streams[0].first();
        Ok(Opened {
            interface: self.interface.name.clone(),
            is_zero_copy: first.is_some_and(|queue| sys::is_zero_copy(queue.socket.as_fd()).unwrap_or(way.is_zero_copy)),
            has_huge_pages: first.is_some_and(|queue| queue.queue.memory.is_huge()),
            streams: of_streams,
            sockets,
            counters,
            link,
            queues: self.queues.clone(),
            sizes: self.sizes,
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
        let Sizes { chunk_bytes, chunk_count, ring_entries: entries } = self.sizes;
        let rings = Refusal::of(Step::Rings);
        let owner = Arc::new(self.socket(entries)?);
        let bytes = self.sizes.bytes();
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
                sys::bind(socket.as_fd(), self.interface.index, number, 0, Some(queue.owner.as_fd()))
                    .map_err(Refusal::of(Step::Bind { queue: number }))?;
                socket
            };
            let ring = ReceiveRing::map(socket.as_fd(), entries).map_err(&rings)?;
            Ok(StreamQueue::new(queue.clone(), socket, ring))
        };
        (0..self.filter.streams.count()).map(open).collect()
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
        let bind = |flags| sys::bind(socket.as_fd(), self.interface.index, queue, flags, None);
        let fits_a_chunk = self.interface.mtu + OVERHEAD_BYTES + HEADROOM_BYTES <= self.sizes.chunk_bytes as usize;
        match bind(flags | libc::XDP_USE_SG) {
            Err(error) if fits_a_chunk && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => bind(flags),
            other => other,
        }
    }
}

impl Opened {
    /// `rest` = the ordinary sockets of the streams, with their addresses.
    fn finish(
        self,
        way: Way,
        mut notes: Vec<String>,
        rest: Vec<(SocketAddr, UdpReceiver)>,
        filtering: Filtering<'_>,
        options: &Options,
    ) -> Vec<XdpReceiver> {
        let memory_bytes = self.queues.len() * self.sizes.bytes();
        if memory_bytes > 2 << 30 {
            let queues = self.queues.len();
            notes.push(format!(
                "{} GiB of memory are locked for {queues} queues; fewer queues (sudo ethtool -L {} combined N) need less",
                memory_bytes >> 30,
                self.interface
            ));
        }
        let report = Report {
            interface: self.interface,
            way: way.name,
            is_native: way.hook == Hook::Native,
            is_zero_copy: self.is_zero_copy,
            has_huge_pages: self.has_huge_pages,
            queues: self.queues,
            memory_bytes,
            ring_bytes: self.sizes.ring_entries as usize * self.sizes.chunk_bytes as usize,
            notes,
        };
        let attached = Arc::new(Attached {
            _link: self.link,
            sockets: self.sockets,
            counters: self.counters,
            streams: rest.len() as u32,
            busy_poll: options.busy_poll_us.is_some(),
            lends_packets: filtering.shared.is_some(),
            has_metadata: filtering.metadata.is_some(),
            report,
        });
        let streams = (0..).zip(self.streams).zip(rest);
        streams.map(|((stream, queues), rest)| XdpReceiver::new(attached.clone(), stream, queues, rest)).collect()
    }
}
