//! Datagrams of one stream from a queue pair of type "raw packet": an RDMA card writes the frames into memory of this
//! program, past the kernel, and the payload is read in place. The sender knows nothing of it. A UDP socket stays bound
//! to the port, so that no other program can take it.
//!
//! **None of this has ever run on a card**, because there was none: what lies around the card (headers, refusals, the
//! port) is the code of [`crate::packet`], and structures and rules of the card are compared with the headers of
//! rdma-core (`crates/links`).

use crate::frame::{Arrival, Checksum, Lent, Refusals};
use crate::packet::keep_port;
use crate::sys::interfaces::{self, Interface};
use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use konkordia_links::verbs::{FrameQueue, FrameQueueSpec, devices};
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes in front of an IP packet: Ethernet header and two tags.
const HEADER_BYTES: usize = 14 + 2 * 4;
/// The longest IP packet that a slot holds.
const PACKET_BYTES_MAX: usize = 9600;

/// Why there is no queue.
#[derive(Debug)]
pub enum NoQueue {
    /// The port of this stream cannot be bound.
    Port(usize, io::Error),
    /// The address stands for all interfaces, or no interface has it, as the text says.
    NoInterface(String),
    /// The card refused, or there is no RDMA card, as the text says.
    Refused(String),
}

impl fmt::Display for NoQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(stream, error) => write!(f, "the port of stream {stream} cannot be bound: {error}"),
            Self::NoInterface(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

/// An RDMA device and its port, as `/sys` names them for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CardPort {
    device: String,
    number: u8,
}

/// The RDMA device behind an interface. `/sys` has to be that of the network namespace of the interface.
fn card_port(sys: &Path, interface: &str) -> Result<CardPort, String> {
    let folder = sys.join("class/net").join(interface);
    let names = |path: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let device = names(&folder.join("device/infiniband")).into_iter().min();
    let device = device.ok_or_else(|| {
        format!(
            "{interface} is no RDMA card ({} is empty or absent); `rdma link` shows those that are",
            folder.join("device/infiniband").display()
        )
    })?;
    let ports = names(&sys.join("class/infiniband").join(&device).join("ports"));
    let own = std::fs::read_to_string(folder.join("dev_port")).ok().and_then(|text| text.trim().parse::<u8>().ok());
    // Most drivers have a device for each port, which is then number 1 whatever the card calls it.
    let number = if ports.len() > 1 { own.unwrap_or(0) + 1 } else { 1 };
    Ok(CardPort { device, number })
}

/// Frames that the card dropped because no slot was free, where it counts them. The counter is of the port, so what is
/// new goes to the stream that looks first.
#[derive(Debug)]
struct Drops {
    path: PathBuf,
    /// The count at the last look; `None` = the card has no such counter.
    seen: Option<u64>,
}

impl Drops {
    fn of(sys: &Path, port: &CardPort) -> Self {
        let ports = sys.join("class/infiniband").join(&port.device).join("ports");
        let path = ports.join(port.number.to_string()).join("hw_counters/out_of_buffer");
        let mut drops = Self { path, seen: None };
        drops.seen = drops.count();
        drops
    }

    fn count(&self) -> Option<u64> {
        std::fs::read_to_string(&self.path).ok()?.trim().parse().ok()
    }

    /// What came since the last look.
    fn more(&mut self) -> u64 {
        let (Some(seen), Some(now)) = (self.seen, self.count()) else { return 0 };
        self.seen = Some(now);
        now.saturating_sub(seen)
    }
}

/// Lends the datagrams of one stream.
pub struct VerbsReceiver {
    queue: FrameQueue,
    /// Keeps the port.
    _socket: UdpSocket,
    address: SocketAddr,
    interface: Interface,
    port: CardPort,
    refusals: Arc<Refusals>,
    drops: Arc<Mutex<Drops>>,
    dropped: u64,
}

/// Opens a queue for each address, all on the interface that has it, with `buffer_bytes` for each, and the notes on
/// them.
///
/// # Errors
/// See [`NoQueue`].
pub fn open(addresses: &[SocketAddr], buffer_bytes: usize) -> Result<(Vec<VerbsReceiver>, Vec<String>), NoQueue> {
    let Some(first) = addresses.first() else { return Ok(Default::default()) };
    let interface = interfaces::with_address(first.ip()).map_err(NoQueue::NoInterface)?;
    devices().map_err(|error| NoQueue::Refused(error.to_string()))?;
    let sys = Path::new("/sys");
    let port = card_port(sys, &interface.name).map_err(NoQueue::Refused)?;
    let drops = Drops::of(sys, &port);
    let notes = match drops.seen {
        Some(_) => Vec::new(),
        None => vec![format!(
            "{} does not count frames that it drops for want of memory ({} is absent): they show as missing packets only",
            port.device,
            drops.path.display()
        )],
    };
    let drops = Arc::new(Mutex::new(drops));
    let open = |(stream, address): (usize, &SocketAddr)| {
        let (socket, address) = keep_port(*address).map_err(|error| NoQueue::Port(stream, error))?;
        let frame_bytes_max = HEADER_BYTES + interface.mtu.min(PACKET_BYTES_MAX);
        let queue = FrameQueue::open(&FrameQueueSpec {
            device: port.device.clone(),
            port: port.number,
            mac: interface.mac,
            to: address,
            frame_bytes_max,
            slots: buffer_bytes / frame_bytes_max,
        })
        .map_err(|why| NoQueue::Refused(format!("{}: {why}", port.device)))?;
        let (interface, port, refusals, drops) = (interface.clone(), port.clone(), Arc::default(), Arc::clone(&drops));
        Ok(VerbsReceiver { queue, _socket: socket, address, interface, port, refusals, drops, dropped: 0 })
    };
    Ok((addresses.iter().enumerate().map(open).collect::<Result<_, _>>()?, notes))
}

impl VerbsReceiver {
    /// Memory of the frames.
    pub fn memory_bytes(&self) -> usize {
        self.queue.memory_bytes()
    }

    /// The address that was bound, with the port that the kernel chose if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Device and port, for people.
    pub fn card(&self) -> String {
        format!(
            "{} port {} ({}), {} frames for each stream",
            self.port.device,
            self.port.number,
            self.interface.name,
            self.queue.slots()
        )
    }

    /// The counters of refused frames.
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// Takes the frames that are there; returns the numbers of frames and of datagrams among them.
    fn take(&mut self, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<(usize, usize)> {
        let (address, refusals) = (self.address, &self.refusals);
        let mut datagrams = 0;
        let frames = self.queue.take(&mut |frame| {
            let checksum = if frame.is_verified { Checksum::Verified } else { Checksum::Unknown };
            let arrival = Arrival { checksum, ..Arrival::whole(frame.bytes.len()) };
            let lent = Lent { frame: frame.bytes, arrival, to: address, is_packet: false };
            datagrams += usize::from(lent.hand_over(refusals, take));
        });
        Ok((frames.map_err(io::Error::other)?, datagrams))
    }
}

impl Source for VerbsReceiver {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        let mut is_armed = false;
        loop {
            let (frames, datagrams) = self.take(take)?;
            match (frames, is_armed) {
                _ if datagrams > 0 => return Ok(datagrams),
                (0, false) if timeout.is_zero() => return Ok(0),
                (0, false) => {
                    self.queue.arm().map_err(io::Error::other)?;
                    is_armed = true;
                }
                (0, true) => break,
                // Only refused frames: look again.
                _ => is_armed = false,
            }
        }
        self.queue.wait(timeout).map_err(io::Error::other)?;
        Ok(0)
    }

    fn dropped(&mut self) -> u64 {
        self.dropped += self.drops.lock().unwrap_or_else(PoisonError::into_inner).more();
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A `/sys` with an interface `card0`, whose devices and ports are given.
    fn sys(devices: &[&str], ports: usize, dev_port: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let net = folder.path().join("class/net/card0");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("dev_port"), dev_port).unwrap();
        for device in devices {
            fs::create_dir_all(net.join("device/infiniband").join(device)).unwrap();
            for port in 1..=ports {
                let counters = folder.path().join("class/infiniband").join(device).join(format!("ports/{port}/hw_counters"));
                fs::create_dir_all(counters).unwrap();
            }
        }
        folder
    }

    #[test]
    fn the_device_of_an_interface_is_found_with_its_port() {
        let found = |devices: &[&str], ports, dev_port| card_port(sys(devices, ports, dev_port).path(), "card0");
        assert_eq!(found(&["mlx5_3"], 1, "1\n"), Ok(CardPort { device: "mlx5_3".into(), number: 1 }));
        assert_eq!(found(&["mlx4_0"], 2, "1\n"), Ok(CardPort { device: "mlx4_0".into(), number: 2 }));
        let why = found(&[], 0, "0").unwrap_err();
        assert!(why.starts_with("card0 is no RDMA card"), "{why}");
    }

    #[test]
    fn drops_are_counted_from_the_beginning_of_the_run_and_only_once() {
        let folder = sys(&["mlx5_0"], 1, "0");
        let port = card_port(folder.path(), "card0").unwrap();
        assert_eq!(Drops::of(folder.path(), &port).seen, None);
        let path = folder.path().join("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer");
        fs::write(&path, "70\n").unwrap();
        let mut drops = Drops::of(folder.path(), &port);
        assert_eq!(drops.more(), 0);
        fs::write(&path, "73\n").unwrap();
        assert_eq!((drops.more(), drops.more()), (3, 0));
        // A driver that was loaded again begins at 0.
        fs::write(&path, "1\n").unwrap();
        assert_eq!(drops.more(), 0);
        fs::remove_file(&path).unwrap();
        assert_eq!(drops.more(), 0);
    }

    #[test]
    fn a_host_without_a_card_says_what_it_needs() {
        let why = open(&["127.0.0.1:0".parse().unwrap()], 1 << 20).err().unwrap().to_string();
        assert!(["no RDMA device", "libibverbs", "is no RDMA card"].iter().any(|part| why.contains(part)), "{why}");
        let any = open(&["0.0.0.0:0".parse().unwrap()], 1 << 20).err().unwrap();
        assert!(matches!(any, NoQueue::NoInterface(_)), "{any}");
        assert!(open(&[], 1).is_ok_and(|(receivers, _)| receivers.is_empty()));
    }
}
