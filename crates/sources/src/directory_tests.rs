use super::*;
use std::fs;
use std::path::Path;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn spec(folder: &Path) -> DirectorySpec {
    DirectorySpec {
        suffixes: vec![".cbf".into()],
        settle: Duration::from_millis(30),
        sweep: Duration::from_millis(40),
        ..DirectorySpec::new(folder)
    }
}

/// Names and contents of what comes until `count` messages are there, or for half a second more than it takes.
fn take(source: &mut DirectorySource, count: usize) -> Vec<(String, Vec<u8>)> {
    let (mut all, end) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while all.len() < count && Instant::now() < end {
        source.receive(Duration::from_millis(100), 100, &mut all).unwrap();
    }
    source.receive(Duration::from_millis(150), 100, &mut all).unwrap();
    all.iter().map(|m| (String::from_utf8(m.parts[0].to_vec()).unwrap(), m.parts[1].to_vec())).collect()
}

fn names(taken: &[(String, Vec<u8>)]) -> Vec<&str> {
    taken.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn numbers_in_names_count_as_numbers() {
    let mut all = [
        "a10.cbf",
        "a9.cbf",
        "a010.cbf",
        "b1",
        "a",
        "a1_2",
        "a1_10",
        "a1",
        "",
        "a99999999999999999999999",
        "a100000000000000000000000",
    ];
    all.sort_by(|a, b| natural(a.as_bytes(), b.as_bytes()));
    let sorted = [
        "",
        "a",
        "a1",
        "a1_2",
        "a1_10",
        "a9.cbf",
        "a010.cbf",
        "a10.cbf",
        "a99999999999999999999999",
        "a100000000000000000000000",
        "b1",
    ];
    assert_eq!(all, sorted);
}

#[test]
fn new_files_come_once_in_order_with_their_content() {
    for notified in [true, false] {
        let folder = folder();
        fs::write(folder.path().join("old_1.cbf"), "old").unwrap();
        let mut source = DirectorySource::open(spec(folder.path())).unwrap();
        if !notified {
            source.watch = None;
        }
        for n in (1..=12).rev() {
            fs::write(folder.path().join(format!("new_{n}.CBF")), format!("{n}")).unwrap();
        }
        fs::write(folder.path().join("other.txt"), "no").unwrap();
        fs::create_dir(folder.path().join("folder.cbf")).unwrap();
        let taken = take(&mut source, 12);
        let expected: Vec<_> = (1..=12).map(|n| (format!("new_{n}.CBF"), format!("{n}").into_bytes())).collect();
        assert_eq!(taken, expected, "notified {notified}");
        assert_eq!(names(&take(&mut source, 0)), [""; 0]);
        // Written again, also the one that was there before.
        fs::write(folder.path().join("new_3.CBF"), "again!").unwrap();
        fs::write(folder.path().join("old_1.cbf"), "again!").unwrap();
        assert_eq!(names(&take(&mut source, 2)), ["new_3.CBF", "old_1.cbf"]);
    }
}

#[test]
fn files_that_are_there_are_taken_if_asked_for() {
    let folder = folder();
    fs::write(folder.path().join("1.cbf"), "old").unwrap();
    let mut source = DirectorySource::open(DirectorySpec { existing: true, ..spec(folder.path()) }).unwrap();
    assert_eq!(names(&take(&mut source, 1)), ["1.cbf"]);
}

#[test]
fn unfinished_and_hidden_files_and_links_are_left_alone() {
    let (folder, elsewhere) = (folder(), folder());
    let secret = elsewhere.path().join("secret.cbf");
    fs::write(&secret, "secret").unwrap();
    let mut source = DirectorySource::open(DirectorySpec { suffixes: Vec::new(), ..spec(folder.path()) }).unwrap();
    for name in [".hidden.cbf", "a.cbf.tmp", "a.part", "a.cbf~"] {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    std::os::unix::fs::symlink(&secret, folder.path().join("link.cbf")).unwrap();
    fs::write(folder.path().join("empty.cbf"), "").unwrap();
    fs::write(folder.path().join("good.tmp"), "good").unwrap();
    fs::rename(folder.path().join("good.tmp"), folder.path().join("good")).unwrap();
    assert_eq!(names(&take(&mut source, 1)), ["good"]);
    // A link that takes the place of a file between the notice and the reading is not followed either.
    fs::write(folder.path().join("swapped"), "x").unwrap();
    source.look();
    fs::remove_file(folder.path().join("swapped")).unwrap();
    std::os::unix::fs::symlink(&secret, folder.path().join("swapped")).unwrap();
    let mut all = Vec::new();
    source.receive(Duration::ZERO, 9, &mut all).unwrap();
    assert!(all.iter().all(|m| m.parts[1].is_empty() && m.parts.len() == 3), "{all:?}");
}

#[test]
fn a_file_that_is_being_written_is_waited_for() {
    use std::io::Write;
    let folder = folder();
    let mut source = DirectorySource::open(DirectorySpec { settle: Duration::from_secs(60), ..spec(folder.path()) }).unwrap();
    let mut file = File::create(folder.path().join("1.cbf")).unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(names(&take(&mut source, 0)), [""; 0]);
    file.write_all(b"whole").unwrap();
    drop(file);
    assert_eq!(take(&mut source, 1), [("1.cbf".to_owned(), b"halfwhole".to_vec())]);
}

#[test]
fn files_are_removed_after_they_were_accepted_unless_they_changed() {
    let folder = folder();
    let mut source = DirectorySource::open(DirectorySpec { remove: true, ..spec(folder.path()) }).unwrap();
    for n in 1..=3 {
        fs::write(folder.path().join(format!("{n}.cbf")), "x").unwrap();
    }
    assert_eq!(take(&mut source, 3).len(), 3);
    let there = || (1..=3).filter(|n| folder.path().join(format!("{n}.cbf")).exists()).collect::<Vec<_>>();
    assert_eq!(there(), [1, 2, 3]);
    source.accepted(1);
    assert_eq!(there(), [2, 3]);
    fs::write(folder.path().join("2.cbf"), "changed").unwrap();
    source.accepted(9);
    assert_eq!(there(), [2]);
    assert_eq!(take(&mut source, 1), [("2.cbf".to_owned(), b"changed".to_vec())]);
    source.accepted(1);
    assert_eq!(there(), [0; 0]);
}

#[test]
fn files_that_could_not_be_used_are_kept() {
    let folder = folder();
    let mut source = DirectorySource::open(DirectorySpec { remove: true, ..spec(folder.path()) }).unwrap();
    for n in 1..=3 {
        fs::write(folder.path().join(format!("{n}.cbf")), "x").unwrap();
    }
    assert_eq!(take(&mut source, 3).len(), 3);
    source.refused(1);
    source.accepted(2);
    let there = (1..=3).filter(|n| folder.path().join(format!("{n}.cbf")).exists()).collect::<Vec<_>>();
    assert_eq!(there, [1]);
}

#[test]
fn a_large_file_is_refused_in_words_and_stays() {
    let folder = folder();
    let spec = DirectorySpec { remove: true, file_bytes_max: 10, ..spec(folder.path()) };
    let mut source = DirectorySource::open(spec).unwrap();
    fs::write(folder.path().join("1.cbf"), [0; 11]).unwrap();
    let mut all = Vec::new();
    while all.is_empty() {
        source.receive(Duration::from_secs(1), 9, &mut all).unwrap();
    }
    let [message] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((&message.parts[0][..], &message.parts[1][..]), (&b"1.cbf"[..], &b""[..]));
    assert!(String::from_utf8_lossy(&message.parts[2]).contains("11 bytes; files up to 10 bytes"));
    source.accepted(1);
    assert!(folder.path().join("1.cbf").exists());
}

#[test]
fn files_and_folders_may_vanish_and_come_back() {
    let outer = folder();
    let folder = outer.path().join("ramdisk");
    let why = DirectorySource::open(spec(&folder)).err().unwrap().to_string();
    assert!(why.contains("ramdisk") && why.contains("create it"), "{why}");
    fs::create_dir(&folder).unwrap();
    let mut source = DirectorySource::open(spec(&folder)).unwrap();
    fs::write(folder.join("1.cbf"), "x").unwrap();
    source.look();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(names(&take(&mut source, 0)), [""; 0]);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("2.cbf"), "y").unwrap();
    assert_eq!(take(&mut source, 1), [("2.cbf".to_owned(), b"y".to_vec())]);
    assert!(source.watch.is_some());
}

#[test]
fn a_batch_keeps_to_its_bounds() {
    let folder = folder();
    let mut source = DirectorySource::open(spec(folder.path())).unwrap();
    source.bound(100, 150);
    for n in 0..5 {
        fs::write(folder.path().join(format!("{n}.cbf")), [0; 100]).unwrap();
    }
    let mut all = Vec::new();
    source.receive(Duration::from_secs(5), 100, &mut all).unwrap();
    assert_eq!(all.len(), 2);
    source.receive(Duration::from_secs(5), 1, &mut all).unwrap();
    assert_eq!(all.len(), 3);
}
