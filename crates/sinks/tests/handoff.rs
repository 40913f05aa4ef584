//! Chunks that are written outside the lock of libhdf5: the same files as inside, and the same errors.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Scratch, decode, ledger, pixels, sample, write_image, write_images};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::{ChunkWrites, ErrorKind, Reader, Severity, Writer, check};

const CHILD: &str = "KONKORDIA_SHORT_FILES_CHILD";

fn errors(path: &Path) -> Vec<String> {
    check(path, &decode).iter().filter(|f| f.severity == Severity::Error).map(ToString::to_string).collect()
}

/// Several runs at the same time, each with several data files.
#[test]
fn who_writes_the_chunks_makes_no_difference() {
    let scratch = Scratch::new("handoff");
    let write = |prefix: &str, writes| {
        let sample = sample(&scratch.0, prefix, PixelType::Int16);
        let mut writer = Writer::create(sample.spec.clone()).unwrap();
        writer.set_chunk_writes(writes);
        write_images(&mut writer, &sample).unwrap();
        writer.finish(&ledger(&sample)).unwrap()
    };
    let (inside, outside) = (ChunkWrites::InsideLock, ChunkWrites::OutsideLock);
    let reports = std::thread::scope(|scope| {
        let runs = [("a", inside), ("b", outside), ("c", outside), ("d", outside)];
        let threads = runs.map(|(prefix, writes)| scope.spawn(move || write(prefix, writes)));
        threads.map(|thread| thread.join().unwrap())
    });
    let content = |master: &Path| {
        let reader = Reader::open(master).unwrap();
        let images = reader.summary().images;
        let chunks = (0..images).map(|image| {
            let mut chunk = Vec::new();
            reader.read_chunk(image, &mut chunk).unwrap().then_some(chunk)
        });
        let columns = ["frame_number", "status", "chunk_crc32", "bright_pixels"].map(|name| reader.column(name));
        (chunks.collect::<Vec<_>>(), columns)
    };
    let expected = content(&reports[0].master);
    for report in &reports {
        assert_eq!(errors(&report.master), Vec::<String>::new());
        assert!(content(&report.master) == expected, "{report:?}");
        for (file, expected) in report.data_files.iter().zip(&reports[0].data_files) {
            let length = |path: &Path| std::fs::metadata(path).unwrap().len();
            assert_eq!(length(file), length(expected));
        }
    }
}

/// Not a test: the process that the test below starts with a limit on the length of files.
#[test]
fn child_with_short_files() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let runs = [("in", ChunkWrites::InsideLock), ("ex", ChunkWrites::OutsideLock)].map(|(prefix, writes)| {
        let mut sample = sample(Path::new(&folder), prefix, PixelType::Uint32);
        (sample.spec.images_per_file, sample.spec.images_planned) = (100, Some(100));
        let mut writer = Writer::create(sample.spec.clone()).unwrap();
        writer.set_chunk_writes(writes);
        let mut written = 0;
        let error = loop {
            match write_image(&mut writer, written, false).and_then(|()| writer.tick(written * 500_000_000)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 100, "the file is too long some time");
        };
        (sample, writer, written, error)
    });
    let [(_, _, inside, error_inside), (sample, writer, written, error)] = runs;
    assert_eq!((error.kind, error.operation, &error.cause), (ErrorKind::Io, error_inside.operation, &error_inside.cause));
    assert!(error.cause.contains("File too large"), "{error}");
    assert_eq!((inside, &error.hint), (written, &error_inside.hint));
    assert!(written > 5);
    let mut record = ledger(&sample);
    (record.ended, record.images_expected) = ("disk".into(), 100);
    let report = writer.finish(&record).unwrap();
    assert_eq!((report.images, report.images_with_pixels), (written + 1, written), "the image that failed is a lost one");
    assert_eq!(errors(&report.master), Vec::<String>::new());
    let reader = Reader::open(&report.master).unwrap();
    assert_eq!(reader.summary().images_by_status, [1, written, 0, 0, 0]);
    for image in 0..written {
        assert_eq!(reader.read_image(image, &decode).unwrap(), pixels(&sample.spec, image, false), "image {image}");
    }
    let missing = sample.spec.pixel.missing_le_bytes().repeat(sample.spec.pixels());
    assert_eq!(reader.read_image(written, &decode).unwrap(), missing, "no part of it is shown");
}

/// The writer looks at the free space beforehand, so a full disk does not show what a failed write does. A limit on the
/// length of files does, and needs no rights.
#[test]
fn a_chunk_that_cannot_be_written_is_lost_and_nothing_else() {
    let scratch = Scratch::new("handoff-short");
    // 2048 blocks of 512 bytes: some 20 images.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" --exact child_with_short_files --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, &scratch.0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}
