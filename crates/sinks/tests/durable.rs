//! Files are brought to the disk while they are written: how far that is, what the end waits for, and what a repair
//! makes of files that a power cut emptied. tests/e2e/test_power_cut.py cuts the power of a whole service.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Scratch, decode, ledger, sample, write_image, write_images};
use konkordia_core::latency::{LatencyMeter, Meter, Stage, StageLatency};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::durable::{DiskSync, ToDisk};
use konkordia_sinks::hdf5::{Compression, Overwrite, Reader, Severity, Writer, check, data_file_name, repair};

const LONG: Duration = Duration::from_secs(60);

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn journals(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = names.filter(|name| name.ends_with(".journal")).collect();
    found.sort();
    found
}

#[test]
fn what_is_written_is_on_the_disk_soon_and_journals_go_when_their_data_are() {
    let scratch = Scratch::new("durable");
    let mut sample = sample(&scratch.0, "d", PixelType::Int16);
    sample.spec.images_per_file = 4;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    assert!(writer.durable().is_none(), "nobody has asked for it");
    writer.set_to_disk(ToDisk::Beside(Some(Duration::from_millis(20)))).unwrap();
    let durable = writer.durable().unwrap();
    for image in [0, 1, 2, 3, 4, 5, 9] {
        write_image(&mut writer, image, false).unwrap();
    }
    // Without a tick or a further image: the thread syncs by itself, also the growing file.
    wait_until("all is on the disk", || durable.end() == 10);
    wait_until("closed files have no journal", || journals(&scratch.0) == ["d_data_000003.h5.journal"]);
    writer.tick(0).unwrap();
    let mut record = ledger(&sample);
    record.images_expected = 10;
    writer.finish(&record).unwrap();
    assert_eq!((durable.end(), journals(&scratch.0)), (10, vec![]));
}

/// Keeps what is counted: stage and number of images.
#[derive(Debug, Default)]
struct Counts(Mutex<Vec<(Stage, u64)>>);

impl Counts {
    fn images(&self, stage: Stage) -> u64 {
        self.0.lock().unwrap().iter().filter(|counted| counted.0 == stage).map(|counted| counted.1).sum()
    }
}

impl LatencyMeter for Counts {
    fn reached(&self, stage: Stage, _: u64, images: u64) {
        self.0.lock().unwrap().push((stage, images));
    }

    fn read(&self) -> Vec<StageLatency> {
        let row = |stage| {
            let images = self.images(stage);
            (images > 0).then_some(StageLatency { stage, images, p50_ns: 1500, p99_ns: 2000, p999_ns: 3000, max_ns: 4000 })
        };
        Stage::ALL.into_iter().filter_map(row).collect()
    }
}

#[test]
fn images_are_counted_when_they_are_written_and_when_they_are_on_the_disk() {
    let scratch = Scratch::new("durable-latency");
    let mut sample = sample(&scratch.0, "d", PixelType::Int16);
    sample.spec.images_per_file = 4;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    writer.set_to_disk(ToDisk::Beside(Some(Duration::from_millis(20)))).unwrap();
    let counts = Arc::new(Counts::default());
    writer.set_meter(Meter::new(counts.clone()));
    for image in 0..10 {
        write_image(&mut writer, image, false).unwrap();
        // Three were received at about the same time each; of the last one the time is not known.
        writer.count_latency(if image == 9 { 0 } else { 1 + image / 3 * 5_000_000 });
    }
    wait_until("all are counted", || counts.images(Stage::Durable) == 9);
    let mut record = ledger(&sample);
    record.images_expected = 10;
    let master = writer.finish(&record).unwrap().master;
    let file = hdf5::File::open(master).unwrap();
    let own = file.group("/entry/konkordia/latency").unwrap();
    assert_eq!(own.dataset("images").unwrap().read_raw::<u64>().unwrap(), [9, 9], "written and durable");
    assert_eq!(own.dataset("p999_us").unwrap().read_raw::<f64>().unwrap(), [3.0, 3.0]);
}

#[test]
fn without_an_interval_closed_files_count() {
    let scratch = Scratch::new("durable-closed");
    let mut sample = sample(&scratch.0, "d", PixelType::Int16);
    sample.spec.images_per_file = 3;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    writer.set_to_disk(ToDisk::Beside(None)).unwrap();
    let durable = writer.durable().unwrap();
    write_images(&mut writer, &sample).unwrap();
    let closed = (sample.images - 1) / 3 * 3;
    wait_until("closed files are on the disk", || durable.end() >= closed);
    writer.finish(&ledger(&sample)).unwrap();
    assert!(durable.end() >= sample.images && journals(&scratch.0).is_empty());
}

#[test]
fn nothing_counts_after_a_file_that_cannot_be_synced_and_no_journal_goes() {
    let scratch = Scratch::new("durable-failed");
    let path = |name: &str| scratch.0.join(name);
    let disk = DiskSync::start(&scratch.0, Some(Duration::from_millis(10))).unwrap();
    std::fs::write(path("data"), "data").unwrap();
    std::fs::write(path("journal"), "journal").unwrap();
    let open = |path: PathBuf| (path.clone(), Arc::new(std::fs::File::open(path).unwrap()));
    disk.opened(1, vec![open(path("data"))]);
    disk.written(7);
    let durable = disk.durable();
    wait_until("the file is on the disk", || durable.end() == 7);
    // The kernel can sync files, but not a pipe.
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe: std::os::fd::OwnedFd = reader.into();
    disk.opened(2, vec![(path("pipe"), Arc::new(pipe.into()))]);
    wait_until("it fails", || disk.failure().is_some());
    assert_eq!(disk.failure().unwrap().path(), path("pipe"));
    disk.forget(2);
    disk.written(9);
    disk.closed(1, vec![path("data")], 9, Some(path("journal")));
    assert!(disk.finish().is_err());
    assert_eq!(durable.end(), 7);
    assert!(path("journal").exists(), "only repair knows what became of its data");
}

/// A run of ten images in files of four, as a power cut leaves its last data file and journal.
fn cut(scratch: &Scratch, data: Option<&[u8]>, journal: &[u8]) -> PathBuf {
    let mut sample = sample(&scratch.0, "c", PixelType::Int16);
    sample.spec.images_per_file = 4;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    (0..10).for_each(|image| write_image(&mut writer, image, false).unwrap());
    let mut record = ledger(&sample);
    record.images_expected = 10;
    let master = writer.finish(&record).unwrap().master;
    // The master of the moment of the cut is gone: repair has to do without it.
    std::fs::remove_file(&master).unwrap();
    let last = scratch.0.join(data_file_name("c", 3));
    match data {
        Some(bytes) => std::fs::write(&last, bytes).unwrap(),
        None => std::fs::remove_file(&last).unwrap(),
    }
    std::fs::write(scratch.0.join(data_file_name("c", 3) + ".journal"), journal).unwrap();
    master
}

#[test]
fn empty_files_after_a_power_cut_are_missing_images_and_not_nothing() {
    let zeros = vec![0; 300];
    for (n, (data, journal)) in [(Some(&b""[..]), &b""[..]), (None, b""), (Some(b""), &zeros)].into_iter().enumerate() {
        let scratch = Scratch::new(&format!("cut-{n}"));
        let master = cut(&scratch, data, journal);
        for _ in 0..2 {
            let report = repair(&master).unwrap();
            assert_eq!(report.images, 8, "{n}: {report:?}");
            let named = |missing: &konkordia_sinks::hdf5::MissingImages| missing.why.contains(&data_file_name("c", 3));
            assert!(report.missing.len() == 1 && report.missing.iter().all(named), "{n}: {report:?}");
        }
        let findings = check(&master, &decode);
        assert!(findings.iter().any(|finding| finding.severity == Severity::Error), "{n}: {findings:?}");
        assert_eq!(Reader::open(&master).unwrap().summary().images, 8);
    }
}

#[test]
fn a_file_without_images_whose_journal_was_cut_is_missing_images_each_time() {
    let scratch = Scratch::new("cut-both");
    let mut sample = sample(&scratch.0, "c", PixelType::Int16);
    (sample.spec.images_per_file, sample.spec.compression) = (4, Compression::None);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    (0..5).for_each(|image| write_image(&mut writer, image, false).unwrap());
    let last = scratch.0.join(data_file_name("c", 2));
    let begun = std::fs::read(&last).unwrap();
    drop(writer);
    // As it was created, before its first image.
    std::fs::write(&last, &begun[..begun.len() - sample.spec.image_bytes()]).unwrap();
    for journal in [&b""[..], &[0; 300]] {
        std::fs::write(scratch.0.join(data_file_name("c", 2) + ".journal"), journal).unwrap();
        for _ in 0..2 {
            let report = repair(&scratch.0.join("c_master.h5")).unwrap();
            let why: Vec<&str> = report.missing.iter().map(|missing| missing.why.as_str()).collect();
            assert!(why.len() == 1 && why[0].contains("power cut") && last.exists(), "{report:?}");
            assert_eq!((report.images, report.notes.len()), (4, 0), "{report:?}");
        }
        assert!(!repair(&scratch.0.join("c_master.h5")).unwrap().master_written);
    }
}

#[test]
fn an_empty_file_whose_journal_is_whole_has_its_images_named() {
    let scratch = Scratch::new("cut-journal");
    let mut sample = sample(&scratch.0, "c", PixelType::Int16);
    sample.spec.images_per_file = 4;
    (sample.spec.overwrite, sample.spec.compression) = (Overwrite::Replace, Compression::None);
    let last = scratch.0.join(data_file_name("c", 2));
    // The data file is empty, or as it was before its first image.
    for is_empty in [true, false] {
        let mut writer = Writer::create(sample.spec.clone()).unwrap();
        (0..4).for_each(|image| write_image(&mut writer, image, false).unwrap());
        // Its file is created with the first image; nothing of that image is flushed yet.
        write_image(&mut writer, 4, false).unwrap();
        let begun = std::fs::read(&last).unwrap();
        (5..7).for_each(|image| write_image(&mut writer, image, false).unwrap());
        drop(writer);
        // Without the chunk at its end; what libhdf5 flushed when it created the file lies before that.
        let made = &begun[..begun.len() - sample.spec.image_bytes()];
        std::fs::write(&last, if is_empty { &[] } else { made }).unwrap();
        let master = scratch.0.join("c_master.h5");
        for n in 0..2 {
            let report = repair(&master).unwrap();
            assert_eq!(
                (report.images_missing(), report.missing[0].ranges.as_slice()),
                (3, std::slice::from_ref(&(4..7))),
                "{is_empty}: {report:?}"
            );
            assert_eq!(report.master_written, n == 0, "{is_empty}: {report:?}");
        }
        let findings = check(&master, &decode);
        assert!(findings.iter().any(|finding| finding.severity == Severity::Error), "{findings:?}");
    }
}

#[test]
fn a_master_that_cannot_be_completed_is_an_error_and_repair_makes_it() {
    let scratch = Scratch::new("no-master");
    let mut sample = sample(&scratch.0, "m", PixelType::Int16);
    sample.spec.images_per_file = 2;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    (0..4).for_each(|image| write_image(&mut writer, image, false).unwrap());
    let (first, whole) = (scratch.0.join(data_file_name("m", 1)), scratch.0.join("whole"));
    std::fs::copy(&first, &whole).unwrap();
    // As when no descriptor is free: the file exists, but cannot be opened.
    std::fs::write(&first, "no HDF5").unwrap();
    let mut record = ledger(&sample);
    record.images_expected = 4;
    let error = writer.finish(&record).unwrap_err();
    assert!(error.hint.contains("`konkordia repair") && error.hint.contains("m_master.h5"), "{error}");
    std::fs::rename(&whole, &first).unwrap();
    let master = scratch.0.join("m_master.h5");
    let report = repair(&master).unwrap();
    assert!(report.master_written && report.missing.is_empty(), "{report:?}");
    assert_eq!(Reader::open(&master).unwrap().summary().images_by_status, [0, 4, 0, 0, 0]);
}

#[test]
fn a_run_that_another_start_of_the_machine_finds_may_lack_its_last_images() {
    let scratch = Scratch::new("boot");
    let mut sample = sample(&scratch.0, "b", PixelType::Int16);
    sample.spec.images_per_file = 4;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    (0..6).for_each(|image| write_image(&mut writer, image, false).unwrap());
    drop(writer);
    let master = scratch.0.join("b_master.h5");
    let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut bytes = std::fs::read(&master).unwrap();
    let at = bytes.windows(36).position(|window| window == own.trim().as_bytes()).expect("a running master names it");
    bytes[at..at + 36].copy_from_slice(b"00000000-0000-4000-8000-000000000000");
    std::fs::write(&master, bytes).unwrap();
    let report = repair(&master).unwrap();
    assert_eq!((report.images, report.missing.len(), report.images_missing()), (6, 1, 0), "{report:?}");
    assert!(report.missing[0].why.contains("power cut"), "{report:?}");
    assert_eq!(repair(&master).unwrap().missing, [], "it is said once: the file is what there is");
}

#[test]
fn what_is_on_the_disk_of_a_spool_does_not_count_although_its_journals_go() {
    let scratch = Scratch::new("in-spool");
    let mut sample = sample(&scratch.0, "d", PixelType::Int16);
    sample.spec.images_per_file = 4;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    writer.set_to_disk(ToDisk::InSpool(Some(Duration::from_millis(20)))).unwrap();
    assert!(writer.durable().is_none());
    for image in 0..6 {
        write_image(&mut writer, image, false).unwrap();
    }
    wait_until("the closed file has no journal", || journals(&scratch.0) == ["d_data_000002.h5.journal"]);
    // Somebody moves the first data file, and leaves a link to it.
    let (first, moved) = (scratch.0.join("d_data_000001.h5"), scratch.0.join("moved.h5"));
    std::fs::rename(&first, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &first).unwrap();
    let mut record = ledger(&sample);
    record.images_expected = 6;
    let report = writer.finish(&record).unwrap();
    let images = konkordia_sinks::hdf5::inspect(&report.master).unwrap().images;
    assert_eq!((report.images, images, journals(&scratch.0)), (6, 6, vec![]));
}
