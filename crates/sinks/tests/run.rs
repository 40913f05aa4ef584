//! Whole runs: written, read back, checked; layouts, gaps, refusals, deliberate faults.

mod common;
use std::path::Path;

use common::{Sample, Scratch, decode, ledger, pixels, sample, write_image, write_images};
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::image::{Channel, CommittedImage, Packets, TileRecord};
use konkordia_core::pixel::PixelType;
use konkordia_core::ports::Sink;
use konkordia_sinks::hdf5::mirror::Stacks;
use konkordia_sinks::hdf5::{
    Compression, ErrorKind, ExtraColumn, FileReport, FileSpec, ImageRecord, ImageStatus, Layout, LedgerRecord, Overwrite,
    Severity,
};
use konkordia_sinks::hdf5::{Reader, RunFiles, Writer, check, inspect, repair};
use std::sync::Arc;

fn write_run(sample: &Sample) -> FileReport {
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, sample).unwrap();
    writer.finish(&ledger(sample)).unwrap()
}

fn errors(path: &Path) -> Vec<String> {
    let findings = check(path, &decode);
    findings.into_iter().filter(|f| f.severity == Severity::Error).map(|f| f.to_string()).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

fn assert_images(path: &Path, sample: &Sample) {
    let reader = Reader::open(path).unwrap();
    let missing = pixels(&FileSpec { ..sample.spec.clone() }, 0, true);
    let pixel = sample.spec.pixel.bytes();
    let one_missing = &missing[4 * sample.spec.columns as usize * pixel..][..pixel];
    for image in 0..sample.expected {
        let got = reader.read_image(image, &decode).unwrap();
        if image >= sample.images || sample.lost.contains(&image) {
            assert!(got.chunks(pixel).all(|p| p == one_missing), "image {image} is missing throughout");
        } else {
            assert_eq!(got, pixels(&sample.spec, image, sample.partial.contains(&image)), "image {image}");
        }
    }
    assert!(reader.read_image(sample.expected, &decode).is_err());
}

#[test]
fn the_writer_may_move_to_its_thread() {
    fn sendable<T: Send>() {}
    sendable::<Writer>();
    sendable::<Reader>();
}

#[test]
fn every_pixel_type_and_layout_reads_back() {
    let scratch = Scratch::new("types");
    for pixel in PixelType::ALL {
        for layout in [Layout::Both, Layout::Virtual, Layout::Links] {
            for compression in [Compression::BSLZ4, Compression::None] {
                let mut sample = sample(&scratch.0, "a", pixel);
                (sample.spec.layout, sample.spec.compression, sample.expected) = (layout, compression, 11);
                let report = write_run(&sample);
                assert_eq!((report.images, report.images_with_pixels, report.data_files.len()), (11, 9, 3));
                assert_images(&report.master, &sample);
                assert_eq!(errors(&report.master), Vec::<String>::new(), "{pixel} {layout:?} {compression:?}");
                let summary = inspect(&report.master).unwrap();
                assert_eq!((summary.images, summary.rows, summary.columns, summary.pixel), (11, 64, 200, pixel));
                assert_eq!(summary.images_by_status, [2, 7, 2, 0, 0]);
                assert_eq!(summary.state, "closed");
                assert_eq!(summary.ledger, ledger(&sample).totals);
                assert_eq!(summary.calibration_hash, "sha256:0123");
                assert_eq!(summary.compression, compression);
                let before = std::fs::metadata(&report.master).unwrap().modified().unwrap();
                assert!(!repair(&report.master).unwrap().master_written, "a whole run needs no repair");
                assert_eq!(std::fs::metadata(&report.master).unwrap().modified().unwrap(), before);
            }
        }
    }
    assert_eq!(names(&scratch.0).len(), 4, "no journal, reserve or temporary file stays");
}

#[test]
fn gaps_keep_the_position_and_leave_whole_files_of_lost_images() {
    let scratch = Scratch::new("gaps");
    let mut sample = sample(&scratch.0, "gap", PixelType::Uint16);
    (sample.images, sample.expected, sample.partial) = (23, 23, vec![]);
    sample.lost = (0..23).filter(|i| ![3, 17, 18].contains(i)).collect();
    let report = write_run(&sample);
    assert_eq!(report.data_files.len(), 6);
    assert_images(&report.master, &sample);
    assert_eq!(errors(&report.master), Vec::<String>::new());
    let frames = Reader::open(&report.master).unwrap().column("frame_number").unwrap();
    assert_eq!((frames.len(), frames[3], frames[17], frames[4]), (23, 1003, 1017, 0));
    let alone = Reader::open(&report.data_files[4]).unwrap();
    assert_eq!(alone.read_image(1, &decode).unwrap(), pixels(&sample.spec, 17, false));
    assert_eq!(errors(&report.data_files[4]), Vec::<String>::new());
}

#[test]
fn a_run_without_images_leaves_a_master_and_nothing_else() {
    let scratch = Scratch::new("nothing");
    let mut sample = sample(&scratch.0, "none", PixelType::Int16);
    (sample.images, sample.expected, sample.lost, sample.partial) = (0, 0, vec![], vec![]);
    let report = write_run(&sample);
    assert_eq!(names(&scratch.0), ["none_master.h5"]);
    assert_eq!(report.images, 0);
    assert_eq!(errors(&report.master), Vec::<String>::new());
}

#[test]
fn an_aborted_run_links_only_to_what_exists_at_every_moment() {
    let scratch = Scratch::new("abort");
    let mut sample = sample(&scratch.0, "ab", PixelType::Int16);
    sample.spec.images_planned = Some(1000);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    let master = scratch.0.join("ab_master.h5");
    let dangling = || errors(&master).into_iter().filter(|e| e.contains("nowhere") || e.contains("@signal")).count();
    for image in 0..10 {
        write_image(&mut writer, image, false).unwrap();
        // Time jumps, so that the growing master is published again and again.
        writer.tick(image * 11_000_000_000).unwrap();
        assert_eq!(dangling(), 0);
    }
    let seen = inspect(&master).unwrap();
    assert_eq!((seen.images, seen.state.as_str()), (8, "writing"), "the two closed data files are visible in the live master");
    let mut record = ledger(&sample);
    (record.ended, record.images_expected) = ("stopped".into(), 10);
    let report = writer.finish(&record).unwrap();
    assert_eq!(report.images, 10);
    assert_eq!(inspect(&master).unwrap().ended.as_deref(), Some("stopped"));
    assert_eq!(names(&scratch.0), ["ab_data_000001.h5", "ab_data_000002.h5", "ab_data_000003.h5", "ab_master.h5"]);
}

#[test]
fn older_files_are_refused_or_replaced_with_their_surplus() {
    let scratch = Scratch::new("overwrite");
    let mut long = sample(&scratch.0, "x", PixelType::Int16);
    let other = sample(&scratch.0, "x_data", PixelType::Int16);
    write_run(&long);
    write_run(&other);
    long.spec.overwrite = Overwrite::Refuse;
    let error = Writer::create(long.spec.clone()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Exists);
    assert!(error.to_string().contains("x_data_000001.h5") && error.to_string().contains("fix:"), "{error}");
    (long.images, long.expected, long.spec.overwrite) = (3, 3, Overwrite::Replace);
    write_run(&long);
    let mut expected: Vec<String> = (1..=3).map(|n| format!("x_data_data_00000{n}.h5")).collect();
    expected.extend(["x_data_000001.h5".into(), "x_data_master.h5".into(), "x_master.h5".into()]);
    expected.sort();
    assert_eq!(names(&scratch.0), expected);
    // A master alone counts as an older file as well.
    std::fs::remove_file(scratch.0.join("x_data_000001.h5")).unwrap();
    long.spec.overwrite = Overwrite::Refuse;
    assert_eq!(Writer::create(long.spec).err().unwrap().kind, ErrorKind::Exists);
}

#[test]
fn a_live_run_cannot_be_replaced_or_repaired() {
    let scratch = Scratch::new("alive");
    let sample = sample(&scratch.0, "live", PixelType::Int16);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_image(&mut writer, 0, false).unwrap();
    assert_eq!(Writer::create(sample.spec.clone()).err().unwrap().kind, ErrorKind::InUse);
    assert_eq!(repair(&scratch.0.join("live_master.h5")).unwrap_err().kind, ErrorKind::InUse);
    assert!(writer.finish(&ledger(&sample)).is_ok());
}

#[test]
fn records_that_contradict_the_specification_change_nothing() {
    let scratch = Scratch::new("records");
    let mut sample = sample(&scratch.0, "rec", PixelType::Int16);
    (sample.images, sample.expected, sample.lost, sample.partial) = (2, 2, vec![], vec![]);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_image(&mut writer, 0, false).unwrap();
    let good = ImageRecord {
        index: 1,
        frame_number: 1,
        status: ImageStatus::Complete,
        parts: &[&[0; 40]],
        packets_received: &[8, 8],
        packet_bitmap: &[255, 255],
        frame_values: &[0; 4],
        extra: &[0; 4],
    };
    let bad = [
        good,
        ImageRecord { index: 0, parts: &[], status: ImageStatus::Lost, ..good },
        ImageRecord { parts: &[], ..good },
        ImageRecord { status: ImageStatus::Lost, ..good },
        ImageRecord { index: u64::MAX, parts: &[], status: ImageStatus::Lost, ..good },
        ImageRecord { packets_received: &[8], parts: &[], status: ImageStatus::Lost, ..good },
    ];
    for record in &bad {
        assert_eq!(writer.write(record).unwrap_err().kind, ErrorKind::Invalid, "{record:?}");
    }
    write_image(&mut writer, 1, false).unwrap();
    let report = writer.finish(&ledger(&sample)).unwrap();
    assert_images(&report.master, &sample);
}

#[test]
fn discarded_and_lost_images_keep_their_account() {
    let scratch = Scratch::new("discarded");
    let mut sample = sample(&scratch.0, "dis", PixelType::Int16);
    (sample.images, sample.expected) = (4, 4);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    let record = ImageRecord {
        index: 0,
        frame_number: 77,
        status: ImageStatus::Discarded,
        parts: &[],
        packets_received: &[8, 3],
        packet_bitmap: &[255, 7],
        frame_values: &[0; 4],
        extra: &[0; 4],
    };
    writer.write(&record).unwrap();
    let lost = ImageRecord { index: 2, status: ImageStatus::Lost, packets_received: &[0, 0], packet_bitmap: &[0, 0], ..record };
    writer.write(&lost).unwrap();
    let report = writer.finish(&ledger(&sample)).unwrap();
    let reader = Reader::open(&report.master).unwrap();
    assert_eq!(reader.summary().images_by_status, [3, 0, 0, 1, 0]);
    assert_eq!(reader.column("packets_received").unwrap()[..2], [8, 3]);
    let mut chunk = Vec::new();
    assert!(reader.read_chunk(0, &mut chunk).unwrap(), "a file without any pixel has the chunk of a lost image, too");
    assert!(errors(&report.master).is_empty(), "{:?}", errors(&report.master));
}

#[test]
fn check_finds_what_was_broken_on_purpose() {
    let scratch = Scratch::new("broken");
    let sample = sample(&scratch.0, "b", PixelType::Int16);
    let fresh = || write_run(&sample);

    let report = fresh();
    let data = std::fs::read(&report.data_files[0]).unwrap();
    let at = data.windows(8).position(|w| w == (64u64 * 200 * 2).to_be_bytes()).unwrap();
    let mut damaged = data.clone();
    damaged[at + 13] ^= 0xFF;
    std::fs::write(&report.data_files[0], &damaged).unwrap();
    let found = errors(&report.master);
    assert!(found.len() == 1 && found[0].contains("image 0"), "{found:?}");

    let report = fresh();
    std::fs::remove_file(&report.data_files[1]).unwrap();
    let found = errors(&report.master);
    assert!(
        found.len() == 1 && found[0].contains("a data file is missing") && found[0].contains("bring the file back"),
        "{found:?}"
    );
    // It may come back: its link and its place stay (tests/integrity.rs).
    let repaired = repair(&report.master).unwrap();
    assert!(!repaired.master_written && repaired.images == 10 && repaired.images_missing() == 4);

    let report = fresh();
    std::fs::write(&report.master, b"not HDF5").unwrap();
    assert!(errors(&report.master)[0].contains("cannot be read"));
    assert!(inspect(&report.master).unwrap_err().to_string().contains("konkordia repair"));
    assert!(repair(&report.master).unwrap().master_written);
    assert_eq!(errors(&report.master), Vec::<String>::new());
    assert_images(&report.master, &sample);
    assert_eq!(inspect(&report.master).unwrap().state, "repaired");
    assert!(!repair(&report.master).unwrap().master_written);

    std::fs::remove_file(&report.master).unwrap();
    assert!(repair(&report.data_files[2]).unwrap().master_written, "a run without master is repaired from a data file");
    assert_eq!(errors(&report.master), Vec::<String>::new());
    assert!(check(&report.master, &decode).iter().any(|f| f.severity == Severity::Warning && f.what.contains("killed")));
    let mut wrong = ledger(&sample);
    wrong.totals[1].1 += 1;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, &sample).unwrap();
    let report = writer.finish(&wrong).unwrap();
    assert!(errors(&report.master).iter().any(|e| e.contains("does not balance")));
}

#[test]
fn directories_that_cannot_take_files_are_named_before_the_run() {
    let scratch = Scratch::new("places");
    let spec = sample(&scratch.0, "p", PixelType::Int16).spec;
    let at = |directory: &Path| Writer::create(FileSpec { directory: directory.into(), ..spec.clone() }).err().unwrap();
    let error = at(&scratch.0.join("missing"));
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.to_string().contains("missing") && error.to_string().contains("create the directory"), "{error}");
    let file = scratch.0.join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(at(&file).kind, ErrorKind::NotFound);
    assert_eq!(repair(&scratch.0.join("p_master.h5")).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(repair(&file).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(inspect(&scratch.0.join("p_master.h5")).unwrap_err().kind, ErrorKind::NotFound);
    let good = Writer::create(FileSpec { images_planned: Some(100), ..spec.clone() }).unwrap();
    let space = good.space();
    assert_eq!(space.images_uncompressed, Some(100 * 64 * 200 * 2));
    assert!(space.free > 0 && space.reserve > 0);
}

/// Random numbers from a fixed seed.
fn random() -> impl FnMut(usize) -> usize {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    }
}

/// Damage of every kind: no panic, no endless loop, a result in every case. A cut file is never called whole, and what
/// is in whole data files is readable after a repair.
#[test]
fn damaged_files_get_an_answer() {
    let scratch = Scratch::new("damage");
    let sample = sample(&scratch.0, "d", PixelType::Int16);
    let report = write_run(&sample);
    let targets = [report.master.clone(), report.data_files[0].clone()];
    let all = [&report.data_files[..], &targets[..1]].concat();
    let whole: Vec<Vec<u8>> = all.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut random = random();
    for target in &targets {
        let good = std::fs::read(target).unwrap();
        for case in 0..90 {
            let mut bad = good.clone();
            if case % 3 == 0 {
                bad.truncate(random(good.len()));
            } else {
                // The metadata lies at the beginning and at the end; the middle is mostly pixels and mask.
                let at = if case % 3 == 1 { random(4096) } else { random(good.len()) };
                bad[at] ^= 1 << random(8);
            }
            std::fs::write(target, &bad).unwrap();
            let _ = inspect(&report.master);
            let _ = check(target, &decode);
            let found = errors(&report.master);
            assert!(case % 3 != 0 || !found.is_empty(), "{target:?} cut to {} bytes is called whole", bad.len());
            repair(&report.master).unwrap();
            if target == &report.master {
                assert_images(&report.master, &sample);
            }
            for (path, bytes) in all.iter().zip(&whole) {
                std::fs::write(path, bytes).unwrap();
            }
        }
    }
    assert_eq!(errors(&report.master), Vec::<String>::new());
}

/// libhdf5 1.14.6 writes beyond one of its arrays if the rank in a mapping of a virtual data set is damaged, before it
/// compares the checksum.
#[test]
fn damaged_mappings_are_reported_and_made_anew() {
    let scratch = Scratch::new("mappings");
    for layout in [Layout::Both, Layout::Virtual] {
        let mut sample = sample(&scratch.0, "v", PixelType::Int16);
        sample.spec.layout = layout;
        let report = write_run(&sample);
        let good = std::fs::read(&report.master).unwrap();
        let begin = good.windows(5).position(|window| window == b"GCOL\x01").unwrap();
        let used = good[begin..].windows(4).rposition(|window| window.iter().all(|byte| *byte != 0)).unwrap().min(4096);
        let mut random = random();
        for _ in 0..50 {
            let mut bad = good.clone();
            bad[begin + random(used)] ^= 1 << random(8);
            std::fs::write(&report.master, &bad).unwrap();
            let found = errors(&report.master);
            let _ = Stacks::open(&report.master);
            repair(&report.master).unwrap();
            assert_eq!(errors(&report.master), Vec::<String>::new(), "after {found:?}");
        }
        assert_images(&report.master, &sample);
    }
}

/// Data movers take files away as soon as they are complete.
#[test]
fn a_complete_data_file_may_be_taken_away_before_the_run_ends() {
    let scratch = Scratch::new("moved");
    let sample = sample(&scratch.0, "a", PixelType::Int16);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, &sample).unwrap();
    let first = sample.spec.directory.join(format!("{}_data_000001.h5", sample.spec.prefix));
    assert!(sample.images > u64::from(sample.spec.images_per_file), "the first file is complete");
    std::fs::remove_file(&first).unwrap();
    let report = writer.finish(&ledger(&sample)).unwrap();
    assert!(report.data_files.contains(&first) && report.master.exists());
}

/// An image of two tiles, as the engine commits it: a sum of three frames, of which tile 1 lacks packet 0.
fn committed(spec: &FileSpec, number: u64) -> Arc<CommittedImage> {
    let tile = |tile: u16| {
        let header = FrameHeader { frame_number: 1000 + number, timestamp_100ns: 7 * number, ..FrameHeader::default() };
        let mut record = TileRecord { header, packets: 8 - tile, ..TileRecord::default() };
        (tile..8).for_each(|packet| assert!(record.bitmap.set(packet)));
        record
    };
    let array = Array {
        shape: Shape::new(&[u64::from(spec.rows), u64::from(spec.columns)]).unwrap(),
        element: Element::Uint16,
        packing: Packing::None,
        pieces: vec![pixels(spec, number, false).into()],
    };
    let packets =
        Packets { first_frame: 3 * number, frames: 3, frames_complete: 2, tiles: vec![tile(0), tile(1)], ..Packets::default() };
    Arc::new(CommittedImage {
        status: ImageStatus::Partial,
        channels: vec![Channel { name: "".into(), array }],
        packets: Some(packets),
        ..CommittedImage::lost(number)
    })
}

#[test]
fn the_sink_of_a_run_writes_images_with_what_their_packets_say() {
    let scratch = Scratch::new("run-sink");
    let mut spec = sample(&scratch.0, "s", PixelType::Uint16).spec;
    (spec.compression, spec.extra_columns) = (Compression::None, ExtraColumn::of_selection().into());
    let files = RunFiles::new(Writer::create(spec.clone()).unwrap());
    let mut sink = files.sink();
    for number in [0, 1, 3] {
        sink.image(&committed(&spec, number)).unwrap();
        sink.tick(number * 150_000_000).unwrap();
    }
    let ledger = LedgerRecord { images_expected: 5, ..LedgerRecord::default() };
    let report = files.finish(&ledger).unwrap().unwrap();
    assert_eq!((report.images, report.images_with_pixels), (5, 3));
    let shared = files.shared();
    assert_eq!((shared.images(), shared.positions(), shared.durable_end()), (3, 5, None));
    assert_eq!(shared.names().main.as_ref(), Some(&report.master));
    // The files are closed, so nothing more is taken.
    sink.image(&committed(&spec, 4)).unwrap();
    assert!(files.finish(&ledger).is_none() && shared.images() == 3);
    assert_eq!(errors(&report.master), Vec::<String>::new());
    let reader = Reader::open(&report.master).unwrap();
    assert_eq!(reader.read_image(3, &decode).unwrap(), pixels(&spec, 3, false));
    let reader = Reader::open(&report.data_files[0]).unwrap();
    let rows = [
        ("frame_number", vec![1000, 1001, 0, 1003]),
        ("timestamp", vec![0, 7, 0, 21]),
        ("status", vec![2, 2, 0, 2]),
        ("packets_received", vec![8, 7, 8, 7, 0, 0, 8, 7]),
        ("packet_bitmap", vec![0xFF, 0xFE, 0xFF, 0xFE, 0, 0, 0xFF, 0xFE]),
        ("first_frame", vec![0, 3, 0, 9]),
        ("frames", vec![3, 3, 0, 3]),
        ("frames_complete", vec![2, 2, 0, 2]),
    ];
    for (name, expected) in rows {
        assert_eq!(reader.column(name), Some(expected), "{name}");
    }
}

#[test]
fn the_sink_of_a_run_without_files_takes_images_and_writes_nothing() {
    let scratch = Scratch::new("run-no-files");
    let spec = sample(&scratch.0, "s", PixelType::Uint16).spec;
    let files = RunFiles::default();
    let mut sink = files.sink();
    sink.image(&committed(&spec, 0)).unwrap();
    sink.tick(0).unwrap();
    assert!(files.finish(&LedgerRecord::default()).is_none() && files.shared().names().main.is_none());
    assert_eq!(names(&scratch.0), Vec::<String>::new());
}
