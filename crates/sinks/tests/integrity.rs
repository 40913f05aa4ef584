//! What happens to files after they were closed: flipped bits, and files that are absent, cut, empty or damaged, and
//! that come back.

#![expect(clippy::single_range_in_vec_init, reason = "one range of images is what is expected")]

mod common;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::damage::{all_but, chunks, errors, fixes, readable, without_checksums, write_run};
use common::series::{Kind, file_sink, images, start, write};
use common::{Sample, Scratch, decode, ledger, sample, write_image};
use konkordia_core::array::{Element, Packing};
use konkordia_core::pixel::PixelType;
use konkordia_core::ports::Sink;
use konkordia_sinks::hdf5::{Compression, FileReport, Layout, Reader, Writer, check, inspect, repair};

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Flips one bit, runs the check, and flips the bit back.
fn seen(path: &Path, byte: usize, bit: usize, master: &Path) -> bool {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[byte] ^= 1 << bit;
    std::fs::write(path, &bytes).unwrap();
    let is_seen = !errors(master).is_empty();
    bytes[byte] ^= 1 << bit;
    std::fs::write(path, &bytes).unwrap();
    is_seen
}

#[test]
fn every_flipped_bit_in_a_chunk_is_seen() {
    let scratch = Scratch::new("flips");
    let mut random = Random(0x5EED);
    for compression in [Compression::BSLZ4, Compression::None] {
        let mut sample = sample(&scratch.0, "flip", PixelType::Uint16);
        sample.spec.compression = compression;
        let report = write_run(&sample);
        assert_eq!(errors(&report.master), []);
        let chunks = chunks(&report.data_files);
        assert_eq!(chunks.len(), 10, "a lost image has one as well");
        let flips = 60;
        let found = (0..flips).filter(|_| {
            let (path, offset, bytes) = &chunks[random.below(chunks.len())];
            seen(path, offset + random.below(*bytes), random.below(8), &report.master)
        });
        assert_eq!(found.count(), flips, "{compression:?}");
    }
}

#[test]
fn an_image_of_several_chunks_has_one_checksum() {
    let scratch = Scratch::new("flips-pieces");
    let kind = Kind { element: Element::Uint16, shape: vec![24, 32], channels: 2, pieces: 2, packing: Packing::None };
    write(&mut file_sink(&scratch.0, "p", 4), start(), &images(&kind));
    let master = scratch.0.join("p_master.h5");
    assert_eq!(errors(&master), []);
    let sums = Reader::open(&master).unwrap().column("chunk_crc32").unwrap();
    let raw = |image: u64| u64::from(crc32(&kind.raw(image)));
    // In a lost image every pixel is *missing*, which is the highest number of this type.
    let lost = u64::from(crc32(&vec![0xFF; kind.raw(0).len()]));
    let expected: Vec<u64> = (0..10).map(|image| if [3, 5].contains(&image) { lost } else { raw(image) }).collect();
    assert_eq!(sums, expected);
    let files: Vec<PathBuf> = (1..=3).map(|n| scratch.0.join(format!("p_data_00000{n}.h5"))).collect();
    for (path, offset, bytes) in chunks(&files) {
        assert!(seen(&path, offset + bytes / 2, 3, &master), "{path:?} at {offset}");
    }
}

/// CRC-32, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[test]
fn a_damaged_image_is_named_with_its_file() {
    let scratch = Scratch::new("flip-named");
    let report = write_run(&sample(&scratch.0, "n", PixelType::Uint16));
    let (path, offset, bytes) = chunks(&report.data_files[1..2])[2].clone();
    let mut raw = std::fs::read(&path).unwrap();
    raw[offset + bytes / 2] ^= 4;
    std::fs::write(&path, raw).unwrap();
    let found = errors(&report.master);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].what.contains("image 6: its bytes are not those that were written"), "{}", found[0]);
    assert!(found[0].place.contains("n_data_000002.h5") && found[0].fix.contains("from a copy"), "{}", found[0]);
}

#[test]
fn files_of_earlier_versions_are_read_checked_and_repaired_without_checksums() {
    let scratch = Scratch::new("flip-old");
    let sample = sample(&scratch.0, "old", PixelType::Uint16);
    let report = write_run(&sample);
    report.data_files.iter().chain([&report.master]).for_each(|path| without_checksums(path));
    assert_eq!(errors(&report.master), []);
    let notes: Vec<String> = check(&report.master, &decode).into_iter().map(|f| f.what).collect();
    assert!(notes.iter().any(|what| what.contains("3 data file(s) without checksums")), "{notes:?}");
    std::fs::remove_file(&report.master).unwrap();
    assert_eq!(repair(&report.master).unwrap().images, 10);
    assert_eq!(errors(&report.master), []);
    assert_eq!(Reader::open(&report.master).unwrap().column("chunk_crc32"), None);
}

#[test]
fn lost_images_have_the_checksum_of_the_chunk_that_they_get() {
    let scratch = Scratch::new("flip-lost");
    let mut sample = sample(&scratch.0, "l", PixelType::Uint16);
    (sample.images, sample.expected, sample.lost, sample.partial) = (12, 12, vec![0, 4, 5, 9, 11], vec![]);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    for image in (0..12).filter(|image| !sample.lost.contains(image)) {
        write_image(&mut writer, image, false).unwrap();
        // Some rows are in the file before its lost images get their chunks, others are not.
        writer.tick(image * 150_000_000).unwrap();
    }
    let report = writer.finish(&ledger(&sample)).unwrap();
    assert_eq!(errors(&report.master), []);
    let sums = Reader::open(&report.master).unwrap().column("chunk_crc32").unwrap();
    assert!(sums.iter().all(|sum| *sum != 0), "{sums:?}");
    assert!([4, 5, 9, 11].iter().all(|image| sums[*image] == sums[0]), "{sums:?}");
}

#[test]
fn a_data_file_that_is_gone_keeps_its_place_and_may_come_back() {
    for layout in [Layout::Both, Layout::Links, Layout::Virtual] {
        for gone in 0..3 {
            let scratch = Scratch::new("gone");
            let mut sample = sample(&scratch.0, "g", PixelType::Int16);
            sample.spec.layout = layout;
            let report = write_run(&sample);
            let before = std::fs::read(&report.master).unwrap();
            let (path, aside) = (&report.data_files[gone], scratch.0.join("aside"));
            std::fs::rename(path, &aside).unwrap();
            let found = errors(&report.master);
            let advice: Vec<&str> = found.iter().map(|f| f.fix.as_str()).collect();
            assert!(advice.contains(&format!("bring the file back to {}", path.display()).as_str()), "{layout:?} {found:?}");
            assert!(advice.iter().all(|fix| !fix.contains("repair")), "{layout:?} {found:?}");
            let images = [4, 4, 2][gone];
            assert_eq!(inspect(&report.master).unwrap().images_file_missing, images);
            let repaired = repair(&report.master).unwrap();
            assert_eq!((repaired.images, repaired.images_missing(), repaired.master_written), (10, images, false), "{layout:?}");
            let first = 4 * gone as u64;
            assert_eq!(repaired.missing[0].ranges, [first..first + images]);
            assert!(fixes(&repaired).contains("is not there; bring the file back to"), "{}", fixes(&repaired));
            assert!(std::fs::read(&report.master).unwrap() == before, "nobody touches the master");
            std::fs::rename(&aside, path).unwrap();
            assert_eq!(repair(&report.master).unwrap().images_missing(), 0);
            assert_eq!(errors(&report.master), []);
            assert_eq!(readable(&report.master, &sample), all_but(&[5], 10));
        }
    }
}

#[test]
fn a_master_made_anew_while_a_data_file_is_gone_is_whole_when_it_comes_back() {
    let scratch = Scratch::new("gone-anew");
    let sample = sample(&scratch.0, "g", PixelType::Int16);
    let report = write_run(&sample);
    for gone in [0, 1, 2] {
        std::fs::remove_file(&report.master).unwrap();
        let (path, aside) = (&report.data_files[gone], scratch.0.join("aside"));
        std::fs::rename(path, &aside).unwrap();
        let repaired = repair(&report.master).unwrap();
        assert!(repaired.master_written);
        if gone == 1 {
            assert_eq!((repaired.images, repaired.images_missing()), (10, 4));
            assert_eq!(inspect(&report.master).unwrap().images_file_missing, 4);
            let images = [&all_but(&[], 4)[..], &[None; 4], &all_but(&[], 2)].concat();
            assert_eq!(readable(&report.master, &sample), images);
        }
        std::fs::rename(&aside, path).unwrap();
        let repaired = repair(&report.master).unwrap();
        assert_eq!((repaired.images, repaired.images_missing(), repaired.master_written), (10, 0, true));
        assert_eq!(errors(&report.master), []);
        assert_eq!(readable(&report.master, &sample), all_but(&[5], 10));
        assert_eq!(inspect(&report.master).unwrap().images_by_status, [1, 7, 2, 0, 0]);
        assert!(!repair(&report.master).unwrap().master_written);
    }
}

#[test]
fn an_empty_data_file_is_an_error_and_nothing_is_removed() {
    let scratch = Scratch::new("empty");
    let sample = sample(&scratch.0, "e", PixelType::Int16);
    let report = write_run(&sample);
    let before = std::fs::read(&report.master).unwrap();
    let whole = std::fs::read(&report.data_files[2]).unwrap();
    std::fs::write(&report.data_files[2], b"").unwrap();
    let found = errors(&report.master);
    assert!(found.iter().any(|f| f.what.contains("0 bytes") && f.fix.contains("bring back a whole copy")), "{found:?}");
    assert!(errors(&report.data_files[2])[0].what.contains("0 bytes"));
    let repaired = repair(&report.master).unwrap();
    assert_eq!((repaired.images, repaired.images_missing()), (10, 2));
    assert!(fixes(&repaired).contains("is empty (0 bytes); bring back a whole copy"), "{}", fixes(&repaired));
    assert!(report.data_files[2].exists() && std::fs::read(&report.master).unwrap() == before);
    std::fs::write(&report.data_files[2], whole).unwrap();
    assert_eq!(repair(&report.master).unwrap().images_missing(), 0);
    assert_eq!(readable(&report.master, &sample), all_but(&[5], 10));
}

/// Data file 1 of a long run in one data file, whole and cut to `percent`.
fn cut(sample: &mut Sample, percent: usize) -> (FileReport, Vec<u8>) {
    (sample.spec.images_per_file, sample.images, sample.expected) = (200, 200, 200);
    let report = write_run(sample);
    let whole = std::fs::read(&report.data_files[0]).unwrap();
    std::fs::write(&report.data_files[0], &whole[..whole.len() / 100 * percent]).unwrap();
    (report, whole)
}

#[test]
fn what_is_left_of_a_cut_data_file_is_rescued() {
    for (percent, pixel) in [(60, PixelType::Int16), (35, PixelType::Uint32), (95, PixelType::Uint16)] {
        let scratch = Scratch::new(&format!("cut{percent}"));
        let mut sample = sample(&scratch.0, "c", pixel);
        let (report, whole) = cut(&mut sample, percent);
        let data = &report.data_files[0];
        let found = errors(&report.master);
        assert!(
            found.iter().any(|f| f.fix.contains("bring back a whole copy") && f.fix.contains("konkordia repair")),
            "{found:?}"
        );
        let repaired = repair(&report.master).unwrap();
        assert_eq!((repaired.rescued.as_slice(), repaired.images), (std::slice::from_ref(data), 200));
        let lost = repaired.images_missing();
        // Chunks are written one after the other, so all but a few of those before the cut are there.
        let expected = 200 - 200 * percent as u64 / 100;
        assert!((expected - 3..expected + 20).contains(&lost), "{percent}: {lost} lost");
        let lost: Vec<u64> = repaired.missing.iter().flat_map(|missing| missing.ranges.iter().cloned().flatten()).collect();
        assert_eq!(readable(&report.master, &sample), all_but(&[&lost[..], &[5]].concat(), 200));
        assert_eq!(errors(&report.master), []);
        assert!(check(&report.master, &decode).iter().any(|f| f.what.contains("could not be rescued")));
        // The rows of its images are those of the previous master.
        let frames = Reader::open(&report.master).unwrap().column("frame_number").unwrap();
        assert_eq!((frames[0], frames[10], frames[5]), (1000, 1010, 0));
        // The second time there is nothing to do, and repair still reports what is missing.
        let again = repair(&report.master).unwrap();
        assert_eq!((again.rescued.len(), again.master_written, again.images_missing()), (0, false, lost.len() as u64));
        assert!(scratch.0.join("c_data_000001.h5.damaged").exists(), "the file as it was");
        // A whole copy corrects everything.
        std::fs::write(data, &whole).unwrap();
        let last = repair(&report.master).unwrap();
        assert_eq!((last.images, last.images_missing(), last.master_written), (200, 0, true));
        assert_eq!(readable(&report.master, &sample), all_but(&[5], 200));
        let summary = inspect(&report.master).unwrap();
        assert_eq!((summary.state.as_str(), summary.ended.as_deref()), ("closed", Some("complete")));
        assert_eq!(errors(&report.master), []);
        assert!(!check(&report.master, &decode).iter().any(|f| f.what.contains("rescued")));
    }
}

#[test]
fn a_data_file_with_a_damaged_head_is_rescued_with_all_images() {
    let scratch = Scratch::new("head");
    let sample = sample(&scratch.0, "h", PixelType::Int16);
    let report = write_run(&sample);
    let mut bytes = std::fs::read(&report.data_files[1]).unwrap();
    bytes[..300].fill(0xEE);
    std::fs::write(&report.data_files[1], &bytes).unwrap();
    let repaired = repair(&report.master).unwrap();
    assert_eq!((repaired.rescued.len(), repaired.images_missing()), (1, 0), "{repaired:?}");
    assert_eq!(errors(&report.master), []);
    assert_eq!(readable(&report.master, &sample), all_but(&[5], 10));
}

#[test]
fn chunks_that_a_journal_names_are_compared() {
    let scratch = Scratch::new("journal-sum");
    let mut sample = sample(&scratch.0, "j", PixelType::Int16);
    sample.spec.images_per_file = 100;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    (0..10).for_each(|image| write_image(&mut writer, image, false).unwrap());
    // Nothing is closed, as after a kill.
    drop(writer);
    let (master, data) = (scratch.0.join("j_master.h5"), scratch.0.join("j_data_000001.h5"));
    let mut bytes = std::fs::read(&data).unwrap();
    let begins = (64u64 * 200 * 2).to_be_bytes();
    let chunks: Vec<usize> = (0..bytes.len() - 12).filter(|at| bytes[*at..*at + 8] == begins).collect();
    assert_eq!(chunks.len(), 10);
    bytes[chunks[7] + 1000] ^= 0x10;
    std::fs::write(&data, &bytes).unwrap();
    let repaired = repair(&master).unwrap();
    assert_eq!((repaired.images, repaired.images_missing(), repaired.rebuilt.len()), (10, 1, 1));
    assert_eq!(repaired.missing[0].ranges, [7..8]);
    assert!(fixes(&repaired).contains("not those that were written"), "{}", fixes(&repaired));
    assert!(std::fs::read(scratch.0.join("j_data_000001.h5.damaged")).unwrap() == bytes, "the file as it was");
    let sample = Sample { partial: vec![], ..sample };
    assert_eq!(readable(&master, &sample), all_but(&[7], 10));
    assert_eq!(errors(&master), []);
    assert_eq!(repair(&master).unwrap().images_missing(), 1, "it is still missing");
}

#[test]
fn a_journal_waits_for_its_data_file() {
    let scratch = Scratch::new("journal-waits");
    let sample = sample(&scratch.0, "w", PixelType::Int16);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    (0..6).for_each(|image| write_image(&mut writer, image, false).unwrap());
    drop(writer);
    let (master, data, aside) = (scratch.0.join("w_master.h5"), scratch.0.join("w_data_000002.h5"), scratch.0.join("aside"));
    std::fs::rename(&data, &aside).unwrap();
    let repaired = repair(&master).unwrap();
    assert_eq!(repaired.images, 4);
    assert!(fixes(&repaired).contains("bring the file back to"), "{repaired:?}");
    std::fs::rename(&aside, &data).unwrap();
    let repaired = repair(&master).unwrap();
    assert_eq!((repaired.images, repaired.missing.len()), (6, 0));
    let sample = Sample { partial: vec![], ..sample };
    assert_eq!(readable(&master, &sample), all_but(&[], 6));
}

#[test]
fn a_series_of_several_pieces_is_rescued_from_a_cut_file() {
    let scratch = Scratch::new("cut-pieces");
    let kind = Kind { element: Element::Uint16, shape: vec![64, 96], channels: 3, pieces: 2, packing: Packing::BitshuffleLz4 };
    let mut sink = file_sink(&scratch.0, "k", 100);
    sink.start(&Arc::new(start())).unwrap();
    let all: Vec<_> = (0..40).map(|number| kind.image(number)).collect();
    all.iter().for_each(|image| sink.image(image).unwrap());
    sink.end(&common::series::end_of(&all)).unwrap();
    let (master, data) = (scratch.0.join("k_master.h5"), scratch.0.join("k_data_000001.h5"));
    let whole = std::fs::read(&data).unwrap();
    std::fs::write(&data, &whole[..whole.len() / 2]).unwrap();
    let repaired = repair(&master).unwrap();
    let lost = repaired.images_missing();
    assert!((20..26).contains(&lost), "{lost} lost");
    let reader = Reader::open(&master).unwrap();
    let status = reader.column("status").unwrap();
    for number in (0..40).filter(|number| status[*number as usize] == 1) {
        assert_eq!(reader.read_image(number, &decode).unwrap(), kind.raw(number), "image {number}");
    }
    assert_eq!(status.iter().filter(|status| **status == 1).count() as u64, 40 - lost);
    assert_eq!(errors(&master), []);
}
