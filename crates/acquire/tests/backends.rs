//! A run over UDP through every receive backend: the same packets give the same ledger and the same file, which says
//! through what they came. It plays in a network namespace of its own, because AF_XDP needs an Ethernet card.

#[path = "../../sources/tests/common/frames.rs"]
mod frames;
#[path = "../../sources/tests/common/place.rs"]
mod place;
#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "../../sources/tests/common/wire.rs"]
mod wire;

use frames::frame;
use konkordia_acquire::run::arm::{Ports, prepare};
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::failure::Exit;
use konkordia_core::plan::Compression;
use konkordia_doctor::lost::{FILE_WAITED_MS, RECEIVE_MS};
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};
use konkordia_sim::reference::{Reference, RunLayout};
use konkordia_sim::rng::Rng;
use konkordia_sinks::hdf5::{FileSpec, Reader};
use place::{V4, addresses, play, wire_of_all_processors};
use std::path::Path;
use std::time::{Duration, Instant};
use wire::Wire;

const IMAGES: u64 = 5;
/// Datagrams between two looks at what was received, so that no buffer is too small.
const AT_ONCE: u64 = 8;
/// Longer than any wait takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

fn configuration(folder: &Path, receive: &str) -> String {
    format!(
        "[detector]\ntype = \"jungfrau\"\n\n\
         [source]\naddress = \"10.7.0.2\"\nreceive = \"{receive}\"\nreceive_buffer_mib = 2\n\n\
         [processing]\ndtype = \"raw\"\ndeadline_ms = 20000\nwindow_images = 1\n\n\
         [output]\ndirectory = {:?}\nprefix = \"{receive}\"\n\n[run]\nimages = {IMAGES}\nfirst_frame = 1\nbuffer_mib = 64\n",
        folder.display().to_string()
    )
}

fn decode(compression: Compression, chunk: &[u8], element: usize, out: &mut [u8]) -> Result<(), String> {
    assert_eq!(element, 2);
    codec::decompress(compression, Isa::Scalar, chunk, ElementSize::Two, out).map_err(|why| why.to_string())
}

/// What a detector sends: some packets are lost, some come twice, and some are cut.
fn datagrams() -> (Reference, Vec<Vec<u8>>) {
    let packetiser = Packetiser::new(&PacketModel::new(DetectorKind::Jungfrau { interfaces: 1 }, 1)).unwrap();
    let layout = packetiser.layout();
    let (mut rng, mut all) = (Rng::new(3), Vec::new());
    let mut reference = Reference::new(RunLayout::stacked(&packetiser, IMAGES));
    let mut out = vec![0; layout.datagram_bytes()];
    for image in 0..IMAGES {
        let tile: Vec<u8> = (0..layout.tile_bytes).map(|_| rng.next_u64() as u8).collect();
        for packet in 0..layout.packets_per_tile {
            let length = packetiser.write_packet(0, packetiser.frame_number(image), packet, &tile, &mut out);
            // The first image decides where the run begins, and the last one ends it at once.
            let is_inner = image > 0 && image + 1 < IMAGES;
            match packet % 32 {
                7 if is_inner => continue,
                9 if is_inner => all.push(out[..length].to_vec()),
                11 if is_inner => all.push(out[..length / 2].to_vec()),
                _ => {}
            }
            all.push(out[..length].to_vec());
        }
    }
    all.iter().for_each(|datagram| _ = reference.receive(0, datagram));
    (reference, all)
}

/// Sends them one by one, each in a datagram of its own; waits for the receiver from time to time.
fn send(wire: &Wire, all: &[Vec<u8>], to: std::net::SocketAddr, received: impl Fn() -> u64) {
    let from = addresses(V4).0;
    for (n, datagram) in (1..).zip(all) {
        wire.send(&frame(from, to, datagram)).unwrap();
        let until = Instant::now() + PATIENCE;
        while n % AT_ONCE == 0 && received() < n && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// What a file says of its run, its ledger, and its images.
type Written = (FileSpec, Vec<(String, u64)>, Vec<Vec<u16>>);

/// Runs through one backend; `None` where this machine does not allow it.
fn run(wire: &Wire, folder: &Path, (name, receive): (&str, Receive), all: &[Vec<u8>]) -> Option<Written> {
    let text = configuration(folder, name);
    let config = konkordia_config::parse(&text, &folder.join("run.toml")).unwrap_or_else(|why| panic!("{why:?}"));
    assert_eq!(config.receive, receive);
    let run = match prepare(&config, Ports::Free, |note| eprintln!("{note}")) {
        Ok(run) => run,
        Err(failure) if failure.why.contains("CAP_NET_RAW") || failure.fix.contains("CONFIG_XDP_SOCKETS") => {
            skip::skipped(&format!("{name}: {}", failure.why));
            return None;
        }
        Err(failure) if failure.what.contains("raw packets of an RDMA card") => {
            skip::skipped(&format!("{name}: {}", failure.why));
            return None;
        }
        Err(failure) => panic!("{failure}"),
    };
    let (address, control, armed) = (run.opened.addresses[0], run.armed.control(), run.armed);
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| armed.run());
        send(wire, all, address, || control.progress().packets.received);
        running.join().unwrap()
    });
    let report = run.opened.close(&config, &outcome).unwrap();
    assert_eq!(outcome.ledger.imbalances(), [], "{}", report.to_text());
    let said = report.to_json(Exit::Complete);
    assert_eq!(said["receive"]["backend"], run.opened.receiving.backend.name());
    for counters in ["refused", "dropped"] {
        assert!(said["receive"][counters].as_object().is_some_and(serde_json::Map::is_empty), "{said}");
    }
    let reader = Reader::open(&folder.join(format!("{name}_master.h5"))).unwrap();
    let words = |image| {
        let bytes = reader.read_image(image, &decode).unwrap();
        bytes.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect::<Vec<_>>()
    };
    let summary = reader.summary();
    // What the host and the disk did meanwhile is no part of the comparison.
    let is_own = |(name, _): &(String, u64)| !name.starts_with("host_") && ![FILE_WAITED_MS, RECEIVE_MS].contains(&name.as_str());
    let ledger = summary.ledger.iter().filter(|total| is_own(total)).cloned().collect();
    Some((summary.spec.clone().unwrap(), ledger, (0..IMAGES).map(words).collect()))
}

#[test]
fn every_backend_makes_the_same_file_and_ledger() {
    play(&[], || {
        let wire = wire_of_all_processors();
        let folder = tempfile::tempdir().unwrap();
        let (reference, all) = datagrams();
        let expected: Vec<Vec<u16>> =
            (0..IMAGES).map(|image| reference.words(image).into_iter().map(|word| word.unwrap_or(0xFFFF)).collect()).collect();
        let ways = Receive::NAMES.map(|name| (name, Receive::from_name(name).unwrap()));
        let mut ledgers = Vec::new();
        for (name, receive) in ways {
            let Some((spec, ledger, words)) = run(&wire, folder.path(), (name, receive), &all) else { continue };
            assert!(words == expected, "{name}: other words");
            let total = |counter: &str| ledger.iter().find(|(found, _)| found == counter).map(|(_, n)| *n);
            let of_reference = reference.packet_ledger();
            assert_eq!(total("placed"), Some(of_reference.placed), "{name}");
            assert_eq!(total("received"), Some(of_reference.received), "{name}");
            assert_eq!(total("duplicate"), Some(of_reference.duplicate), "{name}");
            assert_eq!(total("malformed_length"), Some(of_reference.malformed[0]), "{name}");
            let through = spec.conversion.iter().find(|(found, _)| found == "received_through").unwrap();
            let backend = if let Receive::Only(backend) = receive { backend } else { Backend::Socket };
            assert!(through.1.starts_with(backend.name()), "{name}: {}", through.1);
            ledgers.push(ledger);
        }
        assert!(ledgers.len() >= 2 && ledgers.windows(2).all(|two| two[0] == two[1]), "{ledgers:?}");
    });
}
