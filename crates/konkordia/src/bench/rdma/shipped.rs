//! What is shipped, on both sides: a run that receives the packets of a detector over UDP, as `serve` and `receive` do
//! (several datagrams per system call, joined by the kernel, payloads written where they are expected), beside a run
//! into whose slots the same frames are written by RoCEv2. Packets have the same payload, both are sent by the
//! simulated detector, over loopback, and the images of both are compared with what was sent.
//!
//! The sender is only so many packets ahead of what the run has counted as its receive buffers hold, so that none is
//! lost; if one is lost all the same, the attempt has no rate.

use super::super::frames::with_folder;
use super::super::spread::Spread;
use super::super::threads;
use crate::simulate::detector::{packetiser, wrong};
use crate::simulate::feed::Feed;
use crate::simulate::send::{self, Pace, Senders};
use konkordia_acquire::run::arm::{self, Ports, Prepared};
use konkordia_acquire::run::exit_of;
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_core::tile::TileFormat;
use konkordia_engine::control::Control;
use konkordia_input::images::Images;
use konkordia_sim::eiger::{EigerModel, SyntheticEiger};
use konkordia_sim::packet::DetectorKind;
use konkordia_sim::roce::RoceModel;
use konkordia_sim::scene::SceneModel;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bits of a pixel. The packets of an EIGER then have 4096 bytes of pixels, as much as a packet of RoCEv2 can have.
const BITS: u8 = 16;
/// Bytes of pixels in a packet.
pub const PACKET_BYTES: usize = 4096;
/// Frames at the end that become images, and are compared. The figures are of those before, which are received, put
/// into slots, counted and skipped.
const IMAGES: u64 = 4;
/// Images of the loop that is sent.
const LOOP_IMAGES: u64 = 8;
/// Pages of the sender by RoCEv2.
const PAGES: u16 = 64;
/// A packet of 4096 bytes takes no more than this of a receive buffer.
const BUFFERED_BYTES: usize = 8192;
/// Packets that a sender may be ahead, at most.
const AHEAD_MAX: u64 = 1024;
/// Packets that are not there after this time are lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// How frames come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Udp,
    Roce,
}

impl Way {
    const BOTH: [Self; 2] = [Self::Udp, Self::Roce];

    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "run over UDP",
            Self::Roce => "run written by RoCEv2",
        }
    }

    /// Keys of `[source]`.
    fn source(self) -> String {
        match self {
            Self::Udp => String::new(),
            Self::Roce => format!("kind = \"roce\"\npages = {PAGES}\npath_mtu = {PACKET_BYTES}\n"),
        }
    }
}

/// What came of one attempt.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// From the first packet to the count of the last one of those that are skipped.
    seconds: f64,
    packets: u64,
    lost: u64,
    /// Processor time of the threads that receive; `None` if the kernel does not count it.
    receivers_ns: Option<f64>,
    verified: bool,
}

/// All repeats of one way.
pub struct Row {
    way: Way,
    frames: u64,
    frame_bytes: usize,
    found: Vec<Measured>,
}

/// Measures both ways in turn, with about so many packets each time. A first repeat does not count.
///
/// # Errors
/// If a run cannot be armed or fails, or packets cannot be sent.
pub fn measure(count: u64, repeats: u32, tell: &mut dyn FnMut(String)) -> Result<Vec<Row>, Failure> {
    with_folder(|folder| measure_in(folder, count, repeats, tell))
}

/// With files in this folder.
fn measure_in(folder: &Path, count: u64, repeats: u32, tell: &mut dyn FnMut(String)) -> Result<Vec<Row>, Failure> {
    let mut bench = Bench::new(folder, count)?;
    let row = |way| Row { way, frames: bench.frames, frame_bytes: bench.frame_bytes, found: Vec::new() };
    let mut rows = Way::BOTH.map(row);
    for repeat in 0..=repeats {
        for row in &mut rows {
            tell(format!("{}, repeat {repeat}", row.way.name()));
            row.found.push(bench.attempt(row.way)?);
        }
    }
    Ok(rows.into())
}

struct Bench<'a> {
    folder: &'a Path,
    feed: Feed,
    /// The words of each image of the loop, by stream. Without a geometry, a file has the tiles one below the other.
    tiles: Vec<Vec<Vec<u8>>>,
    /// Frames before those that become images.
    frames: u64,
    frame_bytes: usize,
    model: RoceModel,
}

impl<'a> Bench<'a> {
    fn new(folder: &'a Path, count: u64) -> Result<Self, Failure> {
        let scene = SceneModel::for_modules(1);
        let packetiser = packetiser(DetectorKind::Eiger { bits: BITS }, 1, scene.modules_down, 1, 0.0)?;
        let detector = SyntheticEiger::new(&EigerModel { scene, bits: BITS }).map_err(|error| wrong(&error.to_string()))?;
        let feed = Feed::synthetic_eiger(&detector, packetiser, LOOP_IMAGES);
        let tiles = |image: u64| detector.image(image).ports.iter().map(|port| detector.port_bytes(port)).collect();
        let tiles = (0..LOOP_IMAGES).map(tiles).collect();
        let tile = TileFormat::eiger(BITS.into()).ok_or_else(|| wrong("an EIGER has no such depth"))?;
        let packets = (feed.streams() * feed.packets_per_tile()) as u64;
        let model = RoceModel {
            queue_pair: 256,
            key: 1,
            address: 0,
            pages: PAGES,
            page_bytes: page_bytes(tile)?,
            path_mtu: PACKET_BYTES,
            first_sequence: 0,
            period_ns: 1_000_000,
        };
        let frame_bytes = feed.streams() * tile.tile_bytes() as usize;
        let frames = (count / packets).max(IMAGES);
        Ok(Self { folder, feed, tiles, frames, frame_bytes, model })
    }

    /// One run, from its first packet to the comparison of its images.
    fn attempt(&mut self, way: Way) -> Result<Measured, Failure> {
        let config = self.config(way)?;
        let prepared = arm::prepare(&config, Ports::Free, |_| ())?;
        let opened = prepared.opened.clone();
        let mut sending = Sending::open(way, &opened.addresses)?;
        let mut flow = Flow::of(&prepared);
        let control = prepared.armed.control();
        let frames = self.frames;
        let mut sent = Sent { feed: &mut self.feed, tiles: &self.tiles, model: &self.model };
        let (outcome, sent) = std::thread::scope(|scope| {
            let sending = move || {
                let sent = send_all(&mut sending, frames, &mut sent, &mut flow);
                // A run whose packets do not come would wait for them.
                if !matches!(&sent, Ok(measured) if measured.lost == 0) {
                    control.stop();
                }
                sent
            };
            let sender = std::thread::Builder::new().name("simulate".into()).spawn_scoped(scope, sending);
            let sender = sender.map_err(|error| Failure::io("cannot start a thread for", Path::new("the simulator"), &error))?;
            let outcome = prepared.armed.run();
            match sender.join() {
                Ok(sent) => Ok::<_, Failure>((outcome, sent?)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        if let (_, Some(failure)) = exit_of(&outcome, false, false) {
            return Err(failure);
        }
        opened.close(&config, &outcome)?;
        // Nothing is said of the images of an attempt that lost packets.
        let verified = if outcome.is_complete() { self.is_right()? } else { sent.lost > 0 };
        Ok(Measured { verified, ..sent })
    }

    fn config(&self, way: Way) -> Result<Config, Failure> {
        let text = format!(
            "[detector]\ntype = \"eiger\"\nbits = {BITS}\n\n[source]\naddress = \"{}\"\nfirst_port = 50010\n{}\n\
             [frames]\nwarmup_frames = {}\nwarmup = \"skip\"\n\n[run]\nimages = {IMAGES}\nstall_timeout_s = 5\n\n\
             [output]\ndirectory = \".\"\nprefix = \"shipped\"\noverwrite = \"replace\"\ncompression = \"none\"\n",
            Ipv4Addr::LOCALHOST,
            way.source(),
            self.frames,
        );
        Config::parse(&text, &self.folder.join("shipped.toml")).map_err(|d| {
            Failure::new(Exit::Bug, "the runs of this bench cannot be configured", d.to_string(), "please report this")
        })
    }

    /// Whether the file has the last frames that were sent, in every pixel.
    fn is_right(&self) -> Result<bool, Failure> {
        let images = Images::open(&[self.folder.join("shipped_master.h5")], None)?;
        let is_right = |image: u64| {
            let truth = self.tiles[((self.frames + image) % LOOP_IMAGES) as usize].concat();
            images.read(image).map(|pixels| pixels == Some(truth))
        };
        (0..IMAGES).map(is_right).try_fold(true, |all, one| one.map(|one| all && one))
    }
}

/// Bytes from one page to the next.
fn page_bytes(tile: TileFormat) -> Result<u64, Failure> {
    let remote =
        konkordia_core::tile::RemotePages { queue_pair: 256, key: 1, address: 0, pages: PAGES, has_outer_headers: false };
    let written = tile.by_rdma(PACKET_BYTES as u32, remote);
    written.map(|tile| tile.page_bytes()).ok_or_else(|| wrong("its frames cannot be written by RoCEv2"))
}

/// What is sent.
struct Sent<'a> {
    feed: &'a mut Feed,
    tiles: &'a [Vec<Vec<u8>>],
    model: &'a RoceModel,
}

/// The sockets of the simulated detector.
enum Sending {
    Udp(Senders),
    Roce { senders: Senders, from: Vec<SocketAddrV4>, to: SocketAddrV4 },
}

impl Sending {
    fn open(way: Way, addresses: &[SocketAddr]) -> Result<Self, Failure> {
        match (way, addresses[0]) {
            (Way::Udp, _) => Ok(Self::Udp(Senders::connect(addresses, &[])?)),
            (Way::Roce, SocketAddr::V4(to)) => {
                let senders = Senders::roce(to, addresses.len(), &[])?;
                Ok(Self::Roce { from: senders.local_addresses()?, senders, to })
            }
            (Way::Roce, to) => Err(wrong(&format!("{to} is no address of IPv4"))),
        }
    }

    /// Sends these frames, as long as packets arrive; returns the number of packets.
    fn send(&mut self, frames: Range<u64>, sent: &mut Sent<'_>, flow: &mut Flow) -> Result<u64, Failure> {
        match self {
            Self::Udp(senders) => {
                let mut may_send = |sent: &send::Sent| flow.may_send(sent.packets);
                Ok(send::send(sent.feed, senders, &Pace::at(0.0), frames, &mut may_send)?.packets)
            }
            Self::Roce { senders, from, to } => {
                let mut packets = 0;
                for frame in frames {
                    let pixels = sent.tiles[(frame % LOOP_IMAGES) as usize].iter().zip(&*from).enumerate();
                    let of_stream = |(stream, (pixels, from)): (usize, (&Vec<u8>, &SocketAddrV4))| {
                        sent.model.datagrams(stream, frame, pixels, *from, *to)
                    };
                    let tiles: Vec<_> = pixels.map(of_stream).collect();
                    for (n, stream) in (0..tiles[0].len()).flat_map(|n| (0..tiles.len()).map(move |stream| (n, stream))) {
                        if !flow.may_send(packets) {
                            return Ok(packets);
                        }
                        senders.send(stream, &tiles[stream][n]).map_err(|error| send::failed(&error))?;
                        packets += 1;
                    }
                }
                Ok(packets)
            }
        }
    }
}

/// Holds the sender back.
struct Flow {
    control: std::sync::Arc<Control>,
    /// Packets that may be on their way.
    ahead: u64,
    /// Packets that were sent before those that are sent now.
    before: u64,
    /// Packets that the run has counted, when it was asked.
    received: u64,
}

impl Flow {
    fn of(prepared: &Prepared) -> Self {
        // All of them may wait in the buffer of one stream.
        let ahead = (prepared.receive_buffer_bytes / BUFFERED_BYTES) as u64 / 2;
        Self { control: prepared.armed.control(), ahead: ahead.clamp(8, AHEAD_MAX), before: 0, received: 0 }
    }

    /// Waits until there is room for another burst behind so many packets; false if they do not arrive.
    fn may_send(&mut self, sent: u64) -> bool {
        self.await_received((self.before + sent).saturating_sub(self.ahead))
    }

    fn await_received(&mut self, packets: u64) -> bool {
        let waiting = Instant::now();
        while self.received < packets {
            self.received = self.control.progress().packets.received;
            if self.received < packets {
                if waiting.elapsed() > PATIENCE {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        true
    }

    /// So many packets more were sent: waits for the last one; returns how many are lost.
    fn finish(&mut self, packets: u64) -> u64 {
        self.before += packets;
        self.await_received(self.before);
        self.before - self.received.min(self.before)
    }
}

/// Sends all frames. Those that become images come when all others were counted, and are not in the figures: the run
/// may end, with its threads, as soon as it has them.
fn send_all(sending: &mut Sending, frames: u64, sent: &mut Sent<'_>, flow: &mut Flow) -> Result<Measured, Failure> {
    let (begun, before) = (Instant::now(), threads::ran_ns("rx"));
    let packets = sending.send(0..frames, sent, flow)?;
    let lost = flow.finish(packets);
    let seconds = begun.elapsed().as_secs_f64();
    let used = before.zip(threads::ran_ns("rx")).map(|(before, after)| after.saturating_sub(before) as f64);
    let rest = sending.send(frames..frames + IMAGES, sent, flow)?;
    let lost = lost + flow.finish(rest).saturating_sub(lost);
    Ok(Measured { seconds, packets, lost, receivers_ns: used, verified: false })
}

impl Row {
    /// Whether all images were right.
    pub fn verified(&self) -> bool {
        self.found.iter().all(|found| found.verified)
    }

    fn spread(&self, value: impl Fn(&Measured) -> Option<f64>) -> Spread {
        Spread::of(self.found[1..].iter().filter(|found| found.lost == 0).filter_map(value))
    }

    /// Of pixels.
    fn gigabits_per_s(&self) -> Spread {
        let bits = self.frames as f64 * self.frame_bytes as f64 * 8.0;
        self.spread(|found| Some(bits / found.seconds / 1e9))
    }

    fn receivers_us_per_frame(&self) -> Spread {
        self.spread(|found| found.receivers_ns.map(|ns| ns / 1e3 / self.frames as f64))
    }

    fn receivers_ns_per_packet(&self) -> Spread {
        self.spread(|found| found.receivers_ns.map(|ns| ns / found.packets as f64))
    }

    fn lost(&self) -> u64 {
        self.found.iter().map(|found| found.lost).sum()
    }

    /// This row's figure by that of the run over UDP; each repeat with the one beside it.
    fn of_udp(&self, rows: &[Self], figure: impl Fn(&Measured) -> Option<f64>) -> Spread {
        let udp = rows.iter().find(|row| row.way == Way::Udp).map_or(&[][..], |row| &row.found[..]);
        let pairs = self.found.iter().zip(udp).skip(1).filter(|(own, other)| own.lost + other.lost == 0);
        Spread::of(pairs.filter_map(|(own, other)| Some(figure(own)? / figure(other)?)))
    }

    fn ratios(&self, rows: &[Self]) -> [Spread; 2] {
        [self.of_udp(rows, |found| Some(1.0 / found.seconds)), self.of_udp(rows, |found| found.receivers_ns)]
    }

    fn to_json(&self, rows: &[Self]) -> Value {
        let [times_udp, receivers_of_udp] = self.ratios(rows);
        json!({
            "name": self.way.name(), "packet_bytes": PACKET_BYTES, "frames": self.frames, "frame_bytes": self.frame_bytes,
            "gigabits_per_second": self.gigabits_per_s().to_json(),
            "receivers_us_per_frame": self.receivers_us_per_frame().to_json(),
            "receivers_ns_per_packet": self.receivers_ns_per_packet().to_json(),
            "times_udp": times_udp.to_json(), "receivers_of_udp": receivers_of_udp.to_json(),
            "lost": self.lost(), "verified": self.verified(),
        })
    }

    fn line(&self, rows: &[Self]) -> Vec<String> {
        let [times_udp, receivers_of_udp] = self.ratios(rows);
        vec![
            self.way.name().into(),
            self.gigabits_per_s().to_short_text(2),
            times_udp.to_short_text(2),
            self.receivers_us_per_frame().to_short_text(0),
            self.receivers_ns_per_packet().to_short_text(0),
            receivers_of_udp.to_short_text(2),
            self.lost().to_string(),
            if self.verified() { "right" } else { "WRONG" }.into(),
        ]
    }
}

/// For programs.
pub fn to_json(rows: &[Row]) -> Value {
    rows.iter().map(|row| row.to_json(rows)).collect()
}

/// For people.
pub fn to_text(rows: &[Row]) -> String {
    let head = ["", "Gb/s of pixels", "times UDP", "receivers us/frame", "receivers ns/packet", "of UDP's", "lost", "images"];
    let lines = rows.iter().map(|row| row.line(rows));
    let table = text::table(&std::iter::once(head.map(str::to_string).to_vec()).chain(lines).collect::<Vec<_>>());
    format!(
        "what is shipped, on both sides: runs that receive an EIGER module in packets of {PACKET_BYTES} bytes; receivers: processor \
         time of their threads\n\n{table}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_bring_the_frames_that_were_sent() {
        let folder = tempfile::tempdir().unwrap();
        let rows = measure_in(folder.path(), 3000, 1, &mut |_| ()).unwrap();
        assert_eq!(rows.len(), 2);
        for row in &rows {
            assert!(row.verified() && row.lost() == 0 && row.gigabits_per_s().median > 0.0, "{:?}", row.found);
        }
        // RoCEv2 has one packet more in each stream, for what it says of the frame.
        let packets: Vec<u64> = rows.iter().map(|row| row.found[1].packets / row.frames).collect();
        assert_eq!(packets, [4 * 64, 4 * 65]);
    }

    #[test]
    fn ratios_are_of_repeats_beside_each_other_and_losses_have_none() {
        let found =
            |seconds: f64, lost: u64| Measured { seconds, lost, receivers_ns: Some(seconds * 1e9), packets: 10, verified: true };
        let row = |way, found| Row { way, frames: 2, frame_bytes: 1000, found };
        let udp = row(Way::Udp, vec![found(9.0, 0), found(1.0, 0), found(2.0, 0)]);
        let roce = row(Way::Roce, vec![found(9.0, 0), found(2.0, 0), found(4.0, 1)]);
        let rows = [udp, roce];
        assert_eq!(rows[1].ratios(&rows).map(|spread| spread.median), [0.5, 2.0]);
        assert_eq!((rows[1].lost(), rows[1].spread(|found| Some(found.seconds)).median), (1, 2.0));
        assert!(to_text(&rows).contains("run written by RoCEv2"));
    }
}
