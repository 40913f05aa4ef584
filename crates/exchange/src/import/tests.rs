use super::*;
use crate::export;
use crate::files::Reading;
use konkordia_core::failure::Exit;
use konkordia_kernels::byte_offset;
use konkordia_wire::cbf;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static GO: AtomicBool = AtomicBool::new(false);

/// A CBF file of 3 x 5 pixels; one of them is marked.
fn cbf_file(n: i32) -> Vec<u8> {
    let pixels: Vec<u8> = (0..15).map(|p| if p == 7 { -2 } else { n * 1000 + p }).flat_map(i32::to_le_bytes).collect();
    let mut packed = Vec::new();
    byte_offset::encode(&pixels, &mut packed);
    let lines = ["Detector: TEST, S/N 1".to_owned(), "Exposure_time 0.5 s".into(), format!("Start_angle {}.0 deg.", n)];
    let more = ["Angle_increment 1.0 deg.".to_owned(), "Count_cutoff 50000 counts".into()];
    [cbf::head("t", &[&lines[..], &more[..]].concat(), [3, 5], &packed), packed, cbf::tail()].concat()
}

fn folder(numbers: &[i32]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    numbers.iter().for_each(|n| std::fs::write(folder.path().join(format!("t_{n:04}.cbf")), cbf_file(*n)).unwrap());
    folder
}

fn request(folder: &tempfile::TempDir, output: &Path) -> Request {
    Request {
        input: vec![folder.path().into()],
        output: output.into(),
        images_per_file: 2,
        workers: Some(2),
        ..Request::default()
    }
}

#[test]
fn a_series_with_a_gap_goes_in_and_out_again() {
    let (from, to) = (folder(&[5, 6, 7, 9]), tempfile::tempdir().unwrap());
    let import = Import::open(request(&from, &to.path().join("run"))).unwrap();
    assert_eq!((import.series().gaps(), import.series().first_number), (1, 5));
    let done = import.run(&GO, &mut |_| ()).unwrap();
    assert_eq!((done.complete, done.lost, done.exit(), done.images_kept), (4, 1, Exit::Incomplete, 0));
    let compared = import.verify(&GO, &mut |_| ()).unwrap();
    assert_eq!(compared, Compared { images: 4, different: 0, first_different: None, is_whole: true });
    assert_eq!(import.spec().metadata.count_time_s, Some(0.5));
    let out = export::Request {
        input: done.file.master.clone(),
        output: to.path().join("t"),
        first_number: 5,
        verify: true,
        ..export::Request::default()
    };
    let exported = export::Export::open(out.clone()).unwrap().run(&GO, &mut |_| ()).unwrap();
    assert_eq!((exported.written, exported.lost, exported.compared, exported.marked_pixels), (4, 1, 4, 0));
    for n in [5, 6, 7, 9] {
        let file = std::fs::read(to.path().join(format!("t_{n:06}.cbf"))).unwrap();
        let (ours, theirs) = (cbf_file(n), &file);
        let parse = |bytes: &[u8]| cbf::Image::parse(bytes, &Reading::default().bounds).unwrap().data.to_vec();
        assert_eq!(parse(&ours), parse(theirs));
        let text = String::from_utf8_lossy(theirs);
        assert!(
            text.contains(&format!("# Start_angle {n}.000000 deg.")) && text.contains("# Count_cutoff 50000 counts"),
            "{text}"
        );
    }
    let again = export::Export::open(out.clone()).err().unwrap();
    assert!(again.to_string().contains("t_000005.cbf is there already"));
    let resumed = export::Export::open(export::Request { resume: true, ..out.clone() }).unwrap();
    assert_eq!(resumed.run(&GO, &mut |_| ()).unwrap().kept, 4);
    std::fs::write(to.path().join("t_000006.cbf"), cbf_file(8)).unwrap();
    assert!(resumed.run(&GO, &mut |_| ()).unwrap_err().to_string().contains("t_000006.cbf differs"));
}

#[test]
fn all_images_in_one_tiff_come_back() {
    let (from, to) = (folder(&[1, 2, 3]), tempfile::tempdir().unwrap());
    let done = Import::open(request(&from, &to.path().join("run"))).unwrap().run(&GO, &mut |_| ()).unwrap();
    for (format, one_file, big) in
        [(export::Format::Tiff, true, true), (export::Format::Tiff, false, false), (export::Format::Edf, false, false)]
    {
        let output = to.path().join(format!("{}_{one_file}", format.name()));
        let out = export::Request {
            input: done.file.master.clone(),
            output,
            format,
            one_file,
            big,
            verify: true,
            ..Default::default()
        };
        let export = export::Export::open(out).unwrap();
        let exported = export.run(&GO, &mut |_| ()).unwrap();
        assert_eq!((exported.written, exported.compared), (3, 3), "{format:?}");
        let input = if one_file { vec![export.path(0)] } else { (0..3).map(|n| export.path(n)).collect() };
        let back = Request { input, output: to.path().join(format!("back_{}_{one_file}", format.name())), ..Request::default() };
        let import = Import::open(back).unwrap();
        assert_eq!(import.run(&GO, &mut |_| ()).unwrap().complete, 3);
        assert_eq!(import.verify(&GO, &mut |_| ()).unwrap().different, 0);
    }
}

#[test]
fn an_import_that_was_stopped_goes_on() {
    let (from, to) = (folder(&[1, 2, 3, 4, 5, 6, 7]), tempfile::tempdir().unwrap());
    let mut asked = request(&from, &to.path().join("run"));
    asked.workers = Some(1);
    let stop = AtomicBool::new(false);
    let import = Import::open(asked.clone()).unwrap();
    let done = import.run(&stop, &mut |progress| stop.store(progress.images_done >= 3, Ordering::Release)).unwrap();
    assert!(done.stopped && done.exit() == Exit::Interrupted && done.complete >= 3);
    asked.resume = true;
    let import = Import::open(asked.clone()).unwrap();
    let done = import.run(&GO, &mut |_| ()).unwrap();
    assert_eq!((done.complete, done.lost, done.exit()), (7, 0, Exit::Complete));
    assert!(done.images_kept >= 2, "full data files are kept");
    assert_eq!(import.verify(&GO, &mut |_| ()).unwrap().images, 7);
    std::fs::write(from.path().join("t_0003.cbf"), cbf_file(33)).unwrap();
    assert_eq!(import.verify(&GO, &mut |_| ()).unwrap().first_different, Some(2));
    let other = Import::open(asked).unwrap().run(&GO, &mut |_| ()).unwrap_err();
    assert!(other.to_string().contains("other settings"), "{other}");
}

#[test]
fn damaged_files_end_it_or_become_lost_images() {
    let (from, to) = (folder(&[1, 2, 3, 4]), tempfile::tempdir().unwrap());
    let whole = cbf_file(3);
    std::fs::write(from.path().join("t_0003.cbf"), &whole[..whole.len() - 4200]).unwrap();
    let asked = request(&from, &to.path().join("run"));
    let failure = Import::open(asked.clone()).unwrap().run(&GO, &mut |_| ()).unwrap_err();
    assert!(failure.to_string().contains("t_0003.cbf") && failure.exit == Exit::Configuration, "{failure}");
    let asked = Request { overwrite: true, skip_unreadable: true, ..asked };
    let done = Import::open(asked).unwrap().run(&GO, &mut |_| ()).unwrap();
    assert_eq!((done.complete, done.lost, done.unreadable.len(), done.exit()), (3, 1, 1, Exit::Incomplete));
    std::fs::write(
        from.path().join("t_0003.cbf"),
        [&cbf::head("t", &[], [2, 2], &[1, 2, 3, 4])[..], &[1, 2, 3, 4], &cbf::tail()].concat(),
    )
    .unwrap();
    let other = Import::open(request(&from, &to.path().join("other"))).unwrap().run(&GO, &mut |_| ()).unwrap_err();
    assert!(other.to_string().contains("is 2 x 2 int32, the first image of the series is 3 x 5 int32"), "{other}");
}

#[test]
fn a_folder_is_watched_with_the_files_that_were_there() {
    let (from, to) = (folder(&[1, 2, 4]), tempfile::tempdir().unwrap());
    std::fs::write(from.path().join("other_1.cbf"), cbf_file(1)).unwrap();
    let asked = request(&from, &to.path().join("run"));
    let path = from.path().to_owned();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        for n in [6, 5] {
            std::fs::write(path.join(format!("t_{n:04}.cbf")), cbf_file(n)).unwrap();
        }
    });
    let end = WatchEnd { images: Some(6), idle: None };
    let watch = Watch { end, wait: Duration::from_millis(700), ..Watch::default() };
    // The first name in the order of names decides the series.
    std::fs::remove_file(from.path().join("other_1.cbf")).unwrap();
    std::fs::write(from.path().join("z_1.cbf"), cbf_file(1)).unwrap();
    let done = watch.run(&asked, &GO, &mut |_| ()).unwrap();
    later.join().unwrap();
    assert_eq!((done.complete, done.lost, done.file.images), (5, 1, 6));
    let idle = Watch { end: WatchEnd { images: None, idle: Some(Duration::from_millis(800)) }, ..watch };
    let done = idle.run(&Request { overwrite: true, ..asked.clone() }, &GO, &mut |_| ()).unwrap();
    assert_eq!((done.complete, done.lost), (5, 1));
    let table = Request { table: Some("x.csv".into()), ..asked };
    assert!(watch.run(&table, &GO, &mut |_| ()).unwrap_err().to_string().contains("cannot be used with --watch"));
}
