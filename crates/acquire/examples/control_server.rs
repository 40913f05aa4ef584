//! A control server without HTTP, as one for Tango or EPICS would be: it starts a run, waits for its end, and prints
//! the events and the result. The detector is simulated; its packets come over UDP on this machine.
//!
//!     cargo run --release -p konkordia-acquire --example control_server

use konkordia_acquire::handle::{
    ArmRequest, Command, Detector, DetectorStatus, FileEntry, News, ServiceEvent, SharedPlanes, Subscription,
};
use konkordia_acquire::service::Detectors;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Images of the run.
pub const IMAGES: u64 = 3;
/// Longest time that anything here may take.
const LONGEST: Duration = Duration::from_secs(60);
/// Datagrams between two looks at what was received, so that no socket buffer is too small.
const AT_ONCE: u64 = 8;

/// Takes the run and prints it.
pub fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| failed("cannot make a folder", &error))?;
    let outcome = measure(folder.path())?;
    for event in &outcome.events {
        println!("{} {:12} {}", event.time, event.event, event.message);
    }
    println!("result: {}", outcome.status.message);
    for file in &outcome.files {
        println!("file:   {}, {:?}, {} images", file.master, file.state, file.images);
    }
    if let Some(newest) = &outcome.newest {
        let plane = newest.plane(0).map_err(unreadable)?;
        let number = plane.image.number;
        println!("newest: image {number}, {:?} pixels of type {}", plane.shape.dimensions(), plane.element.name());
    }
    Ok(())
}

/// What a run left.
pub struct Outcome {
    /// The status after it.
    pub status: Arc<DetectorStatus>,
    /// What has happened.
    pub events: Vec<Arc<ServiceEvent>>,
    /// Its files.
    pub files: Vec<FileEntry>,
    /// The newest image, with its pixels for those who ask.
    pub newest: Option<Arc<SharedPlanes>>,
}

/// Starts a service with one detector, takes [`IMAGES`] images into `folder`, and ends the service.
pub fn measure(folder: &Path) -> Result<Outcome, Failure> {
    let port = free_port().map_err(|error| failed("cannot find a free port", &error))?;
    let service = konkordia_config::service::load_text(&configuration(folder, port), &folder.join("run.toml"))?;
    let detectors = Detectors::start(&service, |detector| detector)?;
    let fleet = detectors.fleet();
    let detector = fleet.find(None)?;
    let mut events = fleet.events.subscribe();

    let request = ArmRequest { images: Some(IMAGES), ..ArmRequest::default() };
    let started = detector.command(Command::Start(Box::new(request)), "the example")?;
    let (status, has_ended) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&*detector, port));
        let waited = fleet.wait_for(&*detector, LONGEST, |status| status.has_ended(started.run));
        sending.join().expect("it does not panic").map_err(|error| failed("cannot send", &error))?;
        Ok::<_, Failure>(waited)
    })?;
    if !has_ended {
        return Err(Failure::new(Exit::Timeout, "the run has not ended", status.message.clone(), "look at its events"));
    }
    let newest = detector.images().get(None, Instant::now()).map(|found| found.planes);
    Ok(Outcome { status, events: read(&mut events), files: detector.files(), newest })
}

fn unreadable(why: String) -> Failure {
    Failure::new(Exit::Incomplete, "the newest image cannot be read", why, "")
}

/// All events that are there.
fn read(events: &mut Subscription) -> Vec<Arc<ServiceEvent>> {
    let mut all = Vec::new();
    while let Some(news) = events.read() {
        match news {
            News::Event(event) => all.push(event),
            News::Missed(count) => println!("{count:?} events are no longer known"),
        }
    }
    all
}

/// A JUNGFRAU module whose words are written as they come.
pub fn configuration(folder: &Path, port: u16) -> String {
    format!(
        "[detector]\ntype = \"jungfrau\"\nmodules = 1\ninterfaces = 1\n\n\
         [source]\naddress = \"127.0.0.1\"\nfirst_port = {port}\n\n\
         [calibration]\nkind = \"none\"\n\n[processing]\ndtype = \"raw\"\ndeadline_ms = 5000\n\n\
         [output]\ndirectory = {:?}\nprefix = \"example\"\n\n[run]\nbuffer_mib = 128\nstall_timeout_s = 60\n",
        folder.display().to_string()
    )
}

/// A free UDP port that the kernel chooses.
pub fn free_port() -> io::Result<u16> {
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The simulated detector: sends the packets of all images, not faster than they are received.
fn send(detector: &dyn Detector, port: u16) -> io::Result<()> {
    let packetiser = Packetiser::new(&PacketModel::new(DetectorKind::Jungfrau { interfaces: 1 }, 1));
    let packetiser = packetiser.expect("there is such a detector");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    let layout = packetiser.layout();
    let mut datagram = vec![0; layout.datagram_bytes()];
    let received = || detector.statistics().ledger.get("received").copied().unwrap_or_default();
    let mut sent = 0;
    for image in 0..IMAGES {
        let tile: Vec<u8> = words(image).iter().flat_map(|word| word.to_le_bytes()).collect();
        for packet in 0..layout.packets_per_tile {
            let length = packetiser.write_packet(0, packetiser.frame_number(image), packet, &tile, &mut datagram);
            socket.send(&datagram[..length])?;
            sent += 1;
            let until = Instant::now() + LONGEST;
            while sent % AT_ONCE == 0 && received() < sent && Instant::now() < until {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
    Ok(())
}

/// The words of an image, row by row: 512 x 1024.
pub fn words(image: u64) -> Vec<u16> {
    (0..512 * 1024u64).map(|pixel| (pixel * 7 + image * 1000) as u16 & 0x3FFF).collect()
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Io, what, reason(error), "look at the limits of this machine")
}
