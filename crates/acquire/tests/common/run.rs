//! A run over real UDP sockets on loopback, from its configuration to a file that was checked.

use konkordia_acquire::run::arm::{Ports, prepare};
use konkordia_core::plan::Compression;
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_sinks::hdf5::{Severity, check, repair};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Datagrams between two looks at what was received, so that no socket buffer is too small.
const AT_ONCE: u64 = 8;

pub fn decode(compression: Compression, chunk: &[u8], element: usize, out: &mut [u8]) -> Result<(), String> {
    assert_eq!(element, 2);
    codec::decompress(compression, Isa::Scalar, chunk, ElementSize::Two, out).map_err(|why| why.to_string())
}

/// Sends all frames but the packets of `lost` (frame, tile and packet), one packet of each tile in turn. `received`
/// says how many datagrams the receivers have seen.
fn send(
    frames: u64,
    sockets: &[UdpSocket],
    lost: &[(u64, usize, usize)],
    datagrams: impl Fn(usize, u64) -> Vec<Vec<u8>>,
    received: impl Fn() -> u64,
) -> u64 {
    let mut sent = 0;
    for frame in 0..frames {
        let tiles: Vec<_> = (0..sockets.len()).map(|tile| datagrams(tile, frame)).collect();
        for packet in 0..tiles[0].len() {
            for (tile, (socket, datagrams)) in sockets.iter().zip(&tiles).enumerate() {
                if lost.contains(&(frame, tile, packet)) {
                    continue;
                }
                socket.send(&datagrams[packet]).unwrap();
                sent += 1;
                let until = Instant::now() + Duration::from_secs(30);
                while sent % AT_ONCE == 0 && received() < sent && Instant::now() < until {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }
    sent
}

/// Runs with this configuration, which writes into `folder` under `prefix`, and has `check_file` look at the file: as
/// it was written, and repaired without its master.
pub fn run(
    (folder, prefix): (&Path, &str),
    configuration: &str,
    frames: u64,
    lost: &[(u64, usize, usize)],
    datagrams: impl Fn(usize, u64) -> Vec<Vec<u8>>,
    check_file: impl Fn(&Path),
) {
    let config = konkordia_config::parse(configuration, &folder.join("run.toml")).unwrap_or_else(|why| panic!("{why:?}"));
    let run = prepare(&config, Ports::Free, |note| eprintln!("{note}")).unwrap_or_else(|why| panic!("{why:?}"));
    let connect = |address: &std::net::SocketAddr| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        socket
    };
    let sockets: Vec<UdpSocket> = run.opened.addresses.iter().map(connect).collect();
    let (control, armed) = (run.armed.control(), run.armed);
    let (outcome, sent) = std::thread::scope(|scope| {
        let running = scope.spawn(|| armed.run());
        let sent = send(frames, &sockets, lost, datagrams, || control.progress().packets.received);
        (running.join().unwrap(), sent)
    });
    let report = run.opened.close(&config, &outcome).unwrap();
    assert_eq!(outcome.ledger.imbalances(), [], "{}", report.to_text());
    let packets = outcome.ledger.streams.iter().fold((0, 0), |sum, s| (sum.0 + s.received, sum.1 + s.placed));
    assert_eq!(packets, (sent, sent), "{}", report.to_text());
    assert_eq!(outcome.findings, []);

    let master: PathBuf = folder.join(format!("{prefix}_master.h5"));
    let errors: Vec<_> = check(&master, &decode).into_iter().filter(|found| found.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    check_file(&master);
    // The data files alone say which columns they have.
    std::fs::remove_file(&master).unwrap();
    assert!(repair(&master).unwrap().master_written);
    check_file(&master);
}
