//! The handle is enough for a control server: the example, which knows no HTTP, takes a run over real sockets.

#[path = "../examples/control_server.rs"]
mod control_server;

use control_server::{IMAGES, Outcome, configuration, free_port, measure, words};
use konkordia_acquire::handle::{ArmRequest, Command, DetectorState, FileState, News, RefusalCode};
use konkordia_acquire::service::Detectors;
use std::time::Duration;

#[test]
fn a_server_without_http_takes_a_run_and_sees_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let Outcome { status, events, files, newest } = measure(folder.path()).unwrap();
    assert_eq!((status.state, status.run, status.ended.as_deref()), (DetectorState::Idle, 1, Some("finished")), "{status:?}");
    assert_eq!((status.images_expected, status.images_committed, status.images_lost), (Some(IMAGES), IMAGES, 0));
    let file = &files[..];
    assert!(matches!(file, [one] if one.state == FileState::Complete && one.images == IMAGES), "{file:?}");
    let newest = newest.unwrap();
    let plane = newest.plane(0).unwrap();
    let expected: Vec<u8> = words(IMAGES - 1).iter().flat_map(|word| word.to_le_bytes()).collect();
    let number = plane.image.number;
    assert!(number == IMAGES - 1 && plane.size() == (512, 1024) && plane.bytes == expected, "image {number}");
    // The event of the last state may come after the end of the wait; what this machine lacks is a warning.
    let kinds: Vec<&str> =
        events.iter().map(|event| event.event.as_str()).filter(|kind| !["state", "warning"].contains(kind)).collect();
    assert_eq!(kinds, ["run_started", "file", "run_ended"], "{events:?}");
}

#[test]
fn the_example_runs() {
    control_server::main().unwrap();
}

#[test]
fn refusals_are_types_and_waits_end_with_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let text = configuration(folder.path(), free_port().unwrap());
    let service = konkordia_config::service::load_text(&text, &folder.path().join("run.toml")).unwrap();
    let detectors = Detectors::start(&service, |detector| detector).unwrap();
    let fleet = detectors.fleet();
    assert_eq!(fleet.find(Some("other")).err().map(|refusal| refusal.code), Some(RefusalCode::UnknownDetector));
    let detector = fleet.find(Some("detector")).unwrap();
    assert!(detector.free_bytes().unwrap() > 0);
    let mut events = fleet.events.subscribe();
    let code =
        |command| detector.command(command, "alice").map(|status| status.state).map_err(|refusal| (refusal.code, refusal.state));
    let arm = |images| Command::Arm(Box::new(ArmRequest { images: Some(images), ..ArmRequest::default() }));
    assert_eq!(code(Command::Trigger), Err((RefusalCode::NoTrigger, Some(DetectorState::Idle))));
    assert_eq!(code(arm(1 << 41)), Err((RefusalCode::BadRequest, Some(DetectorState::Idle))));
    let refused =
        std::iter::from_fn(|| events.read()).filter(|news| matches!(news, News::Event(event) if event.event == "refused"));
    assert_eq!(refused.count(), 2);
    assert_eq!(code(arm(1)), Ok(DetectorState::Armed));
    assert_eq!(code(arm(1)), Err((RefusalCode::WrongState, Some(DetectorState::Armed))));
    let (status, reached) = fleet.wait_for(&*detector, Duration::ZERO, |status| status.has_ended(1));
    assert_eq!((status.state, reached), (DetectorState::Armed, false));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| fleet.wait_for(&*detector, Duration::MAX, |status| status.has_ended(1)));
        assert_eq!(code(Command::Cancel), Ok(DetectorState::Idle));
        assert_eq!(waiting.join().unwrap().0.state, DetectorState::Idle);
        let waiting = scope.spawn(|| fleet.wait_for(&*detector, Duration::MAX, |_| false));
        fleet.stop();
        assert!(!waiting.join().unwrap().1);
    });
}
