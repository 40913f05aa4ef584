//! EXCALIBUR over real UDP sockets into real files: a run from its configuration to its report.

#[path = "common/run.rs"]
mod run;

use konkordia_sim::excalibur::{ExcaliburModel, PRIMARY_BYTES, SUBFRAME_PACKETS};
use konkordia_sinks::hdf5::Reader;
use run::{decode, run};
use std::path::Path;

const FRAMES: u64 = 6;
const FEMS: usize = 2;
const STRIPE_PIXELS: usize = 256 * 2048;
/// Frame, FEM and packet of each packet that is not sent: a primary packet of either subframe, and tail packets: one of
/// the first subframe, and both of a frame.
const LOST: [(u64, usize, usize); 5] = [(1, 1, 7), (2, 0, 66 + 64), (3, 1, 65), (4, 0, 65), (4, 0, 131)];

fn configuration(folder: &Path) -> String {
    format!(
        "[detector]\ntype = \"excalibur\"\nmodules = {FEMS}\n\n\
         [source]\naddress = \"127.0.0.1\"\n\n[processing]\ndeadline_ms = 5000\n\n\
         [output]\ndirectory = {:?}\nprefix = \"counts\"\n\n[run]\nimages = {FRAMES}\nfirst_frame = 5\nbuffer_mib = 64\n",
        folder.display().to_string()
    )
}

/// The counts that the file must have: missing where a packet was not sent.
fn expected(model: &ExcaliburModel, frame: u64) -> Vec<u16> {
    let mut image = model.image(frame);
    for (_, fem, packet) in LOST.iter().filter(|lost| lost.0 == frame) {
        let (subframe, number) = (packet / SUBFRAME_PACKETS, packet % SUBFRAME_PACKETS);
        let first = subframe * STRIPE_PIXELS / 2 + number * PRIMARY_BYTES / 2;
        let end = ((subframe + 1) * STRIPE_PIXELS / 2).min(first + PRIMARY_BYTES / 2);
        for at in &ExcaliburModel::sent_order(*fem)[first..end] {
            image[fem * STRIPE_PIXELS + at] = 0xFFFF;
        }
    }
    image
}

#[test]
fn counts_over_udp_are_in_the_file_where_they_belong() {
    let folder = tempfile::tempdir().unwrap();
    let model = ExcaliburModel { first_frame: 5, ..ExcaliburModel::new(FEMS) };
    let text = configuration(folder.path());
    let datagrams = |tile, frame| model.datagrams(tile, frame);
    run((folder.path(), "counts"), &text, FRAMES, &LOST, datagrams, |master| check_file(master, &model));
}

/// Compares images and columns with what was sent.
fn check_file(master: &Path, model: &ExcaliburModel) {
    let reader = Reader::open(master).unwrap();
    let summary = reader.summary();
    assert_eq!((summary.images, summary.rows, summary.columns), (FRAMES, 2 * 256, 2048));
    assert_eq!(summary.images_by_status, [0, FRAMES - 4, 4, 0, 0]);
    // Nothing is made up about a detector that is not one of PSI.
    assert_eq!(summary.pixel_size_m, None);
    let column = |name: &str| reader.column(name).unwrap_or_else(|| panic!("no column {name}"));
    assert_eq!(column("frame_number"), (5..5 + FRAMES).collect::<Vec<_>>());
    // The trailer counts from 1; of frame 4, FEM 0 sent none.
    let of_tiles = (0..FRAMES).flat_map(|frame| (0..FEMS).map(move |fem| (frame, fem)));
    let trailers = of_tiles.map(|tile| if tile == (4, 0) { 0 } else { tile.0 + 6 });
    assert_eq!(column("trailer_frame"), trailers.collect::<Vec<_>>());
    assert!(["timestamp", "bunch_id", "exposure", "detector_info"].iter().all(|name| reader.column(name).is_none()));
    for frame in 0..FRAMES {
        let bytes = reader.read_image(frame, &decode).unwrap();
        let counts: Vec<u16> = bytes.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect();
        assert!(counts == expected(model, frame), "counts of frame {frame}");
    }
}
