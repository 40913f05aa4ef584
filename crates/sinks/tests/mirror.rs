//! A repacked file gets its name only when it is whole and nothing stands in the way.

use std::path::Path;

use konkordia_sinks::hdf5::mirror::{Mirror, RecordValue, Sealed, Stacks};
use konkordia_sinks::hdf5::{Compression, Error, ErrorKind};

/// Two images of 4 x 5 pixels.
fn source(path: &Path) {
    let pixels: Vec<u16> = (0..40).collect();
    let file = hdf5::File::create(path).unwrap();
    let data = file.create_group("entry").and_then(|entry| entry.create_group("data")).unwrap();
    let stack = data.new_dataset::<u16>().shape((2, 4, 5)).chunk((1, 4, 5)).create("data").unwrap();
    stack.write_raw(&pixels).unwrap();
}

fn sealed(folder: &Path, target: &Path) -> Result<Sealed, Error> {
    let stacks = Stacks::open(&folder.join("in.h5"))?;
    let mut mirror = Mirror::create(&stacks, target, Compression::None, &str::to_owned, "out")?;
    let mut bytes = Vec::new();
    for image in 0..2 {
        assert_eq!(stacks.read(0, image, &mut bytes)?, Some(true));
        mirror.write(0, image, &bytes)?;
    }
    let text = |value: &str| RecordValue::Text(value.into());
    let record = [
        ("compression", text("none")),
        ("source", text("in.h5")),
        ("source_folder", text("/a/b")),
        ("source_identity", text("sha256:0")),
    ];
    mirror.seal(&record, &[])
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_sealed_file_can_be_read_and_has_no_name_yet() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, target) = (folder.path(), folder.path().join("out.h5"));
    source(&folder.join("in.h5"));
    let copy = sealed(folder, &target).unwrap();
    assert_eq!(names(folder), [".out.h5.part", "in.h5"]);
    let stacks = Stacks::open(copy.path()).unwrap();
    assert_eq!(stacks.layouts().len(), 1);
    let record = stacks.repacked().unwrap();
    assert_eq!((record.source.as_str(), record.folder.as_str(), record.identity.as_str()), ("in.h5", "/a/b", "sha256:0"));
    drop(stacks);
    drop(copy);
    assert_eq!(names(folder), ["in.h5"], "what nobody wants leaves nothing behind");
    sealed(folder, &target).unwrap().publish().unwrap();
    assert_eq!(names(folder), ["in.h5", "out.h5"]);
    let pixels = hdf5::File::open(&target).and_then(|file| file.dataset("/entry/data/data")?.read_raw::<u16>()).unwrap();
    assert!(pixels.into_iter().eq(0..40));
}

#[test]
fn a_name_that_somebody_else_took_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, target) = (folder.path(), folder.path().join("out.h5"));
    source(&folder.join("in.h5"));
    let copy = sealed(folder, &target).unwrap();
    std::fs::write(&target, b"of somebody else").unwrap();
    assert_eq!(copy.publish().unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(std::fs::read(&target).unwrap(), b"of somebody else");
    std::fs::remove_file(&target).unwrap();
    // Another program that began the same file meanwhile.
    let copy = sealed(folder, &target).unwrap();
    let part = copy.path().to_owned();
    let kept = folder.join("kept");
    std::fs::rename(&part, &kept).unwrap();
    std::fs::write(&part, b"half a file").unwrap();
    assert_eq!(copy.publish().unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(std::fs::read(&part).unwrap(), b"half a file");
    assert!(!target.exists());
}
