//! Bags: made, checked with injected rot, restored.

use konkordia_archive::sums::Chunk;
use konkordia_archive::{Damage, Done, Kind, Made, Options, Packer, Report, check, make, restore};
use konkordia_core::failure::{Exit, Failure};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// "Packs" files named *.h5 by turning each byte; a chunk is 100 bytes behind a head of 64.
#[derive(Default)]
struct Turns {
    packed: Cell<u32>,
    fails_at: Option<u32>,
}

impl Packer for Turns {
    fn kind(&mut self, file: &Path) -> Result<Kind, Failure> {
        let is_packed = file.extension().is_some_and(|ending| ending == "h5");
        Ok(if is_packed { Kind::Pack(Vec::new()) } else { Kind::Copy("not a file of images") })
    }

    fn pack(&mut self, file: &Path, folder: &Path) -> Result<Done, Failure> {
        self.packed.set(self.packed.get() + 1);
        if self.fails_at == Some(self.packed.get()) {
            return Err(Failure::new(Exit::Interrupted, "stopped", "", ""));
        }
        let target = folder.join(file.file_name().unwrap());
        let bytes: Vec<u8> = fs::read(file).unwrap().iter().map(|byte| !byte).collect();
        fs::write(&target, bytes).unwrap();
        Ok(Done { files: vec![(file.to_owned(), target)], what: "turned".into() })
    }

    fn chunks(&mut self, file: &Path) -> Result<Vec<Chunk>, Failure> {
        if file.extension().is_none_or(|ending| ending != "h5") {
            return Ok(Vec::new());
        }
        let bytes = fs::metadata(file).unwrap().len();
        let chunk = |n: u64| Chunk { dataset: "/d".into(), image: n.to_string(), offset: 64 + 100 * n, bytes: 100, crc32: 0 };
        Ok((0..(bytes - 64) / 100).map(chunk).collect())
    }
}

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

fn source(folder: &Path) -> PathBuf {
    let from = folder.join("runs");
    fs::create_dir_all(from.join("a/b")).unwrap();
    for (name, length) in [("a/run_data_000001.h5", 464), ("a/b/100%.h5", 164), ("notes ä.txt", 5), ("a/empty", 0)] {
        fs::write(from.join(name), (0..length).map(|n| n as u8).collect::<Vec<u8>>()).unwrap();
    }
    from
}

fn options() -> Options {
    Options {
        software: "konkordia 0".into(),
        packing: "turned".into(),
        date: Some("2026-11-29".into()),
        fields: vec![("License".into(), "CC-BY-4.0".into()), ("Retention-Until".into(), "2036-11-29".into())],
        texts: vec![("README.txt".into(), "a bag\n".into())],
    }
}

fn made(from: &Path, bag: &Path) -> Result<Made, Failure> {
    make(from, bag, &options(), &mut Turns::default(), &never(), &mut |_| ())
}

fn checked(bag: &Path) -> Report {
    check(bag, &never(), &mut |_| ()).unwrap()
}

/// All files below a folder with their bytes.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path)
            } else {
                drop(found.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap()))
            }
        }
    }
    found
}

fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn two_bags_of_one_folder_are_equal_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(folder.path());
    let [a, b] = ["bag-a", "bag-b"].map(|name| folder.path().join(name));
    let facts = made(&from, &a).unwrap();
    assert_eq!((facts.files, facts.bytes, facts.bytes_before, facts.chunks), (4, 633, 633, 5));
    made(&from, &b).unwrap();
    assert_eq!(everything(&a), everything(&b));
    assert!(!folder.path().join(".bag-a.part").exists());
    let report = checked(&a);
    assert_eq!((report.damages.as_slice(), report.files), (&[][..], 4 + 4 + 5), "payload, chunks, and what describes them");
    let out = folder.path().join("out");
    let restored = restore(&a, &out, &never(), &mut |_| ()).unwrap();
    assert_eq!((restored.files, restored.kept, restored.report.damages.len()), (4, 0, 0));
    let turned = |(path, bytes): (PathBuf, Vec<u8>)| {
        let is_packed = path.extension().is_some_and(|ending| ending == "h5");
        (path, if is_packed { bytes.iter().map(|byte| !byte).collect() } else { bytes })
    };
    assert_eq!(everything(&out).into_iter().map(turned).collect::<BTreeMap<_, _>>(), everything(&from));
    let again = restore(&a, &out, &never(), &mut |_| ()).unwrap();
    assert_eq!((again.files, again.kept), (0, 4));
    fs::write(out.join("a/empty"), "x").unwrap();
    let refused = restore(&a, &out, &never(), &mut |_| ()).unwrap_err();
    assert!(refused.what.contains("a/empty exists"), "{refused}");
    assert!(made(&from, &a).unwrap_err().what.contains("exists"));
}

#[test]
fn each_changed_byte_is_named_down_to_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let bag = folder.path().join("bag");
    made(&source(folder.path()), &bag).unwrap();
    let data = bag.join("data/a/run_data_000001.h5");
    let whole = fs::read(&data).unwrap();
    for at in 0..whole.len() as u64 {
        flip(&data, at);
        let [Damage { file, dataset, image, what, .. }] = &checked(&bag).damages[..] else { panic!("byte {at}") };
        assert_eq!(file, "data/a/run_data_000001.h5");
        match at.checked_sub(64) {
            Some(at) => assert_eq!((dataset.as_str(), image), ("/d", &(at / 100).to_string())),
            None => assert!(dataset.is_empty() && what.contains("outside of the images"), "{what}"),
        }
        flip(&data, at);
    }
    assert!(checked(&bag).damages.is_empty());
    fs::write(&data, &whole[..300]).unwrap();
    let named: Vec<_> = checked(&bag).damages.into_iter().map(|damage| (damage.image, damage.what)).collect();
    let ends = |n: u32| (n.to_string(), "the file ends before it".to_owned());
    assert_eq!(named, [ends(2), ends(3)]);
    // Good files are restored, the damaged one is not.
    let out = folder.path().join("out");
    let restored = restore(&bag, &out, &never(), &mut |_| ()).unwrap();
    assert_eq!((restored.files, restored.report.damages.len()), (3, 2));
    assert!(!out.join("a/run_data_000001.h5").exists() && out.join("a/b/100%.h5").exists());
}

#[test]
fn what_else_goes_wrong_with_a_bag_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(folder.path());
    let mut number = 0;
    let mut damaged = |change: &dyn Fn(&Path)| {
        number += 1;
        let bag = folder.path().join(format!("bag{number}"));
        made(&from, &bag).unwrap();
        change(&bag);
        let found = checked(&bag).damages;
        found.into_iter().map(|damage| format!("{}: {}", damage.file, damage.what)).collect::<Vec<_>>().join("; ")
    };
    let is = |found: String, wanted: &str| assert!(found.contains(wanted), "{found}");
    is(damaged(&|bag| fs::remove_file(bag.join("data/a/empty")).unwrap()), "data/a/empty: it is missing");
    is(damaged(&|bag| fs::write(bag.join("data/new"), "x").unwrap()), "data/new: the manifest does not name it");
    is(damaged(&|bag| flip(&bag.join("README.txt"), 0)), "README.txt: its bytes have changed");
    is(damaged(&|bag| flip(&bag.join("bag-info.txt"), 3)), "bag-info.txt: its bytes have changed");
    is(damaged(&|bag| fs::remove_file(bag.join("tagmanifest-sha256.txt")).unwrap()), "tagmanifest-sha256.txt");
    is(damaged(&|bag| fs::remove_dir_all(bag.join("data")).unwrap()), "the folder of the payload is missing");
    is(damaged(&|bag| fs::write(bag.join("fetch.txt"), "").unwrap()), "fetch.txt");
    is(
        damaged(&|bag| {
            flip(&bag.join("chunks/data/a/run_data_000001.h5.tsv"), 60);
            flip(&bag.join("data/a/run_data_000001.h5"), 70);
        }),
        "the bag has no sums of its chunks",
    );
    let evil = folder.path().join("evil");
    made(&from, &evil).unwrap();
    let line = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  data/../../../etc/passwd\n";
    fs::write(evil.join("manifest-sha256.txt"), line).unwrap();
    let out = folder.path().join("evil-out");
    for refused in [check(&evil, &never(), &mut |_| ()).unwrap_err(), restore(&evil, &out, &never(), &mut |_| ()).unwrap_err()] {
        assert!(refused.why.contains("leads out"), "{refused}");
    }
    assert!(check(&from, &never(), &mut |_| ()).unwrap_err().what.contains("is not a bag"));
}

#[test]
fn an_attempt_goes_on_where_the_last_one_ended() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(folder.path());
    let [bag, other] = ["bag", "other"].map(|name| folder.path().join(name));
    let mut packer = Turns { fails_at: Some(2), ..Turns::default() };
    let stopped = make(&from, &bag, &options(), &mut packer, &never(), &mut |_| ()).unwrap_err();
    assert_eq!(stopped.exit, Exit::Interrupted);
    assert!(!bag.exists() && folder.path().join(".bag.part").exists());
    let changed = Options { packing: "turned twice".into(), ..options() };
    let refused = make(&from, &bag, &changed, &mut Turns::default(), &never(), &mut |_| ()).unwrap_err();
    assert!(refused.why.contains("begun with turned, not with turned twice"), "{refused}");
    // What is no source any more does not come into the bag.
    fs::write(folder.path().join(".bag.part/data/a/gone.h5"), "x").unwrap();
    made(&from, &bag).unwrap();
    made(&from, &other).unwrap();
    assert_eq!(everything(&bag), everything(&other));
    let stop = AtomicBool::new(false);
    let third = folder.path().join("third");
    let stopped = make(&from, &third, &options(), &mut Turns::default(), &stop, &mut |_| stop.store(true, Ordering::Release));
    assert_eq!(stopped.unwrap_err().exit, Exit::Interrupted);
    made(&from, &third).unwrap();
    assert_eq!(everything(&third), everything(&other));
}

#[test]
fn what_cannot_be_in_a_bag_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(folder.path());
    let bag = folder.path().join("bag");
    std::os::unix::fs::symlink("a", from.join("link")).unwrap();
    assert!(made(&from, &bag).unwrap_err().why.contains("link"));
    fs::remove_file(from.join("link")).unwrap();
    let nothing = folder.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    assert!(made(&nothing, &bag).unwrap_err().what.contains("nothing to archive"));
    // A bag inside of its own folder does not hold itself.
    made(&from, &from.join("bag")).unwrap();
    assert!(checked(&from.join("bag")).damages.is_empty());
}
