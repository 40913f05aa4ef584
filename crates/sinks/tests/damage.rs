//! Several kinds of damage at once, or damage to what repair itself relies on: journals, columns, the mask, the number
//! of images.

#![expect(clippy::single_range_in_vec_init, reason = "one range of images is what is expected")]

mod common;
use std::path::{Path, PathBuf};

use common::damage::{all_but, chunks, errors, fixes, readable, without_checksums, write_run};
use common::{Sample, Scratch, decode, ledger, sample, write_image, write_images};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::mirror::Stacks;
use konkordia_sinks::hdf5::{CHECKSUM, ErrorKind, FileReport, Layout, Reader, Writer, check, inspect, repair};

const MASK: &str = "/entry/instrument/detector/pixel_mask";
const COLUMNS: &str = "/entry/konkordia/images";

fn mask_of(master: &Path) -> Vec<u32> {
    hdf5::File::open(master).unwrap().dataset(MASK).unwrap().read_raw().unwrap()
}

fn column(path: &Path, name: &str) -> Vec<u64> {
    hdf5::File::open(path).unwrap().dataset(&format!("{COLUMNS}/{name}")).unwrap().read_raw().unwrap()
}

fn set_column(path: &Path, name: &str, set: impl Fn(&mut Vec<u64>)) {
    let file = hdf5::File::open_rw(path).unwrap();
    let column = file.dataset(&format!("{COLUMNS}/{name}")).unwrap();
    let mut values = column.read_raw::<u64>().unwrap();
    set(&mut values);
    column.write_raw(&values).unwrap();
}

/// A complete run of ten images in three data files, written into a directory of its own.
fn whole(name: &str) -> (Scratch, Sample, FileReport) {
    let scratch = Scratch::new(name);
    let sample = sample(&scratch.0, "r", PixelType::Int16);
    let report = write_run(&sample);
    (scratch, sample, report)
}

/// A run in one data file that was killed after `images` images, all of them complete: master, data file, journal.
fn killed(scratch: &Scratch, images: u64, is_flushed: bool) -> (Sample, [PathBuf; 3]) {
    let mut sample = sample(&scratch.0, "k", PixelType::Int16);
    (sample.spec.images_per_file, sample.partial, sample.lost) = (100, vec![], vec![]);
    sample.spec.images_planned = Some(1000);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    for image in 0..images {
        write_image(&mut writer, image, false).unwrap();
        if is_flushed {
            writer.tick(image * 1_000_000_000).unwrap();
        }
    }
    drop(writer);
    let names = ["k_master.h5", "k_data_000001.h5", "k_data_000001.h5.journal"];
    (sample, names.map(|name| scratch.0.join(name)))
}

/// Bytes of the header of a journal, and of one record.
fn journal_sizes(journal: &[u8]) -> (usize, usize) {
    let number = |at: usize| u32::from_le_bytes(journal[at..at + 4].try_into().unwrap()) as usize;
    (32 + number(8) + 4, 24 + number(12) + 4)
}

/// Damages the file so that only its journal can locate the images: no head, and no index.
fn without_index(data: &Path) {
    let mut bytes = std::fs::read(data).unwrap();
    bytes[..300].fill(0xEE);
    let trees: Vec<usize> = (0..bytes.len() - 4).filter(|at| &bytes[*at..*at + 4] == b"TREE").collect();
    trees.iter().for_each(|at| bytes[*at..*at + 4].fill(0xEE));
    std::fs::write(data, bytes).unwrap();
}

#[test]
fn the_mask_comes_back_with_the_first_data_file() {
    let (scratch, _, report) = whole("mask-back");
    let mask = mask_of(&report.master);
    assert!(mask.iter().any(|bits| *bits != 0));
    let (path, aside) = (&report.data_files[0], scratch.0.join("aside"));
    std::fs::remove_file(&report.master).unwrap();
    std::fs::rename(path, &aside).unwrap();
    assert_eq!(repair(&report.master).unwrap().images_missing(), 4);
    std::fs::rename(&aside, path).unwrap();
    assert_eq!(repair(&report.master).unwrap().images_missing(), 0);
    assert!(mask_of(&report.master) == mask, "the mask of the run");
    assert_eq!(errors(&report.master), []);
}

#[test]
fn a_mask_of_zeros_in_the_master_does_not_hide_that_of_the_data_file() {
    let (_scratch, _, report) = whole("mask-zeros");
    let mask = mask_of(&report.master);
    let file = hdf5::File::open_rw(&report.master).unwrap();
    file.dataset(MASK).unwrap().write_raw(&vec![0u32; mask.len()]).unwrap();
    file.close().unwrap();
    assert!(repair(&report.master).unwrap().master_written);
    assert!(mask_of(&report.master) == mask, "the mask of the run");
}

#[test]
fn a_mask_that_is_in_no_file_is_missed_until_it_is_back() {
    let (_scratch, _, report) = whole("mask-none");
    let mask = mask_of(&report.master);
    let whole = std::fs::read(&report.data_files[0]).unwrap();
    std::fs::remove_file(&report.master).unwrap();
    let mut damaged = whole.clone();
    damaged[..300].fill(0xEE);
    std::fs::write(&report.data_files[0], &damaged).unwrap();
    for _ in 0..2 {
        let repaired = repair(&report.master).unwrap();
        assert_eq!((repaired.images_missing(), repaired.mask_missing), (0, true), "{repaired:?}");
        assert!(errors(&report.master).iter().any(|f| f.what.contains("the pixel mask was in no file")));
    }
    std::fs::write(&report.data_files[0], &whole).unwrap();
    assert!(!repair(&report.master).unwrap().mask_missing);
    assert!(mask_of(&report.master) == mask, "the mask of the run");
    assert_eq!(errors(&report.master), []);
}

#[test]
fn columns_that_differ_and_cannot_be_judged_are_both_kept() {
    let (scratch, _, report) = whole("undecided");
    let before = std::fs::read(&report.master).unwrap();
    set_column(&report.data_files[1], "frame_number", |values| values[0] ^= 1);
    let repaired = repair(&report.master).unwrap();
    assert!(repaired.notes.iter().any(|note| note.contains("it is not known which are right")), "{repaired:?}");
    assert!(std::fs::read(scratch.0.join("r_master.h5.damaged")).unwrap() == before);
    assert_eq!(column(&report.master, "frame_number")[4], 1004 ^ 1);
    assert_eq!(errors(&report.master), []);
}

#[test]
fn a_bad_record_of_a_journal_takes_no_image_away() {
    for (is_flushed, bad) in [(true, vec![3]), (false, vec![3]), (true, vec![0, 6, 9]), (true, (0..10).collect())] {
        let scratch = Scratch::new("journal-bad");
        let (sample, [master, data, journal]) = killed(&scratch, 10, is_flushed);
        let mut bytes = std::fs::read(&journal).unwrap();
        let (header, record) = journal_sizes(&bytes);
        bad.iter().for_each(|n: &usize| bytes[header + n * record + 20] ^= 1);
        std::fs::write(&journal, &bytes).unwrap();
        let repaired = repair(&master).unwrap();
        assert_eq!((repaired.images, repaired.images_missing()), (10, 0), "{bad:?} {repaired:?}");
        assert_eq!(readable(&master, &sample), all_but(&[], 10), "{bad:?}");
        // Images of which no row is left are not reported as complete.
        let partial = if is_flushed { 0 } else { bad.len() as u64 };
        assert_eq!(inspect(&master).unwrap().images_by_status, [0, 10 - partial, partial, 0, 0]);
        assert!(data.with_file_name("k_data_000001.h5.damaged").exists(), "the file as it was");
        assert!(std::fs::read(data.with_file_name("k_data_000001.h5.damaged.journal")).unwrap() == bytes, "and its journal");
        assert!(!journal.exists());
        assert!(!repair(&master).unwrap().master_written);
    }
}

#[test]
fn an_image_whose_record_and_index_are_gone_is_missed() {
    for bad in [3, 9] {
        let scratch = Scratch::new("journal-lost");
        let (sample, [master, data, journal]) = killed(&scratch, 10, true);
        without_index(&data);
        let mut bytes = std::fs::read(&journal).unwrap();
        let (header, record) = journal_sizes(&bytes);
        bytes[header + bad * record + 20] ^= 1;
        std::fs::write(&journal, &bytes).unwrap();
        let repaired = repair(&master).unwrap();
        assert_eq!((repaired.images, repaired.images_missing()), (10, 1), "{repaired:?}");
        assert_eq!(repaired.missing[0].ranges, [bad as u64..bad as u64 + 1]);
        assert!(fixes(&repaired).contains("k_data_000001.h5.damaged.journal"), "{}", fixes(&repaired));
        assert_eq!(readable(&master, &sample), all_but(&[bad as u64], 10));
        assert_eq!(repair(&master).unwrap().images_missing(), 1, "it is still missing");
    }
}

#[test]
fn a_journal_that_was_cut_takes_no_image_away() {
    for records in [0, 1, 7] {
        let scratch = Scratch::new("journal-cut");
        let (sample, [master, _, journal]) = killed(&scratch, 10, true);
        let bytes = std::fs::read(&journal).unwrap();
        let (header, record) = journal_sizes(&bytes);
        std::fs::write(&journal, &bytes[..header + records * record]).unwrap();
        let repaired = repair(&master).unwrap();
        assert_eq!((repaired.images, repaired.images_missing()), (10, 0), "{records} {repaired:?}");
        assert_eq!(readable(&master, &sample), all_but(&[], 10));
        assert_eq!(inspect(&master).unwrap().images_by_status, [0, 10, 0, 0, 0]);
    }
}

#[test]
fn a_journal_waits_for_a_copy_of_a_data_file_of_which_nothing_is_left() {
    for bytes_left in [0, 2048] {
        let scratch = Scratch::new("journal-empty");
        let (sample, [master, data, journal]) = killed(&scratch, 10, false);
        let whole = std::fs::read(&data).unwrap();
        std::fs::write(&data, &whole[..bytes_left]).unwrap();
        for _ in 0..2 {
            let repaired = repair(&master).unwrap();
            assert!(!repaired.missing.is_empty(), "{repaired:?}");
            assert!(journal.exists() && std::fs::read(&data).unwrap() == whole[..bytes_left], "nothing was touched");
        }
        std::fs::write(&data, &whole).unwrap();
        let repaired = repair(&master).unwrap();
        assert_eq!((repaired.images, repaired.missing.len()), (10, 0), "{repaired:?}");
        assert_eq!(readable(&master, &sample), all_but(&[], 10));
        assert_eq!(inspect(&master).unwrap().images_by_status, [0, 10, 0, 0, 0]);
    }
}

#[test]
fn a_journal_is_kept_with_a_data_file_of_which_images_were_lost() {
    let scratch = Scratch::new("journal-kept");
    let (sample, [master, data, journal]) = killed(&scratch, 40, false);
    let (whole, records) = (std::fs::read(&data).unwrap(), std::fs::read(&journal).unwrap());
    std::fs::write(&data, &whole[..whole.len() / 2]).unwrap();
    let repaired = repair(&master).unwrap();
    assert!(repaired.images == 40 && repaired.images_missing() > 10, "{repaired:?}");
    let kept = data.with_file_name("k_data_000001.h5.damaged.journal");
    assert!(fixes(&repaired).contains(&kept.display().to_string()), "{}", fixes(&repaired));
    assert!(!journal.exists() && std::fs::read(&kept).unwrap() == records);
    // Both come back.
    std::fs::write(&data, &whole).unwrap();
    std::fs::rename(&kept, &journal).unwrap();
    let repaired = repair(&master).unwrap();
    assert_eq!((repaired.images, repaired.images_missing()), (40, 0), "{repaired:?}");
    assert_eq!(readable(&master, &sample), all_but(&[], 40));
    assert_eq!(errors(&master), []);
}

#[test]
fn a_journal_without_a_good_record_removes_no_image() {
    let scratch = Scratch::new("journal-zeros");
    let (sample, [master, data, journal]) = killed(&scratch, 3, false);
    let mut bytes = std::fs::read(&journal).unwrap();
    let (header, _) = journal_sizes(&bytes);
    bytes[header..].fill(0);
    std::fs::write(&journal, &bytes).unwrap();
    let mut head = std::fs::read(&data).unwrap();
    head[..300].fill(0xEE);
    std::fs::write(&data, &head).unwrap();
    let repaired = repair(&master).unwrap();
    assert_eq!((repaired.images, repaired.images_missing()), (3, 0), "{repaired:?}");
    assert_eq!(readable(&master, &sample), all_but(&[], 3));
}

#[test]
fn a_kill_between_the_last_two_steps_of_a_repair_costs_nothing() {
    let scratch = Scratch::new("journal-late");
    let (sample, [master, _, journal]) = killed(&scratch, 10, true);
    let records = std::fs::read(&journal).unwrap();
    assert_eq!(repair(&master).unwrap().images_missing(), 0);
    std::fs::write(&journal, &records).unwrap();
    let repaired = repair(&master).unwrap();
    assert_eq!((repaired.images, repaired.images_missing()), (10, 0), "{repaired:?}");
    assert!(!journal.exists() && !scratch.0.join("k_data_000001.h5.damaged").exists());
    assert_eq!(readable(&master, &sample), all_but(&[], 10));
}

#[test]
fn damaged_columns_of_a_data_file_do_not_replace_good_ones_of_the_master() {
    type Damage = fn(&mut Vec<u64>);
    let zeros: Damage = |values| values.fill(0);
    let flips: [(&str, Damage); 6] = [
        ("status", |values| values[2] &= !1),
        ("status", zeros),
        ("chunk_crc32", |values| values[1] ^= 16),
        ("chunk_crc32", zeros),
        ("frame_number", zeros),
        ("packet_bitmap", zeros),
    ];
    for (name, damage) in flips {
        let (_scratch, sample, report) = whole("columns");
        let before = column(&report.master, name);
        set_column(&report.data_files[1], name, damage);
        assert_ne!(errors(&report.master), [], "{name}");
        let repaired = repair(&report.master).unwrap();
        assert_eq!(repaired.images_missing(), 0, "{name} {repaired:?}");
        assert!(column(&report.master, name) == before, "{name}: the columns of the master are the good ones");
        assert_eq!(errors(&report.master), [], "{name}");
        assert_eq!(readable(&report.master, &sample), all_but(&[5], 10), "{name}");
        assert!(!repair(&report.master).unwrap().master_written, "{name}");
    }
}

#[test]
fn a_chunk_is_compared_with_the_master_where_the_row_of_its_file_is_gone() {
    let (_scratch, sample, report) = whole("columns-chunk");
    let data = &report.data_files[1];
    for name in
        ["status", "chunk_crc32", "frame_number", "packets_received", "packet_bitmap", "timestamp", "bunch_id", "exposure"]
    {
        set_column(data, name, |values| values.fill(0));
    }
    let (_, offset, bytes) = chunks(&report.data_files[1..2])[2].clone();
    let mut raw = std::fs::read(data).unwrap();
    raw[offset + bytes / 2] ^= 4;
    std::fs::write(data, raw).unwrap();
    let repaired = repair(&report.master).unwrap();
    assert_eq!((repaired.rescued.len(), repaired.images_missing()), (1, 1), "{repaired:?}");
    assert_eq!(repaired.missing[0].ranges, [6..7]);
    assert_eq!(readable(&report.master, &sample), all_but(&[5, 6], 10));
}

#[test]
fn columns_of_another_run_stay_out_of_the_master() {
    let scratch = Scratch::new("foreign");
    let run = sample(&scratch.0, "f", PixelType::Int16);
    let mut other = sample(&scratch.0, "other", PixelType::Int16);
    for per_file in [4, 10] {
        let report = write_run(&run);
        (other.spec.images_per_file, other.lost, other.spec.metadata.sample_name) = (per_file, vec![], Some("insulin".into()));
        let foreign = write_run(&other);
        std::fs::copy(&foreign.data_files[0], &report.data_files[1]).unwrap();
        std::fs::remove_file(&report.master).unwrap();
        let repaired = repair(&report.master).unwrap();
        assert_eq!((repaired.images, repaired.images_missing()), (10, 4), "{per_file} {repaired:?}");
        assert!(fixes(&repaired).contains("not from this run"), "{}", fixes(&repaired));
        let file = hdf5::File::open(&report.master).unwrap();
        let times: Vec<f64> = file.dataset("/entry/instrument/detector/start_time").unwrap().read_raw().unwrap();
        assert!(times[4..8].iter().all(|time| time.is_nan()) && times[8] > 0.0, "{times:?}");
    }
}

#[test]
fn a_shorter_copy_keeps_the_places_of_the_run() {
    for layout in [Layout::Both, Layout::Virtual] {
        let scratch = Scratch::new("shorter");
        let mut run = sample(&scratch.0, "s", PixelType::Int16);
        run.spec.layout = layout;
        let (images, expected) = (run.images, run.expected);
        let mut short = Vec::new();
        for (part, n) in [(6, 1), (9, 2)] {
            (run.images, run.expected) = (part, part);
            let report = write_run(&run);
            short.push((n, std::fs::read(&report.data_files[n]).unwrap()));
        }
        (run.images, run.expected) = (images, expected);
        for (n, bytes) in short {
            let report = write_run(&run);
            let whole = std::fs::read(&report.data_files[n]).unwrap();
            std::fs::write(&report.data_files[n], bytes).unwrap();
            let (missing, at) = if n == 1 { (2, 6) } else { (1, 9) };
            for _ in 0..2 {
                let repaired = repair(&report.master).unwrap();
                assert_eq!((repaired.images, repaired.images_missing()), (10, missing), "{repaired:?}");
                assert_eq!(repaired.missing[0].ranges, [at..at + missing]);
                assert_eq!(inspect(&report.master).unwrap().images_file_missing, missing);
            }
            std::fs::write(&report.data_files[n], whole).unwrap();
            assert_eq!(repair(&report.master).unwrap().images_missing(), 0);
            assert_eq!(readable(&report.master, &run), all_but(&[5], 10));
            assert_eq!(errors(&report.master), []);
        }
    }
}

#[test]
fn what_was_lost_stays_counted_when_another_file_comes_back() {
    let scratch = Scratch::new("lost-count");
    let mut sample = sample(&scratch.0, "l", PixelType::Int16);
    (sample.spec.images_per_file, sample.images, sample.expected, sample.lost, sample.partial) = (40, 120, 120, vec![], vec![]);
    let report = write_run(&sample);
    let aside = scratch.0.join("aside");
    std::fs::remove_file(&report.master).unwrap();
    std::fs::rename(&report.data_files[1], &aside).unwrap();
    let whole = std::fs::read(&report.data_files[0]).unwrap();
    std::fs::write(&report.data_files[0], &whole[..whole.len() / 10 * 9]).unwrap();
    let first = repair(&report.master).unwrap();
    std::fs::rename(&aside, &report.data_files[1]).unwrap();
    let second = repair(&report.master).unwrap();
    assert!(first.images_missing() > 0, "{first:?}");
    // Before the repair nobody knew of images after the last one that was found in the file.
    let status = column(&report.master, "status");
    let gone = status.iter().filter(|status| **status == 0).count() as u64;
    assert_eq!((second.images, second.images_missing()), (120, gone), "{first:?} {second:?}");
    assert!(gone > 0);
}

#[test]
fn a_column_that_cannot_be_read_stops_no_repair() {
    for is_longer in [true, false] {
        let (_scratch, _, report) = whole("column-gone");
        let before = column(&report.master, "bunch_id");
        {
            let file = hdf5::File::open_rw(&report.data_files[1]).unwrap();
            let columns = file.group(COLUMNS).unwrap();
            columns.unlink("bunch_id").unwrap();
            if is_longer {
                columns.new_dataset_builder().with_data(&[7u64; 9]).create("bunch_id").unwrap();
            }
        }
        let repaired = repair(&report.master).unwrap();
        assert_eq!((repaired.images, repaired.images_missing()), (10, 0), "{repaired:?}");
        assert!(column(&report.master, "bunch_id") == before && column(&report.data_files[1], "bunch_id") == before[4..8]);
        assert_eq!(errors(&report.master), []);
    }
}

#[test]
fn checksums_that_are_gone_or_cannot_be_read_are_not_those_of_an_earlier_version() {
    for is_longer in [true, false] {
        let (_scratch, sample, report) = whole("sums-gone");
        let (data, before) = (&report.data_files[1], column(&report.master, CHECKSUM));
        without_checksums(data);
        if is_longer {
            let file = hdf5::File::open_rw(data).unwrap();
            file.group(COLUMNS).unwrap().new_dataset_builder().with_data(&[7u32; 9]).create(CHECKSUM).unwrap();
        }
        let (_, offset, bytes) = chunks(&report.data_files[1..2])[2].clone();
        let mut raw = std::fs::read(data).unwrap();
        raw[offset + bytes / 2] ^= 4;
        std::fs::write(data, raw).unwrap();
        let found: Vec<String> = errors(&report.master).into_iter().map(|finding| finding.what).collect();
        let why = if is_longer { "cannot be read: 9 of them for 4 images" } else { "are gone from the data file" };
        assert!(found.iter().any(|what| what.contains(why)), "{found:?}");
        assert!(found.iter().any(|what| what.contains("image 6: its bytes")), "the master has its checksum: {found:?}");
        let said: Vec<String> = check(&report.master, &decode).into_iter().map(|finding| finding.what).collect();
        assert!(!said.iter().any(|what| what.contains("without checksums")), "{said:?}");
        if is_longer {
            let error = Stacks::open(data).err().unwrap();
            assert!(error.kind == ErrorKind::Damaged && error.hint.contains("repair"), "{error}");
        } else {
            assert!(Stacks::open(&report.master).unwrap().has_checksums());
            let error = Stacks::open(data).unwrap().must_have_checksums().unwrap_err();
            assert!(error.kind == ErrorKind::Damaged && error.hint.contains("repair"), "{error}");
        }
        let repaired = repair(&report.master).unwrap();
        assert_eq!((repaired.rescued.len(), repaired.images_missing()), (1, 1), "{repaired:?}");
        assert_eq!(repaired.missing[0].ranges, [6..7]);
        assert_eq!(readable(&report.master, &sample), all_but(&[5, 6], 10));
        let after = column(&report.master, CHECKSUM);
        assert!((0..10).all(|image| image == 6 || after[image] == before[image]), "{before:?} {after:?}");
        assert_eq!(errors(&report.master), []);
    }
}

#[test]
fn planned_images_that_were_not_there_at_the_kill_have_no_place() {
    let scratch = Scratch::new("kill-planned");
    let (_, [master, ..]) = killed(&scratch, 10, true);
    repair(&master).unwrap();
    let counts = inspect(&master).unwrap().image_counts();
    assert!(counts.contains(&("complete", 10)) && counts.contains(&("not received", 990)), "{counts:?}");
    assert_eq!(errors(&master), []);
    let file = hdf5::File::open(&master).unwrap();
    let expected = file.dataset("/entry/konkordia/ledger/images_expected_by_plan").unwrap();
    assert_eq!(expected.read_scalar::<u64>().unwrap(), 10, "positions");
}

#[test]
fn one_column_that_is_gone_takes_no_other_with_it() {
    let (_scratch, _, report) = whole("column-alone");
    let [status, frames] = ["status", "frame_number"].map(|name| column(&report.master, name));
    std::fs::remove_file(&report.master).unwrap();
    hdf5::File::open_rw(&report.data_files[1]).unwrap().group(COLUMNS).unwrap().unlink("bunch_id").unwrap();
    assert_eq!(repair(&report.master).unwrap().images_missing(), 0);
    assert_eq!([column(&report.master, "status"), column(&report.master, "frame_number")], [status, frames]);
}

#[test]
fn a_run_of_an_earlier_version_that_is_repaired_now_is_valid() {
    let scratch = Scratch::new("old-rebuilt");
    let sample = sample(&scratch.0, "o", PixelType::Int16);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, &sample).unwrap();
    drop(writer);
    let path = |n: u32| scratch.0.join(format!("o_data_00000{n}.h5"));
    [1, 2].iter().for_each(|n| without_checksums(&path(*n)));
    let repaired = repair(&path(1)).unwrap();
    assert_eq!((repaired.images, repaired.images_missing()), (10, 0), "{repaired:?}");
    assert_eq!(errors(&scratch.0.join("o_master.h5")), []);
    assert!(!repair(&path(1)).unwrap().master_written);
}

#[test]
fn a_flipped_bit_in_the_number_of_images_makes_no_missing_files() {
    for layout in [Layout::Both, Layout::Virtual] {
        for bit in [3, 18, 40] {
            let scratch = Scratch::new("nimages");
            let mut sample = sample(&scratch.0, "n", PixelType::Int16);
            sample.spec.layout = layout;
            let report = write_run(&sample);
            {
                let file = hdf5::File::open_rw(&report.master).unwrap();
                let number = file.dataset("/entry/instrument/detector/detectorSpecific/nimages").unwrap();
                number.write_scalar(&(10u64 ^ 1 << bit)).unwrap();
            }
            let repaired = repair(&report.master).unwrap();
            assert_eq!((repaired.images, repaired.missing.len()), (10, 0), "{bit} {repaired:?}");
            assert_eq!(errors(&report.master), []);
            assert_eq!(Reader::open(&report.master).unwrap().summary().ended.as_deref(), Some(ledger(&sample).ended.as_str()));
        }
    }
}
