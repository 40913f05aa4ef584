//! What stays in memory of images while their files are open: nothing that grows with their number. All is counted that
//! the C library has handed out, to libhdf5 too. A test binary of its own, because it counts for the whole process.

mod common;

use std::sync::Arc;

use common::Scratch;
use common::series::{Kind, file_sink, start};
use konkordia_core::array::{Element, Packing};
use konkordia_core::ledger::ImageLedger;
use konkordia_core::ports::Sink;
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger};
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{
    AppendSpec, Compression, FileSink, FileSpec, ImageRecord, ImageStatus, LedgerRecord, Overwrite, Writer,
};

/// Images before the first look: everything that does not grow is there.
const FEW: u64 = 2000;
/// Images before the second look.
const MANY: u64 = 100_000;
/// Between the looks images may leave so many bytes each, because caches of a fixed size fill up. The index that
/// libhdf5 makes of images takes some 370 bytes each.
const BYTES_OF_AN_IMAGE_MAX: u64 = 16;

/// Bytes that are allocated, without those that libhdf5 keeps for later.
fn allocated_bytes() -> u64 {
    // SAFETY: both have no arguments. libhdf5 is locked, and nothing else runs in this process.
    let info = hdf5::sync::sync(|| unsafe {
        hdf5_sys::h5::H5garbage_collect();
        libc::mallinfo2()
    });
    (info.uordblks + info.hblkhd) as u64
}

/// Calls `write` with the number and the time of each image, 0.1 ms apart, and looks right after a flush.
fn assert_no_growth(what: &str, mut write: impl FnMut(Option<u64>, u64)) {
    let mut now_ns = 0;
    let looks = [0..FEW, FEW..MANY].map(|images| {
        for image in images {
            now_ns += 100_000;
            write(Some(image), now_ns);
        }
        now_ns += 1_000_000_000;
        write(None, now_ns);
        allocated_bytes()
    });
    let growth = looks[1].saturating_sub(looks[0]);
    println!("{what}: {looks:?} bytes after {FEW} and {MANY} images");
    assert!(growth < BYTES_OF_AN_IMAGE_MAX * (MANY - FEW), "{what}: {growth} bytes of {} images stay", MANY - FEW);
}

fn series(what: &str, sink: &mut FileSink) {
    let kind = Kind { element: Element::Uint16, shape: vec![16, 16], channels: 1, pieces: 1, packing: Packing::None };
    let shared = sink.shared();
    sink.start(&Arc::new(start())).unwrap();
    assert_no_growth(what, |image, now_ns| {
        if let Some(number) = image {
            sink.image(&kind.image(number)).unwrap();
        }
        sink.tick(now_ns).unwrap();
    });
    let images = ImageLedger { expected: MANY, complete: MANY, ..ImageLedger::default() };
    let ledger = SeriesLedger { images, ..SeriesLedger::default() };
    sink.end(&Arc::new(SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger })).unwrap();
    assert_eq!((shared.images(), shared.refused()), (MANY, 0));
}

fn run(what: &str, spec: FileSpec) {
    let chunk = vec![7; spec.image_bytes()];
    let mut writer = Writer::create(spec).unwrap();
    writer.set_to_disk(ToDisk::Never).unwrap();
    assert_no_growth(what, |image, now_ns| {
        if let Some(index) = image {
            let record = ImageRecord {
                index,
                frame_number: index,
                status: ImageStatus::Partial,
                parts: &[&chunk],
                packets_received: &[0],
                packet_bitmap: &[0],
                frame_values: &[index; 4],
                extra: &[],
            };
            writer.write(&record).unwrap();
        }
        writer.tick(now_ns).unwrap();
    });
    assert_eq!(writer.finish(&LedgerRecord::default()).unwrap().images, MANY);
}

/// One after the other, so that none counts what another allocates.
#[test]
fn memory_does_not_grow_with_the_images() {
    let scratch = Scratch::new("growth");
    let path = scratch.0.join("append.h5");
    let spec = AppendSpec { path, dataset: "/entry/d/data".into(), to_disk: ToDisk::Never };
    series("one file", &mut FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into())))));
    series("a series", &mut file_sink(&scratch.0, "series", 1000));
    run(
        "a run",
        FileSpec {
            directory: scratch.0.clone(),
            prefix: "run".into(),
            rows: 16,
            columns: 16,
            compression: Compression::None,
            overwrite: Overwrite::Replace,
            pixel_mask: vec![0; 256],
            ..FileSpec::default()
        },
    );
}
