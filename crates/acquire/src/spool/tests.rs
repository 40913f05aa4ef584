//! The spool with files of plain bytes: their order, the bound, and what a crash leaves.

use super::folder::{RunFolder, Step};
use super::note::Note;
use super::{News, Spool, SpoolRun, left_over};
use konkordia_config::spool::Spool as Settings;
use konkordia_core::plan::Compression;
use konkordia_sinks::hdf5::FileSpec;
use std::fs::{create_dir, read, write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const LIMIT: u64 = 4 << 20;

struct Bench {
    _all: tempfile::TempDir,
    target: PathBuf,
    settings: Settings,
    spool: Arc<Spool>,
    news: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        let top = all.path().canonicalize().unwrap();
        let target = top.join("target");
        create_dir(&target).unwrap();
        let settings = Settings { directory: top.join("spool"), limit_bytes: LIMIT, repack_to: None };
        let news: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&news);
        let tell = move |news: &News| told.lock().unwrap().push(format!("{news:?}"));
        let spool = Spool::open(&settings, Box::new(tell)).unwrap();
        Self { _all: all, target, settings, spool, news }
    }

    fn spec(&self) -> FileSpec {
        FileSpec { directory: self.target.clone(), prefix: "r".into(), images_per_file: 10, ..FileSpec::default() }
    }

    fn run(&self) -> Arc<SpoolRun> {
        self.spool.begin(&self.spec(), None).unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.target.join(name).exists()
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn put(run: &SpoolRun, name: &str, bytes: &[u8]) {
    write(run.directory().join(name), bytes).unwrap();
}

#[test]
fn data_files_move_while_the_run_goes_on_and_the_master_comes_last() {
    let bench = Bench::new();
    let run = bench.run();
    put(&run, "r_master.h5", b"writing");
    put(&run, "r_data_000001.h5.journal", b"j");
    put(&run, "r_data_000001.h5", b"one");
    put(&run, "r_data_000002.h5.journal", b"j");
    put(&run, "r_data_000002.h5", b"two");
    // Time for a thread that would move what is not finished.
    std::thread::sleep(Duration::from_millis(300));
    assert!(!bench.has("r_data_000001.h5"), "it has a journal");
    std::fs::remove_file(run.directory().join("r_data_000001.h5.journal")).unwrap();
    until("the first data file has moved", || run.durable().end() == 10);
    assert_eq!(read(bench.target.join("r_data_000001.h5")).unwrap(), b"one");
    // The folder in the spool still shows the whole run.
    assert_eq!(read(run.directory().join("r_data_000001.h5")).unwrap(), b"one");
    std::fs::remove_file(run.directory().join("r_data_000002.h5.journal")).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(!bench.has("r_data_000002.h5"), "the last data file may still be discarded");
    assert!(!bench.has("r_master.h5") && bench.spool.has(&run.target_master()));
    put(&run, "r_pedestals.h5", b"p");
    put(&run, "r_master.h5", b"closed");
    run.over(13);
    assert!(run.wait_till_moved());
    assert_eq!(read(bench.target.join("r_data_000002.h5")).unwrap(), b"two");
    assert_eq!(read(bench.target.join("r_master.h5")).unwrap(), b"closed");
    assert!(bench.has("r_pedestals.h5") && !run.directory().exists());
    assert_eq!((run.durable().end(), run.report().moved_bytes), (13, 3 + 3 + 1 + 6));
    until("it is told", || bench.news.lock().unwrap().iter().any(|news| news.starts_with("Moved")));
    assert!(left_over::list(&bench.settings.directory).unwrap().is_empty());
}

#[test]
fn images_wait_for_room_and_get_it_when_a_file_has_moved() {
    let bench = Bench::new();
    let run = bench.run();
    put(&run, "r_master.h5", b"m");
    put(&run, "r_data_000001.h5.journal", b"j");
    put(&run, "r_data_000001.h5", &vec![7; 3 << 20]);
    put(&run, "r_data_000002.h5.journal", b"j");
    put(&run, "r_data_000002.h5", b"two");
    until("the bytes are seen", || bench.spool.status().used_bytes >= 3 << 20);
    let waits = Arc::clone(&run);
    let waiting = std::thread::spawn(move || waits.wait_for_room(2 << 20));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished(), "3 + 2 MiB are more than 4");
    std::fs::remove_file(run.directory().join("r_data_000001.h5.journal")).unwrap();
    waiting.join().unwrap().unwrap();
    let report = run.report();
    assert!(report.full > Duration::from_millis(100) && report.peak_bytes >= 2 << 20, "{report:?}");
    run.abandon();
    assert!(!run.directory().exists());
}

#[test]
fn a_target_that_cannot_be_written_is_told_at_once_and_tried_again() {
    let bench = Bench::new();
    let run = bench.run();
    // Another file has the name of the first one, as if a later run had been faster.
    write(bench.target.join("r_data_000001.h5"), b"other").unwrap();
    put(&run, "r_data_000001.h5", b"one");
    put(&run, "r_master.h5", b"m");
    run.over(1);
    let failure = run.wait(LONG).unwrap_err();
    assert!(failure.why.contains("r_data_000001.h5 exists") && failure.fix.contains("repair --spool"), "{failure}");
    assert!(bench.spool.status().problem.is_some_and(|problem| problem.contains("exists")));
    until("it is told", || bench.news.lock().unwrap().iter().any(|news| news.starts_with("Failing")));
    // A full spool from which nothing can move refuses images, with the cause.
    let refused = run.wait_for_room(LIMIT + 1).unwrap_err();
    assert!(refused.what.contains("is full") && refused.why.contains("exists"), "{refused:?}");
    assert_eq!(read(bench.target.join("r_data_000001.h5")).unwrap(), b"other");
    std::fs::remove_file(bench.target.join("r_data_000001.h5")).unwrap();
    assert!(run.wait_till_moved());
    assert_eq!(read(bench.target.join("r_data_000001.h5")).unwrap(), b"one");
}

#[test]
fn runs_that_do_not_fit_are_refused() {
    let bench = Bench::new();
    let said = bench.spool.begin(&bench.spec(), Some(1 << 20)).err().expect("refused");
    assert!(said.what.contains("too small") && said.fix.contains("images_per_file = 2"), "{said}");
    write(bench.settings.directory.join("other"), vec![1; 3 << 20]).unwrap();
    let said = bench.spool.begin(&bench.spec(), Some(100_000)).err().expect("refused");
    assert!(said.what.contains("too full"), "{said}");
    std::fs::remove_file(bench.settings.directory.join("other")).unwrap();
    let _first = bench.run();
    let said = bench.spool.begin(&bench.spec(), None).err().expect("refused");
    assert!(said.what.contains("'r' is still in the spool"), "{said}");
    let there = FileSpec { prefix: "old".into(), ..bench.spec() };
    write(bench.target.join("old_master.h5"), b"").unwrap();
    assert!(bench.spool.begin(&there, None).is_err(), "older files may not be replaced");
}

/// What lies in the folder after a crash at each step of a move leads to the same end.
#[test]
fn a_crash_between_copy_and_link_loses_nothing_and_doubles_nothing() {
    let all = tempfile::tempdir().unwrap();
    let (root, target) = (all.path().join("spool"), all.path().join("target"));
    create_dir(&root).unwrap();
    create_dir(&target).unwrap();
    let stop = false.into();
    for copied in [None, Some("part"), Some("whole")] {
        let run = RunFolder::create(&root, Note::new("c", &target, 5, None)).unwrap();
        write(run.path.join("c_data_000001.h5"), b"12345").unwrap();
        write(run.master(), b"m").unwrap();
        match copied {
            None => {}
            Some("part") => write(target.join(".c_data_000001.h5.part"), b"12").unwrap(),
            Some(_) => write(target.join("c_data_000001.h5"), b"12345").unwrap(),
        }
        let mut moved = Vec::new();
        while let Step::Move(file) = run.next(true) {
            assert!(super::moving::move_file(&run, &file, &stop).unwrap().is_some());
            moved.push(file);
            assert!(moved.len() < 9);
        }
        assert_eq!(moved, [run.path.join("c_data_000001.h5"), run.master()], "{copied:?}");
        assert_eq!(run.next(true), Step::Done);
        run.remove().unwrap();
        assert_eq!(read(target.join("c_data_000001.h5")).unwrap(), b"12345");
        let names = || std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(names().count(), 2, "{copied:?}");
        names().for_each(|path| std::fs::remove_file(path).unwrap());
    }
    // A stop leaves the file where it is, and nothing of the copy.
    let run = RunFolder::create(&root, Note::new("c", &target, 5, None)).unwrap();
    write(run.path.join("c_data_000001.h5"), b"12345").unwrap();
    assert_eq!(super::moving::move_file(&run, &run.path.join("c_data_000001.h5"), &true.into()).unwrap(), None);
    assert_eq!((run.next(true), std::fs::read_dir(&target).unwrap().count()), (Step::Move(run.path.join("c_data_000001.h5")), 0));
}

#[test]
fn runs_of_programs_that_live_are_left_alone() {
    let all = tempfile::tempdir().unwrap();
    let note = Note::new("n", all.path(), 5, Compression::from_name("bszstd").and_then(|codec| codec.with_level(3)));
    let run = RunFolder::create(all.path(), note.clone()).unwrap();
    assert_eq!(Note::read(&run.path).unwrap(), note);
    assert_eq!(Note::read(&run.path).unwrap().repack_to(), Compression::BSZSTD.with_level(3));
    assert!(left_over::list(all.path()).unwrap().is_empty(), "it is locked");
    let path = run.path.clone();
    drop(run);
    let left = left_over::list(all.path()).unwrap();
    assert_eq!((left.len(), &left[0].folder, &left[0].master), (1, &path, &all.path().join("n_master.h5")));
    assert!(left_over::words(&left[0], Path::new("/s")).contains("konkordia repair --spool /s"));
    write(path.join("spool.json"), "{}").unwrap();
    assert_eq!(left_over::list(all.path()).unwrap()[0].master, path, "it is shown, although its note cannot be read");
}
