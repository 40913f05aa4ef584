//! Datagrams of one stream from a ring that the kernel fills (`AF_PACKET`), read in place.
//!
//! The kernel copies each frame for the stream from the network card into a slot of the ring; a filter in the kernel
//! decides which frames these are. The receiver reads the headers, lends the payload, and gives the slot back: there is
//! no system call and no copy per datagram. The datagrams take the ordinary way through the kernel too. A UDP socket
//! stays bound to the port, so that the kernel does not tell the sender that nobody listens, and so that no other
//! program can take the port; it throws all its datagrams away.
//!
//! Each stream has its own ring with its own filter (docs/decisions/0025-receive-backends.md). Streams that share a
//! port lend whole IP packets, because their checksum covers the headers (docs/decisions/0051-icrc-behind-rings.md).

mod filter;

use crate::frame::{Arrival, Checksum, Lent, Refusals};
use crate::shared_port::{SharedPort, SharingStream};
use crate::sys;
use crate::sys::interfaces::{self, Interface};
use crate::sys::packet::{Ring, RingSpec};
use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most datagrams of one call of [`Source::receive`]: as many as a socket hands over with GRO.
const BATCH: usize = 256;
/// The longest IP packet that a slot holds: the largest jumbo frames of network cards. Loopback allows more, but what
/// is longer there are several datagrams in one.
const PACKET_BYTES_MAX: usize = 9600;
/// The kernel fills a slot within microseconds after it has counted the frame, unless it loses its processor.
const ANNOUNCED_WAIT: Duration = Duration::from_secs(1);
/// While the interface is down, it is looked at this often at most.
const DOWN_WAIT: Duration = Duration::from_millis(10);

/// Why there is no ring.
#[derive(Debug)]
pub enum NoRing {
    /// The port cannot be bound.
    Port(io::Error),
    /// The address stands for all interfaces, or no interface has it, as the text says.
    NoInterface(String),
    /// The frames of this interface have no Ethernet header.
    NotEthernet(String),
    /// The process has no right to see frames.
    NoRight,
    /// The system refused the ring of this interface.
    System(String, io::Error),
}

impl fmt::Display for NoRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(error) => write!(f, "the port cannot be bound: {error}"),
            Self::NoInterface(why) => f.write_str(why),
            Self::NotEthernet(name) => write!(f, "{name} is no Ethernet card"),
            Self::NoRight => write!(f, "the program has no right to see the frames of a network card (CAP_NET_RAW)"),
            Self::System(name, error) => write!(f, "the system refuses a ring of {name}: {error}"),
        }
    }
}

/// Lends the datagrams of one stream from its ring.
pub struct PacketReceiver {
    ring: Ring,
    /// Keeps the port.
    socket: Arc<UdpSocket>,
    address: SocketAddr,
    interface: Interface,
    /// IP packets are lent, and not only payloads.
    lends_packets: bool,
    refusals: Arc<Refusals>,
    /// Frames that have got a slot, as far as the kernel was asked.
    placed: u64,
    /// Frames that were taken out of their slots.
    taken: u64,
    dropped: u64,
    /// The interface was down when it was last looked at.
    is_down: bool,
}

impl PacketReceiver {
    /// Binds `address`, and opens a ring of `ring_bytes` on the interface that has this address. The kernel may give
    /// less memory, see [`PacketReceiver::ring_bytes`].
    ///
    /// # Errors
    /// See [`NoRing`].
    pub fn open(address: SocketAddr, ring_bytes: usize) -> Result<Self, NoRing> {
        let interface = interface_of(address)?;
        let (socket, address) = keep_port(address).map_err(NoRing::Port)?;
        Self::with(interface, socket.into(), address, None, ring_bytes)
    }

    /// Opens a ring of `ring_bytes` for each of the streams that share the port of `address`. They lend whole IP
    /// packets, from the IP header to the end of the datagram, whose UDP checksum is not compared.
    ///
    /// # Errors
    /// As [`PacketReceiver::open`].
    pub fn open_shared(shared: SharedPort, address: SocketAddr, streams: usize, ring_bytes: usize) -> Result<Vec<Self>, NoRing> {
        let interface = interface_of(address)?;
        let (socket, address) = keep_port(address).map_err(NoRing::Port)?;
        let socket = Arc::new(socket);
        let open = |stream: usize| {
            let sharing = SharingStream { shared, stream: stream as u32, streams: streams as u32 };
            Self::with(interface.clone(), Arc::clone(&socket), address, Some(sharing), ring_bytes)
        };
        (0..streams).map(open).collect()
    }

    fn with(
        interface: Interface,
        socket: Arc<UdpSocket>,
        address: SocketAddr,
        sharing: Option<SharingStream>,
        ring_bytes: usize,
    ) -> Result<Self, NoRing> {
        let protocol = if address.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let filter = filter::program(address, sharing);
        let mtu = interface.mtu.min(PACKET_BYTES_MAX);
        let spec = RingSpec { interface: interface.index, mtu, protocol, filter: &filter, bytes: ring_bytes };
        let ring = Ring::open(&spec).map_err(|error| match error.raw_os_error() {
            // The second comes from RestrictAddressFamilies of systemd.
            Some(libc::EPERM | libc::EAFNOSUPPORT) => NoRing::NoRight,
            _ => NoRing::System(interface.name.clone(), error),
        })?;
        Ok(Self {
            ring,
            socket,
            address,
            interface,
            lends_packets: sharing.is_some(),
            refusals: Arc::default(),
            placed: 0,
            taken: 0,
            dropped: 0,
            is_down: false,
        })
    }

    /// Memory of the ring.
    pub fn ring_bytes(&self) -> usize {
        self.ring.bytes()
    }

    /// The address that was bound, with the port that the kernel chose if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    /// The counters of refused frames.
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// Takes the frames that are there; returns the numbers of frames and of datagrams among them.
    fn take(&mut self, take: &mut dyn FnMut(&[u8], Sender)) -> (usize, usize) {
        let (mut frames, mut datagrams) = (0, 0);
        let (address, refusals, lends_packets) = (self.address, &self.refusals, self.lends_packets);
        while frames < BATCH {
            let lent = self.ring.next(|frame| {
                let checksum = match (lends_packets, frame.is_verified) {
                    (true, _) => Checksum::Superseded,
                    (false, true) => Checksum::Verified,
                    (false, false) => Checksum::Unknown,
                };
                let arrival = Arrival { frame_bytes: frame.frame_bytes, here_bytes: frame.bytes.len(), checksum };
                let lent = Lent { frame: frame.bytes, arrival, to: address, is_packet: lends_packets };
                datagrams += usize::from(lent.hand_over(refusals, take));
            });
            if !lent {
                break;
            }
            frames += 1;
        }
        self.taken += frames as u64;
        (frames, datagrams)
    }

    /// Asks the kernel for its counters.
    fn count(&mut self) -> io::Result<()> {
        let counts = self.ring.counts()?;
        self.placed += counts.placed;
        self.dropped += counts.dropped;
        Ok(())
    }

    /// Waits for a frame, at most `timeout`. An interface that is down may come back, one that is gone may not.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if !self.is_down {
            sys::wait_readable(&self.ring, timeout)?;
            let Some(error) = sys::options::take_error(&self.ring) else { return Ok(()) };
            if error.raw_os_error() != Some(libc::ENETDOWN) {
                return Err(error);
            }
            self.is_down = true;
        }
        if interfaces::index_of(&self.interface.name) != Some(self.interface.index) {
            let name = &self.interface.name;
            return Err(io::Error::new(io::ErrorKind::NotConnected, format!("the network interface {name} is gone")));
        }
        // The kernel fills the ring again when the interface is up again, but does not say so.
        std::thread::sleep(timeout.min(DOWN_WAIT));
        Ok(())
    }
}

/// The interface of an address, if its frames can be read.
fn interface_of(address: SocketAddr) -> Result<Interface, NoRing> {
    let interface = interfaces::with_address(address.ip()).map_err(NoRing::NoInterface)?;
    if interface.is_ethernet { Ok(interface) } else { Err(NoRing::NotEthernet(interface.name)) }
}

/// A socket that keeps the port and throws all its datagrams away; with the address that was bound.
pub(crate) fn keep_port(address: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = UdpSocket::bind(address)?;
    let address = socket.local_addr()?;
    sys::options::attach_filter(&socket, &filter::nothing())?;
    Ok((socket, address))
}

impl Source for PacketReceiver {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        let mut announced = None;
        loop {
            let (frames, datagrams) = self.take(take);
            if frames > 0 {
                self.is_down = false;
            }
            if datagrams > 0 {
                return Ok(datagrams);
            }
            if frames > 0 {
                // Only refused frames. To refuse one takes less time than the kernel takes to receive it, so this ends.
                announced = None;
                continue;
            }
            // A frame may be in a later slot although the next one is still being written by another processor. Only
            // the kernel's count says that nothing is on its way.
            self.count()?;
            if self.placed == self.taken {
                break;
            }
            if announced.get_or_insert_with(Instant::now).elapsed() > ANNOUNCED_WAIT {
                return Err(io::Error::other("the kernel has counted a frame that is not in its ring"));
            }
            std::thread::yield_now();
        }
        if !timeout.is_zero() {
            self.wait(timeout)?;
        }
        Ok(0)
    }

    fn dropped(&mut self) -> u64 {
        // Without an answer the last count holds.
        let _ = self.count();
        self.dropped
    }
}

impl fmt::Debug for PacketReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketReceiver({} on {}, port kept by {:?})", self.address, self.interface.name, self.socket)
    }
}
