//! Snapshots of tracked pedestals: written, linked, kept through a kill, replaced by the next run.

mod common;
use std::path::Path;

use common::{Scratch, decode, ledger, sample, write_image, write_images};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::{ErrorKind, ExtraColumn, FileSpec, Overwrite, Reader, Scale, Severity, Snapshots, Writer};
use konkordia_sinks::hdf5::{check, inspect, pedestal_file_name, repair};

fn spec(directory: &Path) -> FileSpec {
    FileSpec { pedestal_snapshots: true, overwrite: Overwrite::Refuse, ..sample(directory, "r", PixelType::Int16).spec }
}

/// Two strips that together are an image, different in each snapshot.
fn plane(spec: &FileSpec, image: u64) -> [Vec<f32>; 2] {
    let values: Vec<f32> = (0..spec.pixels()).map(|i| 2500.0 + image as f32 + i as f32 / 7.0).collect();
    let (a, b) = values.split_at(4100);
    [a.to_vec(), b.to_vec()]
}

fn snapshot(writer: &mut Writer, image: u64) {
    let [a, b] = plane(writer.spec(), image);
    writer.write_pedestals(image, &[&a, &b]).unwrap();
}

fn errors(path: &Path) -> Vec<String> {
    check(path, &decode).into_iter().filter(|f| f.severity == Severity::Error).map(|f| f.to_string()).collect()
}

#[test]
fn snapshots_are_written_and_linked() {
    let scratch = Scratch::new("pedestals");
    let sample = sample(&scratch.0, "r", PixelType::Int16);
    let mut writer = Writer::create(spec(&scratch.0)).unwrap();
    snapshot(&mut writer, 3);
    // Readable at any time; a copy, because this process has the file open.
    let copy = scratch.0.join("copy.h5");
    std::fs::copy(scratch.0.join(pedestal_file_name("r")), &copy).unwrap();
    assert_eq!(Snapshots::read(&copy).unwrap().images, [3]);
    snapshot(&mut writer, 7);
    let spec = writer.spec().clone();
    let whole = vec![0.0; spec.pixels()];
    for (image, parts, why) in [(9, &whole[1..], "pedestals for"), (7, &whole[..], "after image 7")] {
        let refused = writer.write_pedestals(image, &[parts]).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.cause.contains(why), "{refused}");
    }
    write_images(&mut writer, &sample).unwrap();
    let report = writer.finish(&ledger(&sample)).unwrap();
    assert_eq!(report.pedestal_snapshots, 2);
    assert!(errors(&report.master).is_empty(), "{:?}", errors(&report.master));
    let found = inspect(&report.master).unwrap().pedestals.unwrap();
    assert_eq!(found.images, [3, 7]);
    assert!(found.plane(1).unwrap() == plane(&spec, 7).concat());
    assert_eq!(found.plane(2).unwrap_err().kind, ErrorKind::Invalid);
    let linked = hdf5::File::open(&report.master).unwrap().dataset("/entry/konkordia/pedestals/pedestal_g0_adu").unwrap();
    assert_eq!((linked.shape(), linked.chunk()), (vec![2, 64, 200], Some(vec![1, 64, 200])));
    assert!(linked.read_raw::<f32>().unwrap()[..spec.pixels()] == plane(&spec, 3).concat());
    drop(linked);
    assert!(!repair(&report.master).unwrap().master_written);
    // The snapshot file is gone, but still linked.
    std::fs::remove_file(&found.path).unwrap();
    assert!(errors(&report.master)[0].contains("snapshots of the pedestals cannot be read"));
    let repaired = repair(&report.master).unwrap();
    assert!(repaired.master_written && repaired.notes[0].contains("is not linked"), "{repaired:?}");
    assert_eq!(errors(&report.master), Vec::<String>::new());
    assert!(!repair(&report.master).unwrap().master_written);
}

#[test]
fn snapshots_of_an_interrupted_run_are_kept_by_repair_and_replaced_by_resume() {
    let scratch = Scratch::new("pedestals-killed");
    let planned = || FileSpec { images_planned: Some(10), ..spec(&scratch.0) };
    let sample = sample(&scratch.0, "r", PixelType::Int16);
    let mut writer = Writer::create(planned()).unwrap();
    for image in 0..6 {
        write_image(&mut writer, image, false).unwrap();
    }
    snapshot(&mut writer, 5);
    // The writer's destructor does not run; the library still has the file open, so examine a copy, as after a kill.
    std::mem::forget(writer);
    let copy = scratch.0.join("copy");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&scratch.0).unwrap().map(Result::unwrap).filter(|e| e.path().is_file()) {
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let master = copy.join("r_master.h5");
    repair(&master).unwrap();
    let summary = inspect(&master).unwrap();
    assert_eq!((summary.images, summary.pedestals.unwrap().images), (6, vec![5]));
    assert_eq!(errors(&master), Vec::<String>::new());
    let (mut writer, first) = Writer::resume(FileSpec { directory: copy.clone(), ..planned() }).unwrap();
    assert_eq!(first, 4);
    for image in first..10 {
        write_image(&mut writer, image, false).unwrap();
    }
    snapshot(&mut writer, 7);
    writer.finish(&ledger(&sample)).unwrap();
    assert_eq!(Snapshots::read(&copy.join(pedestal_file_name("r"))).unwrap().images, [7]);
    assert_eq!(errors(&master), Vec::<String>::new());
    // The run is complete: nothing is started again.
    let (mut writer, first) = Writer::resume(FileSpec { directory: copy.clone(), ..planned() }).unwrap();
    assert_eq!(first, 10);
    assert!(writer.write_pedestals(11, &[]).unwrap_err().cause.contains("complete"));
    writer.finish(&ledger(&sample)).unwrap();
    assert_eq!(inspect(&master).unwrap().pedestals.unwrap().images, [7]);
}

#[test]
fn older_snapshots_are_refused_or_replaced() {
    let scratch = Scratch::new("pedestals-older");
    let path = scratch.0.join(pedestal_file_name("r"));
    drop(Writer::create(spec(&scratch.0)).unwrap());
    for entry in std::fs::read_dir(&scratch.0).unwrap().map(Result::unwrap).filter(|e| e.path() != path) {
        std::fs::remove_file(entry.path()).unwrap();
    }
    let error = Writer::create(spec(&scratch.0)).map(|_| ()).unwrap_err();
    assert_eq!((error.kind, &error.path), (ErrorKind::Exists, &path));
    let without = FileSpec { pedestal_snapshots: false, overwrite: Overwrite::Replace, ..spec(&scratch.0) };
    let mut writer = Writer::create(without).unwrap();
    assert!(!path.exists(), "a snapshot of another run would be taken for one of this");
    assert_eq!(writer.write_pedestals(1, &[]).unwrap_err().kind, ErrorKind::Invalid);
}

fn number(file: &hdf5::File, path: &str) -> Option<f64> {
    file.dataset(path).ok()?.read_scalar::<f64>().ok()
}

#[test]
fn scale_and_limits_are_written_where_readers_look() {
    let scratch = Scratch::new("scale");
    for (scale, limits) in
        [(None, (None, None)), (Some((1.0, 0.0)), (Some(0.0), None)), (Some((0.125, 40.0)), (None, Some(12_000.0)))]
    {
        let mut sample = sample(&scratch.0, "r", PixelType::Int16);
        sample.spec.scale = scale.map(|(step, offset)| Scale { step, offset });
        (sample.spec.underload, sample.spec.saturation) = limits;
        let mut writer = Writer::create(sample.spec.clone()).unwrap();
        write_images(&mut writer, &sample).unwrap();
        let master = writer.finish(&ledger(&sample)).unwrap().master;
        let file = hdf5::File::open(&master).unwrap();
        let written = scale.filter(|s| *s != (1.0, 0.0));
        for (name, value) in [
            ("data_scaling_factor", written.map(|s| s.0)),
            ("data_scale_factor", written.map(|s| s.0)),
            ("data_offset", written.map(|s| -s.1)),
        ] {
            assert_eq!(number(&file, &format!("/entry/data/{name}")), value, "{name}");
        }
        let detector = |name| number(&file, &format!("/entry/instrument/detector/{name}"));
        assert_eq!(detector("underload_value"), limits.0.or(Some(-32765.0)));
        assert_eq!(detector("saturation_value"), limits.1.or(Some(32766.0)));
        drop(file);
        assert_eq!(errors(&master), Vec::<String>::new());
        let spec = Reader::open(&master).unwrap().summary().spec.clone().unwrap();
        assert_eq!((spec.scale, spec.underload, spec.saturation), (sample.spec.scale, limits.0, limits.1));
    }
}

#[test]
fn columns_of_a_run_with_sums_are_checked() {
    let scratch = Scratch::new("sums");
    let mut sample = sample(&scratch.0, "r", PixelType::Int16);
    sample.spec.extra_columns = ["first_frame", "frames", "frames_complete"].map(ExtraColumn::count).to_vec();
    let all = 0xFFu64;
    let chunk = common::bslz4(&common::pixels(&sample.spec, 0, false), 2);
    for complete in [4, 5] {
        let mut writer = Writer::create(sample.spec.clone()).unwrap();
        for index in 0..10 {
            let record = konkordia_sinks::hdf5::ImageRecord {
                index,
                frame_number: 1 + 4 * index,
                status: konkordia_sinks::hdf5::ImageStatus::Complete,
                parts: &[&chunk],
                packets_received: &[8, 8],
                packet_bitmap: &[all, all],
                frame_values: &[0; 4],
                extra: &[4 * index, 4, complete],
            };
            writer.write(&record).unwrap();
        }
        let master = writer.finish(&ledger(&sample)).unwrap().master;
        let reader = Reader::open(&master).unwrap();
        assert_eq!(reader.column("first_frame").unwrap()[9], 36);
        assert_eq!(errors(&master).iter().any(|e| e.contains("image 0: 5 of 4 frames complete")), complete == 5);
        let (_, data) = (drop(reader), scratch.0.join("r_data_000002.h5"));
        let described = hdf5::File::open(&data).unwrap().dataset("/entry/konkordia/images/frames").unwrap();
        let text = described.attr("description").unwrap().read_scalar::<hdf5::types::FixedAscii<256>>().unwrap();
        assert_eq!(text.as_str(), "frames that were added");
    }
}
