//! A full disk and a read-only one, on small file systems made for the tests. These need the right to mount (root, or a
//! user namespace); without it the tests count as skipped.

mod common;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::path::Path;
use std::process::Command;

use common::{Scratch, decode, ledger, pixels, sample, write_image};
use konkordia_core::ledger::ImageLedger;
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::{Compression, ErrorKind, Reader, Severity, Writer, check, repair};

struct Mounted(Scratch);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.0).output();
    }
}

fn mount(name: &str, size: &str) -> Option<Mounted> {
    let scratch = Scratch::new(name);
    let done = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&scratch.0).output();
    if done.is_ok_and(|output| output.status.success()) {
        return Some(Mounted(scratch));
    }
    skip::skipped("mounting a small tmpfs is not permitted here (run as root)");
    None
}

fn errors(path: &Path) -> Vec<String> {
    check(path, &decode).iter().filter(|f| f.severity == Severity::Error).map(ToString::to_string).collect()
}

#[test]
fn a_full_disk_ends_the_run_with_everything_before_intact() {
    for (compression, per_file) in [(Compression::BSLZ4, 1000), (Compression::None, 7), (Compression::BSLZ4, 1)] {
        let Some(disk) = mount("full", "3m") else { return };
        let mut sample = sample(&disk.0.0, "full", PixelType::Uint32);
        (sample.spec.compression, sample.spec.images_per_file) = (compression, per_file);
        let mut writer = Writer::create(sample.spec.clone()).unwrap();
        let mut written = 0;
        let error = loop {
            match write_image(&mut writer, written, false).and_then(|()| writer.tick(written * 200_000_000)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "the disk is full some time");
        };
        assert_eq!(error.kind, ErrorKind::DiskFull, "{error}");
        assert!(error.to_string().contains("free some space"), "{error}");
        assert!(written > 5);
        assert_eq!(write_image(&mut writer, written, false).unwrap_err().kind, ErrorKind::DiskFull);
        let mut record = ledger(&sample);
        (record.ended, record.images_expected) = ("disk full".into(), 100_000);
        let report = writer.finish(&record).unwrap();
        assert!((written..=written + 1).contains(&report.images), "{compression:?} {per_file}");
        assert_eq!(report.images_with_pixels, written);
        let reader = Reader::open(&report.master).unwrap();
        let problems = reader.summary().data_files.iter().filter_map(|file| file.problem.as_ref());
        assert_eq!(problems.collect::<Vec<_>>(), Vec::<&String>::new(), "{report:?}");
        for image in 0..written {
            assert_eq!(reader.read_image(image, &decode).unwrap(), pixels(&sample.spec, image, false), "image {image}");
        }
        assert_eq!(errors(&report.master), Vec::<String>::new());
        assert_eq!(reader.summary().images_by_status, [report.images - written, written, 0, 0, 0]);
        assert!(!repair(&report.master).unwrap().master_written);
    }
}

#[test]
fn a_disk_too_small_is_refused_before_the_run() {
    let Some(disk) = mount("small", "256k") else { return };
    let error = Writer::create(sample(&disk.0.0, "s", PixelType::Int16).spec).err().unwrap();
    assert_eq!(error.kind, ErrorKind::DiskFull);
    assert_eq!(std::fs::read_dir(&disk.0.0).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_read_only_disk_is_refused_before_the_run() {
    let Some(disk) = mount("readonly", "4m") else { return };
    let done = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0.0).output().unwrap();
    assert!(done.status.success());
    let error = Writer::create(sample(&disk.0.0, "r", PixelType::Int16).spec).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotWritable, "{error}");
    assert!(error.to_string().contains("read-write"), "{error}");
}

#[test]
fn a_directory_that_goes_away_is_an_error_and_not_a_panic() {
    let scratch = Scratch::new("gone");
    let directory = scratch.0.join("data");
    std::fs::create_dir(&directory).unwrap();
    let mut sample = sample(&directory, "g", PixelType::Int16);
    sample.spec.images_per_file = 2;
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_image(&mut writer, 0, false).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let error = (1..10).find_map(|image| write_image(&mut writer, image, false).err()).unwrap();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    assert!(writer.finish(&ledger(&sample)).is_err());
}

#[test]
fn a_full_disk_ends_a_series_with_everything_before_intact() {
    use common::series::{Kind, file_sink, start};
    use konkordia_core::array::{Element, Packing};
    use konkordia_core::ports::Sink;
    use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger};
    use konkordia_sinks::durable::ToDisk;
    use konkordia_sinks::hdf5::{AppendSpec, FileSink};
    use std::sync::Arc;

    let kind = Kind { element: Element::Uint16, shape: vec![64, 96], channels: 3, pieces: 2, packing: Packing::None };
    for is_master in [true, false] {
        let Some(disk) = mount("full-series", "6m") else { return };
        let path = disk.0.0.join("append.h5");
        let spec = AppendSpec { path: path.clone(), dataset: "/entry/d/data".into(), to_disk: ToDisk::Never };
        let mut file = file_sink(&disk.0.0, "full", 20);
        let mut append = FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into()))));
        let shared = if is_master { file.shared() } else { append.shared() };
        let sink: &mut dyn Sink = if is_master { &mut file } else { &mut append };
        sink.start(&Arc::new(start())).unwrap();
        let mut written = 0;
        let error = loop {
            match sink.image(&kind.image(written)).and_then(|()| sink.tick(written * 200_000_000)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "the disk is full some time");
        };
        assert!(error.fix.contains("free some space"), "{error}");
        assert!(shared.names().last_error.unwrap().contains("bytes are free"));
        // Further images are not taken, and the end closes what is there.
        sink.image(&kind.image(written)).unwrap();
        // Two images that came are not in the file.
        let came = written + 2;
        let account = ImageLedger { expected: came, complete: came, ..ImageLedger::default() };
        let ledger = SeriesLedger { images: account, ..SeriesLedger::default() };
        sink.end(&Arc::new(SeriesEnd { ended: Ended::Failed, reason: "disk full".into(), ledger })).unwrap();
        assert!(written > 5);
        if is_master {
            let master = disk.0.0.join("full_master.h5");
            assert_eq!(errors(&master), Vec::<String>::new());
            let reader = Reader::open(&master).unwrap();
            assert_eq!(reader.summary().images_by_status[1], written);
            assert_eq!((reader.summary().total("images_written"), reader.summary().total("images_unwritten")), (written, 2));
            assert!(reader.summary().image_counts().contains(&("not written", 2)));
            (0..written).for_each(|n| assert_eq!(reader.read_image(n, &decode).unwrap(), kind.raw(n), "image {n}"));
        } else {
            let file = hdf5::File::open(&path).unwrap();
            assert_eq!(file.dataset("/entry/d/data").unwrap().shape()[0] as u64, written);
            assert_eq!(shared.images(), written);
        }
    }
}
