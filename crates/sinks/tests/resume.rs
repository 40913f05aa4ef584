//! A run that was interrupted anywhere and continued holds what a run without interruption holds: same data sets,
//! attributes and chunks.

mod common;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Sample, Scratch, decode, ledger, sample, write_image, write_images};
use hdf5::types::{FixedAscii, TypeDescriptor};
use hdf5::{Dataset, Group, Location};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::{Compression, Error, ErrorKind, FileSpec, Metadata, Overwrite, Reader, Severity, Writer};
use konkordia_sinks::hdf5::{check, data_file_name, repair};

const CHILD: &str = "KONKORDIA_RESUME_CHILD";
/// When the child dies: after this many images, or after the end.
const AFTER_FINISH: u64 = 99;

fn planned(directory: &Path) -> Sample {
    let mut sample = sample(directory, "r", PixelType::Int16);
    sample.spec.images_planned = Some(sample.images);
    sample.spec.overwrite = Overwrite::Refuse;
    sample
}

/// Writes the images `from..` until `images` have been given, flushing now and then.
fn write_from(writer: &mut Writer, sample: &Sample, from: u64, end: u64) -> Result<(), Error> {
    for image in (from..end.min(sample.images)).filter(|image| !sample.lost.contains(image)) {
        write_image(writer, image, sample.partial.contains(&image))?;
        writer.tick(image * 150_000_000)?;
    }
    Ok(())
}

/// Not a test: the process that dies, this same program with "directory images" in a variable.
#[test]
fn child_that_dies() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (directory, images) = task.rsplit_once(' ').unwrap();
    let images: u64 = images.parse().unwrap();
    let sample = planned(Path::new(directory));
    let (mut writer, first) = Writer::resume(sample.spec.clone()).unwrap();
    write_from(&mut writer, &sample, first, images).unwrap();
    if images == AFTER_FINISH {
        writer.finish(&ledger(&sample)).unwrap();
    }
    // No destructor and no exit handler runs.
    std::process::abort();
}

fn die_after(directory: &Path, images: u64) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_dies", "--nocapture"])
        .env(CHILD, format!("{} {images}", directory.display()))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "the child did its task and then aborted");
}

fn uninterrupted(scratch: &Scratch) -> PathBuf {
    let directory = scratch.0.join("whole");
    std::fs::create_dir(&directory).unwrap();
    let sample = planned(&directory);
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, &sample).unwrap();
    writer.finish(&ledger(&sample)).unwrap();
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn values(dataset: &Dataset) -> String {
    let kind = dataset.dtype().unwrap().to_descriptor().unwrap();
    match kind {
        TypeDescriptor::Unsigned(_) => format!("{:?}", dataset.read_raw::<u64>().unwrap()),
        TypeDescriptor::Integer(_) => format!("{:?}", dataset.read_raw::<i64>().unwrap()),
        TypeDescriptor::Float(_) => format!("{:?}", dataset.read_raw::<f64>().unwrap()),
        TypeDescriptor::FixedAscii(_) => format!("{:?}", dataset.read_raw::<FixedAscii<8192>>().unwrap()),
        other => panic!("{}: a type that this test does not compare: {other}", dataset.name()),
    }
}

fn attributes(location: &Location) -> String {
    let mut names = location.attr_names().unwrap();
    // A data file that was rebuilt names the journal from which it was made.
    names.retain(|name| name != "rebuilt_from_journal_crc32");
    names.sort();
    let value = |name: &String| {
        let attribute = location.attr(name).unwrap();
        match attribute.dtype().unwrap().to_descriptor().unwrap() {
            TypeDescriptor::FixedAscii(_) => format!("{:?}", attribute.read_raw::<FixedAscii<256>>().unwrap()),
            TypeDescriptor::Unsigned(_) => format!("{:?}", attribute.read_raw::<u64>().unwrap()),
            _ => format!("{:?}", attribute.read_raw::<f64>().unwrap()),
        }
    };
    names.iter().map(|name| format!("{name}={} ", value(name))).collect()
}

/// Everything in a group, one line per data set. The image stacks hold compressed chunks: only their type, shape and
/// filters are listed.
fn listing(group: &Group, out: &mut Vec<String>) {
    out.push(format!("{} {}", group.name(), attributes(group)));
    let mut names = group.member_names().unwrap();
    names.sort();
    for name in names {
        let path = format!("{}/{name}", group.name());
        if let Ok(inner) = group.group(&name) {
            listing(&inner, out);
            continue;
        }
        let dataset = group.dataset(&name).unwrap();
        let kind = dataset.dtype().unwrap().to_descriptor().unwrap();
        let head = format!("{path} {kind} {:?} {:?} {:?}", dataset.shape(), dataset.chunk(), dataset.filters());
        let is_stack = dataset.shape().len() == 3 && path.starts_with("/entry/data");
        let content = if is_stack { String::new() } else { values(&dataset) };
        out.push(format!("{head} {}{content}", attributes(&dataset)));
    }
}

fn assert_same(got: &Path, expected: &Path) {
    assert_eq!(names(got), names(expected));
    for name in names(got) {
        let content = |directory: &Path| {
            let mut lines = Vec::new();
            listing(&hdf5::File::open(directory.join(&name)).unwrap(), &mut lines);
            lines
        };
        let (a, b) = (content(got), content(expected));
        assert!(a.len() == b.len() && a.len() > 5, "{name}: {} and {} objects", a.len(), b.len());
        a.iter().zip(&b).for_each(|(a, b)| assert_eq!(a, b, "{name}"));
        let (got, expected) = (Reader::open(&got.join(&name)).unwrap(), Reader::open(&expected.join(&name)).unwrap());
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for image in 0..expected.summary().images {
            let found = [got.read_chunk(image, &mut a).unwrap(), expected.read_chunk(image, &mut b).unwrap()];
            assert!(found[0] == found[1] && (a == b || !found[0]), "{name}: chunk of image {image}");
        }
    }
}

#[test]
fn a_run_killed_anywhere_and_continued_equals_one_without_interruption() {
    let scratch = Scratch::new("resume");
    let whole = uninterrupted(&scratch);
    let images = planned(&whole).images;
    for dies_after in (0..=images).chain([AFTER_FINISH]) {
        let directory = scratch.0.join(format!("r{dies_after}"));
        std::fs::create_dir(&directory).unwrap();
        let sample = planned(&directory);
        die_after(&directory, dies_after);
        if dies_after % 3 == 2 {
            // Killed a second time, in the middle of the rest; and repaired before that.
            repair(&directory.join("r_master.h5")).unwrap();
            die_after(&directory, dies_after + 2);
        }
        let (mut writer, first) = Writer::resume(sample.spec.clone()).unwrap();
        let given = if dies_after % 3 == 2 { dies_after + 2 } else { dies_after };
        let expected = if dies_after == AFTER_FINISH { images } else { given.min(images).saturating_sub(1) / 4 * 4 };
        assert_eq!(first, expected, "after {dies_after} images");
        write_from(&mut writer, &sample, first, images).unwrap();
        let report = writer.finish(&ledger(&sample)).unwrap();
        assert_eq!((report.images, report.images_with_pixels), (10, 9));
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        let reader = Reader::open(&report.master).unwrap();
        for image in (0..images).filter(|image| !sample.lost.contains(image)) {
            assert!(reader.read_chunk(image, &mut chunk).unwrap());
            bytes += chunk.len() as u64;
        }
        assert_eq!(report.chunk_bytes, bytes, "as one run counts them");
        drop(reader);
        assert_same(&directory, &whole);
        assert!(check(&report.master, &decode).iter().all(|finding| finding.severity != Severity::Error));
    }
}

#[test]
fn a_complete_run_takes_no_image_and_can_be_finished_again() {
    let scratch = Scratch::new("resume-complete");
    let directory = uninterrupted(&scratch);
    let sample = planned(&directory);
    let (mut writer, first) = Writer::resume(sample.spec.clone()).unwrap();
    assert_eq!(first, sample.images);
    let refused = write_image(&mut writer, first, false).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(refused.cause.contains("complete"), "{refused}");
    assert_eq!(writer.finish(&ledger(&sample)).unwrap().images, sample.images);
}

fn bytes(directory: &Path) -> Vec<Vec<u8>> {
    names(directory).iter().map(|name| std::fs::read(directory.join(name)).unwrap()).collect()
}

#[test]
fn another_run_is_refused_and_left_alone() {
    let scratch = Scratch::new("resume-other");
    for dies_after in [2, 6] {
        let directory = scratch.0.join(format!("d{dies_after}"));
        std::fs::create_dir(&directory).unwrap();
        die_after(&directory, dies_after);
        let before = bytes(&directory);
        let spec = planned(&directory).spec;
        let mut other_mask = spec.pixel_mask.clone();
        other_mask[9] ^= 1;
        let changed: Vec<(&str, FileSpec)> = vec![
            ("images_per_file", FileSpec { images_per_file: 5, ..spec.clone() }),
            ("compression", FileSpec { compression: Compression::None, ..spec.clone() }),
            ("configuration", FileSpec { configuration: "other".into(), ..spec.clone() }),
            ("energy_kev", FileSpec { metadata: Metadata { energy_kev: Some(8.0), ..spec.metadata.clone() }, ..spec.clone() }),
            ("images_planned", FileSpec { images_planned: Some(11), ..spec.clone() }),
            ("pixel mask", FileSpec { pixel_mask: other_mask, ..spec.clone() }),
        ];
        // No data file is finished after two images, and the mask lies in the first finished one.
        for (what, spec) in changed.into_iter().filter(|(what, _)| dies_after == 6 || *what != "pixel mask") {
            let error = Writer::resume(spec).map(|_| ()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
            assert!(error.cause.contains(what), "{what}: {error}");
            assert!(bytes(&directory) == before, "{what}: nothing was touched");
        }
    }
}

#[test]
fn a_damaged_finished_file_is_named_and_a_live_writer_is_not_disturbed() {
    let scratch = Scratch::new("resume-damaged");
    let sample = planned(&scratch.0);
    die_after(&scratch.0, 6);
    let first = scratch.0.join(data_file_name("r", 1));
    let whole = std::fs::read(&first).unwrap();
    std::fs::write(&first, &whole[..whole.len() / 2]).unwrap();
    let error = Writer::resume(sample.spec.clone()).map(|_| ()).unwrap_err();
    assert_eq!((error.kind, &error.path), (ErrorKind::Damaged, &first), "{error}");
    std::fs::remove_file(&first).unwrap();
    let (writer, image) = Writer::resume(sample.spec.clone()).unwrap();
    assert_eq!(image, 0, "without its first file the run begins anew");
    let error = Writer::resume(sample.spec.clone()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InUse, "{error}");
    drop(writer);
}

/// The hidden names under which a growing data file and its journal are put aside.
fn aside(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!(".{name}.continued"))
}

#[test]
fn a_run_that_is_continued_whole_keeps_every_image_that_was_written() {
    let scratch = Scratch::new("continued");
    let whole = uninterrupted(&scratch);
    let images = planned(&whole).images;
    for dies_after in 0..=images {
        for interrupted in 0..4 {
            let directory = scratch.0.join(format!("r{dies_after}-{interrupted}"));
            std::fs::create_dir(&directory).unwrap();
            let sample = planned(&directory);
            die_after(&directory, dies_after);
            // The one who continued was killed too: after the first rename, after the second, or when the new data file
            // had begun.
            let growing = data_file_name("r", dies_after.saturating_sub(1) / 4 + 1);
            let journal = format!("{growing}.journal");
            let has_images = dies_after > 0 && directory.join(&journal).exists();
            if interrupted > 0 && has_images {
                std::fs::rename(directory.join(&growing), aside(&directory, &growing)).unwrap();
            }
            if interrupted > 1 && has_images {
                std::fs::rename(directory.join(&journal), aside(&directory, &journal)).unwrap();
            }
            if interrupted > 2 && has_images {
                die_after(&directory, 0);
            }
            let (mut writer, continued) = Writer::continue_whole(sample.spec.clone()).unwrap();
            let given = (0..dies_after).rev().find(|image| !sample.lost.contains(image)).map_or(0, |last| last + 1);
            assert_eq!(continued.positions, given, "after {dies_after} images, interrupted {interrupted}");
            write_from(&mut writer, &sample, given, images).unwrap();
            let report = writer.finish(&ledger(&sample)).unwrap();
            assert_eq!((report.images, report.images_with_pixels), (10, 9));
            assert_eq!(names(&directory), names(&whole), "nothing that was put aside is left");
            assert_same(&directory, &whole);
            let (again, complete) = Writer::continue_whole(sample.spec.clone()).unwrap();
            assert_eq!((complete.positions, complete.images_with_pixels, complete.chunk_bytes), (10, 9, report.chunk_bytes));
            assert_eq!(again.finish(&ledger(&sample)).unwrap().images, 10);
        }
    }
}

#[test]
fn full_files_that_are_not_known_to_be_on_the_disk_are_continued_with_their_images() {
    let scratch = Scratch::new("continued-full");
    let whole = uninterrupted(&scratch);
    let images = planned(&whole).images;
    for interrupted in 0..6 {
        let directory = scratch.0.join(format!("r{interrupted}"));
        std::fs::create_dir(&directory).unwrap();
        let sample = planned(&directory);
        // The second file is full and has its journal still, and libhdf5 has closed none; the third one grows.
        let [second, third] = [2, 3].map(|number| data_file_name("r", number));
        let journal = |data: &str| format!("{data}.journal");
        die_after(&directory, 8);
        let kept = [second.clone(), journal(&second)].map(|name| directory.join(name));
        let of_second = kept.clone().map(|path| std::fs::read(path).unwrap());
        die_after(&directory, 10);
        assert!(!directory.join(journal(&second)).exists() && directory.join(journal(&third)).exists());
        kept.iter().zip(of_second).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        // The one who continued was killed too: after each of its renames, or when it wrote the files again.
        let renames = [third.clone(), journal(&third), second.clone(), journal(&second)];
        for name in renames.iter().take(interrupted) {
            std::fs::rename(directory.join(name), aside(&directory, name)).unwrap();
        }
        if interrupted == 5 {
            die_after(&directory, 9);
        }
        let (mut writer, continued) = Writer::continue_whole(sample.spec.clone()).unwrap();
        let given = (0..images).rev().find(|image| !sample.lost.contains(image)).map_or(0, |last| last + 1);
        assert_eq!((continued.positions, continued.images_with_pixels), (given, 9), "interrupted {interrupted}");
        write_from(&mut writer, &sample, given, images).unwrap();
        let report = writer.finish(&ledger(&sample)).unwrap();
        assert_eq!((report.images, report.images_with_pixels), (10, 9), "interrupted {interrupted}");
        assert_eq!(names(&directory), names(&whole), "nothing that was put aside is left");
        assert_same(&directory, &whole);
    }
}

#[test]
fn a_run_without_a_planned_end_that_is_closed_is_not_continued() {
    let scratch = Scratch::new("continued-closed");
    let sample = Sample { spec: FileSpec { images_planned: None, ..planned(&scratch.0).spec }, ..planned(&scratch.0) };
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, &sample).unwrap();
    writer.finish(&ledger(&sample)).unwrap();
    let before = bytes(&scratch.0);
    assert_eq!(Writer::continue_whole(sample.spec).map(|_| ()).unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(bytes(&scratch.0), before);
}
