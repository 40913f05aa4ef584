//! Sends a feed at a steady rate: in the largest bursts that one system call takes, or datagram by datagram through the
//! fault link.

use super::feed::Feed;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_sim::fault::{Datagram, FaultLink};
use konkordia_sources::udp::UdpSender;
use std::net::{SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Largest payload of one system call.
const CALL_BYTES_MAX: usize = 65507;
/// Below this a sleep would last longer than asked for.
const SLEEP_MIN: Duration = Duration::from_micros(40);

/// The packets of an image are spread evenly over its period, but not over more than this: detectors read out in
/// milliseconds, and receivers give an image up after a deadline.
const SPREAD_SECONDS_MAX: f64 = 0.02;

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Images.
    pub images: u64,
    /// Datagrams.
    pub packets: u64,
    /// Bytes of the datagrams.
    pub bytes: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
}

/// How to send.
pub struct Pace {
    /// Images per second, 0 = as fast as possible.
    pub rate_hz: f64,
    /// Most datagrams of one burst to one stream; bounded by what a system call takes.
    pub burst_max: usize,
}

impl Pace {
    /// A rate, with the largest bursts.
    pub fn at(rate_hz: f64) -> Self {
        Self { rate_hz, burst_max: usize::MAX }
    }
}

/// One socket per stream; `None` for silent streams.
pub struct Senders(Vec<Option<UdpSender>>);

impl Senders {
    /// Connects to `streams` consecutive ports from `to` on.
    pub fn consecutive(to: SocketAddr, streams: usize, silent: &[usize]) -> Result<Self, Failure> {
        let address = |stream: usize| {
            let port = u16::try_from(usize::from(to.port()) + stream).map_err(|_| {
                let why = format!("{streams} streams from port {} reach beyond port 65535", to.port());
                Failure::new(Exit::Usage, "there are not enough ports", why, "give a lower port")
            })?;
            Ok(SocketAddr::new(to.ip(), port))
        };
        Self::connect(&(0..streams).map(address).collect::<Result<Vec<_>, Failure>>()?, silent)
    }

    /// Sends one datagram of a stream, unless it is silent.
    pub fn send(&mut self, stream: usize, datagram: &[u8]) -> std::io::Result<()> {
        self.0[stream].as_mut().map_or(Ok(()), |sender| sender.send(datagram))
    }

    /// For `streams` streams that are written by RoCEv2 to one port.
    pub fn roce(to: SocketAddrV4, streams: usize, silent: &[usize]) -> Result<Self, Failure> {
        let open =
            |stream: usize| (!silent.contains(&stream)).then(|| UdpSender::for_roce(to).map_err(|e| no_way(to.into(), &e)));
        (0..streams).map(|stream| open(stream).transpose()).collect::<Result<_, _>>().map(Self)
    }

    /// From where each stream is sent; silent ones from nowhere.
    pub fn local_addresses(&self) -> Result<Vec<SocketAddrV4>, Failure> {
        let nowhere = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
        let of = |sender: &Option<UdpSender>| match sender.as_ref().map(UdpSender::local_addr).transpose() {
            Ok(Some(SocketAddr::V4(address))) => Ok(address),
            Ok(_) => Ok(nowhere),
            Err(e) => Err(failed(&e)),
        };
        self.0.iter().map(of).collect()
    }

    /// Connects to these addresses, by stream.
    pub fn connect(to: &[SocketAddr], silent: &[usize]) -> Result<Self, Failure> {
        let connect = |(stream, address): (usize, &SocketAddr)| {
            if silent.contains(&stream) {
                return Ok(None);
            }
            UdpSender::connect(*address).map(Some).map_err(|e| no_way(*address, &e))
        };
        to.iter().enumerate().map(connect).collect::<Result<_, _>>().map(Self)
    }
}

fn no_way(to: SocketAddr, error: &std::io::Error) -> Failure {
    let fix = "check address and route: `ip route get` shows the route of a packet";
    Failure::new(Exit::Io, format!("cannot send to {to}"), reason(error), fix)
}

/// The failure to send a datagram.
pub fn failed(error: &std::io::Error) -> Failure {
    let fix = "datagrams of 8240 bytes need an MTU of 9000 on a real network; on loopback look at `dmesg`";
    Failure::new(Exit::Io, "a datagram could not be sent", reason(error), fix)
}

/// Sleeps until `due` seconds after `start`, if that is worth a sleep. The schedule is absolute, so delays do not add
/// up.
pub fn wait_until(start: Instant, due: f64) {
    let ahead = Duration::from_secs_f64(due).saturating_sub(start.elapsed());
    if ahead > SLEEP_MIN {
        std::thread::sleep(ahead);
    }
}

/// Sends these images of `feed`, all streams side by side. `before_burst` gets what was sent so far. It may wait,
/// and ends the sending by returning false.
pub fn send(
    feed: &mut Feed,
    senders: &mut Senders,
    pace: &Pace,
    images: Range<u64>,
    before_burst: &mut dyn FnMut(&Sent) -> bool,
) -> Result<Sent, Failure> {
    let datagram_bytes = feed.datagram_bytes;
    let burst = (CALL_BYTES_MAX / datagram_bytes).min(pace.burst_max).max(1);
    let bursts = feed.packets_per_tile().div_ceil(burst);
    let period = if pace.rate_hz > 0.0 { 1.0 / pace.rate_hz } else { 0.0 };
    let spread = period.min(SPREAD_SECONDS_MAX);
    let start = Instant::now();
    let mut sent = Sent::default();
    let first = images.start;
    for image in images {
        let tiles = feed.image(image);
        for b in 0..bursts {
            if !before_burst(&sent) {
                sent.seconds = start.elapsed().as_secs_f64();
                return Ok(sent);
            }
            wait_until(start, (image - first) as f64 * period + b as f64 / bursts as f64 * spread);
            for (tile, sender) in tiles.iter().zip(&mut senders.0) {
                let Some(sender) = sender else { continue };
                let end = ((b + 1) * burst * datagram_bytes).min(tile.len());
                let part = &tile[b * burst * datagram_bytes..end];
                sender.send_segments(part, datagram_bytes).map_err(|e| failed(&e))?;
                sent.packets += (part.len() / datagram_bytes) as u64;
                sent.bytes += part.len() as u64;
            }
        }
        sent.images += 1;
    }
    sent.seconds = start.elapsed().as_secs_f64();
    Ok(sent)
}

/// The same through a fault link. Streams take turns packet by packet, as on a real network.
pub fn send_with_faults(
    feed: &mut Feed,
    senders: &mut Senders,
    rate_hz: f64,
    images: u64,
    link: &mut FaultLink,
) -> Result<Sent, Failure> {
    let datagram_bytes = feed.datagram_bytes;
    let packets = feed.packets_per_tile();
    let period = if rate_hz > 0.0 { 1.0 / rate_hz } else { 0.0 };
    let spread = period.min(SPREAD_SECONDS_MAX);
    let start = Instant::now();
    let mut sent = Sent::default();
    let mut error = None;
    let mut deliver = |datagram: Datagram<'_>| {
        let Some(sender) = &mut senders.0[datagram.stream] else { return };
        sent.packets += 1;
        sent.bytes += datagram.bytes.len() as u64;
        if let Err(e) = sender.send(datagram.bytes) {
            error.get_or_insert(e);
        }
    };
    for image in 0..images {
        let tiles = feed.image(image);
        for packet in 0..packets {
            wait_until(start, image as f64 * period + packet as f64 / packets as f64 * spread);
            for (stream, tile) in tiles.iter().enumerate() {
                let bytes = &tile[packet * datagram_bytes..(packet + 1) * datagram_bytes];
                link.push(Datagram { stream, bytes, is_other_sender: false }, &mut deliver);
            }
        }
    }
    link.flush(&mut deliver);
    if let Some(e) = error {
        return Err(failed(&e));
    }
    Ok(Sent { images, seconds: start.elapsed().as_secs_f64(), ..sent })
}
