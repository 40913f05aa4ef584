//! Conversions without the program: raw frames of the simulated detector become a file, are compared, continued, and
//! not overwritten.

use konkordia_acquire::convert::{Conversion, Request};
use konkordia_core::failure::Exit;
use konkordia_input::Format;
use konkordia_kernels::codec::decode;
use konkordia_sim::jungfrau::{JungfrauModel, SyntheticJungfrau, raw_bytes};
use konkordia_sinks::hdf5::Reader;
use std::path::Path;

const FRAMES: u64 = 4;

/// Writes frames of one module as plain words, and returns their bytes.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let detector = SyntheticJungfrau::new(&JungfrauModel::for_modules(1)).unwrap();
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(|n| raw_bytes(&detector.image(n).raw)).collect();
    std::fs::write(path, frames.concat()).unwrap();
    frames
}

fn request(folder: &Path) -> Request {
    Request {
        input: vec![folder.join("frames.u16")],
        format: Some(Format::U16),
        output: folder.join("run"),
        dtype: Some("raw".into()),
        images_per_file: Some(3),
        ..Request::default()
    }
}

#[test]
fn frames_become_a_file_that_equals_a_second_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let frames = frames(&folder.path().join("frames.u16"));
    let conversion = Conversion::open(request(folder.path())).unwrap();
    assert_eq!((conversion.input().frames_found, conversion.config().images_per_file), (FRAMES, 3));
    let ready = conversion.arm(conversion.plan().unwrap(), Box::new(|_| ())).unwrap();
    assert_eq!((ready.images_kept, ready.computes_again), (0, false));
    let done = ready.run().unwrap();
    assert_eq!(done.exit(false), (Exit::Complete, None));
    assert_eq!(done.outcome.ledger.images.complete, FRAMES);
    let master = request(folder.path()).master();
    assert_eq!(done.report.master(), Some(master.as_path()));
    let reader = Reader::open(&master).unwrap();
    for (n, frame) in frames.iter().enumerate() {
        assert!(reader.read_image(n as u64, &decode).unwrap() == *frame, "image {n}");
    }
    let (armed, comparison) = conversion.verify().unwrap();
    let verified = comparison.close(&armed.run()).unwrap();
    assert_eq!((verified.images, verified.different_images), (FRAMES, 0));
}

#[test]
fn files_are_continued_and_not_replaced_unless_asked() {
    let folder = tempfile::tempdir().unwrap();
    frames(&folder.path().join("frames.u16"));
    let convert = |request: Request| {
        let conversion = Conversion::open(request)?;
        conversion.arm(conversion.plan()?, Box::new(|_| ()))?.run()
    };
    let again = |resume, overwrite| Request { resume, overwrite, ..request(folder.path()) };
    convert(again(false, false)).unwrap();
    let refused = convert(again(false, false)).err().expect("the files are there");
    assert_eq!((refused.exit, refused.why.as_str()), (Exit::Io, "the file exists"));
    let done = convert(again(true, false)).unwrap();
    assert_eq!((done.images_kept, done.exit(false)), (FRAMES, (Exit::Complete, None)), "nothing was left to convert");
    assert_eq!(done.outcome.ledger.images.complete, FRAMES);
    let done = convert(again(false, true)).unwrap();
    assert_eq!((done.images_kept, done.outcome.ledger.written), (0, FRAMES));
}
