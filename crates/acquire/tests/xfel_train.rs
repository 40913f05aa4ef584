//! Trains of European XFEL over real UDP sockets into real files: a run from its configuration to its report.

use konkordia_acquire::run::arm::{Ports, prepare};
use konkordia_core::plan::Compression;
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_sim::xfel_train::{DATA_BYTES, HEADER_BYTES, TrainModel};
use konkordia_sinks::hdf5::{Reader, Severity, check, repair};
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

const TRAINS: u64 = 6;
/// Train, module and packet of each packet that is not sent: the one with the header of the train, one of the others,
/// and the last one, which has no pixels.
const LOST: [(u64, usize, usize); 3] = [(2, 1, 0), (3, 0, 5), (4, 1, 32)];
/// Datagrams between two looks at what was received, so that no socket buffer is too small.
const AT_ONCE: u64 = 8;

fn configuration(folder: &Path) -> String {
    format!(
        "[detector]\ntype = \"xfel-train\"\nmodel = \"lpd\"\nmodules = 2\nimages_per_train = 2\n\n\
         [source]\naddress = \"127.0.0.1\"\n\n[processing]\ndeadline_ms = 5000\n\n\
         [output]\ndirectory = {:?}\nprefix = \"trains\"\n\n[run]\nimages = {TRAINS}\nfirst_frame = 1\nbuffer_mib = 16\n",
        folder.display().to_string()
    )
}

fn decode(compression: Compression, chunk: &[u8], element: usize, out: &mut [u8]) -> Result<(), String> {
    assert_eq!(element, 2);
    codec::decompress(compression, Isa::Scalar, chunk, ElementSize::Two, out).map_err(|why| why.to_string())
}

/// Sends all trains, one packet of each module in turn. `received` says how many datagrams the receivers have seen.
fn send(model: &TrainModel, sockets: &[UdpSocket], received: impl Fn() -> u64) -> u64 {
    let mut sent = 0;
    for train in 0..TRAINS {
        let modules: Vec<_> = (0..model.modules).map(|module| model.datagrams(module, train)).collect();
        for packet in 0..model.packets() {
            for (module, (socket, datagrams)) in sockets.iter().zip(&modules).enumerate() {
                if LOST.contains(&(train, module, packet)) {
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

/// The words that the file must have: missing where a packet was not sent.
fn expected(model: &TrainModel, train: u64) -> Vec<u16> {
    let mut words = Vec::new();
    for module in 0..model.modules {
        let mut bytes = model.train(module, train);
        for (_, _, packet) in LOST.iter().filter(|lost| (lost.0, lost.1) == (train, module)) {
            let end = bytes.len().min((packet + 1) * DATA_BYTES);
            bytes[packet * DATA_BYTES..end].fill(0xFF);
        }
        let pixels = &bytes[HEADER_BYTES..][..model.pixel_bytes()];
        words.extend(pixels.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])));
    }
    words
}

#[test]
fn trains_over_udp_are_in_the_file_with_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let model = TrainModel::lpd(2, 2);
    assert_eq!(model.packets(), 33);
    let path = folder.path().join("run.toml");
    let config = konkordia_config::parse(&configuration(folder.path()), &path).unwrap_or_else(|why| panic!("{why:?}"));
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
        let sent = send(&model, &sockets, || control.progress().packets.received);
        (running.join().unwrap(), sent)
    });
    let report = run.opened.close(&config, &outcome).unwrap();
    assert_eq!(outcome.ledger.imbalances(), [], "{}", report.to_text());
    let packets = outcome.ledger.streams.iter().fold((0, 0), |sum, s| (sum.0 + s.received, sum.1 + s.placed));
    assert_eq!(packets, (sent, sent), "{}", report.to_text());
    assert_eq!(outcome.findings, []);

    let master = folder.path().join("trains_master.h5");
    let errors: Vec<_> = check(&master, &decode).into_iter().filter(|found| found.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    check_file(&master, &model);
    // The data files alone say which columns they have.
    std::fs::remove_file(&master).unwrap();
    assert!(repair(&master).unwrap().master_written);
    check_file(&master, &model);
}

/// Compares images and columns with what was sent.
fn check_file(master: &Path, model: &TrainModel) {
    let reader = Reader::open(master).unwrap();
    let summary = reader.summary();
    assert_eq!((summary.images, summary.rows, summary.columns), (TRAINS, 2 * 2 * 256, 256));
    assert_eq!(summary.images_by_status, [0, TRAINS - 3, 3, 0]);
    // Nothing is made up about a detector that is not one of PSI.
    assert_eq!(summary.pixel_size_m, None);
    let column = |name: &str| reader.column(name).unwrap_or_else(|| panic!("no column {name}"));
    let of_each = |value: &dyn Fn(u64, usize) -> u64| {
        let tiles = (0..TRAINS).flat_map(|train| (0..2).map(move |module| (train, module)));
        tiles.map(|(train, module)| if LOST.contains(&(train, module, 0)) { 0 } else { value(train, module) }).collect::<Vec<_>>()
    };
    assert_eq!(column("train_id"), of_each(&|train, _| model.train_id(train)));
    assert_eq!(column("data_id"), of_each(&|train, _| model.data_id(train)));
    assert_eq!(column("link_id"), of_each(&|_, module| model.link_id(module)));
    assert_eq!(column("image_count"), of_each(&|_, _| 2));
    assert_eq!(column("frame_number"), (1..=TRAINS).collect::<Vec<_>>());
    assert!(["timestamp", "bunch_id", "exposure", "detector_info"].iter().all(|name| reader.column(name).is_none()));
    for train in 0..TRAINS {
        let bytes = reader.read_image(train, &decode).unwrap();
        let words: Vec<u16> = bytes.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect();
        assert!(words == expected(model, train), "pixels of train {train}");
    }
}
