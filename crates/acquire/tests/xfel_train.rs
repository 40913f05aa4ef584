//! Trains of European XFEL over real UDP sockets into real files: a run from its configuration to its report.

#[path = "common/run.rs"]
mod run;

use konkordia_sim::xfel_train::{DATA_BYTES, HEADER_BYTES, TrainModel};
use konkordia_sinks::hdf5::Reader;
use run::{decode, run};
use std::path::Path;

const TRAINS: u64 = 6;
/// Train, module and packet of each packet that is not sent: the one with the header of the train, one of the others,
/// and the last one, which has no pixels.
const LOST: [(u64, usize, usize); 3] = [(2, 1, 0), (3, 0, 5), (4, 1, 32)];

fn configuration(folder: &Path) -> String {
    format!(
        "[detector]\ntype = \"xfel-train\"\nmodel = \"lpd\"\nmodules = 2\nimages_per_train = 2\n\n\
         [source]\naddress = \"127.0.0.1\"\n\n[processing]\ndeadline_ms = 5000\n\n\
         [output]\ndirectory = {:?}\nprefix = \"trains\"\n\n[run]\nimages = {TRAINS}\nfirst_frame = 1\nbuffer_mib = 16\n",
        folder.display().to_string()
    )
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
    let text = configuration(folder.path());
    let datagrams = |tile, frame| model.datagrams(tile, frame);
    run((folder.path(), "trains"), &text, TRAINS, &LOST, datagrams, |master| check_file(master, &model));
}

/// Compares images and columns with what was sent.
fn check_file(master: &Path, model: &TrainModel) {
    let reader = Reader::open(master).unwrap();
    let summary = reader.summary();
    assert_eq!((summary.images, summary.rows, summary.columns), (TRAINS, 2 * 2 * 256, 256));
    assert_eq!(summary.images_by_status, [0, TRAINS - 3, 3, 0, 0]);
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
