//! Cases of the life of series in which only time passes.

use super::world::{Input, MS, World, end, image, start};
use crate::series::notice::{ArmOrder, Command};
use crate::series::spec::SeriesSpec;
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{Accept, Ended};

fn spec(protocol: Protocol) -> SeriesSpec {
    SeriesSpec {
        window_images: 32,
        wait_ns: 150 * MS,
        drain_ns: 150 * MS,
        stall_timeout_ns: 300 * MS,
        start_timeout_ns: 100 * MS,
        ..SeriesSpec::new(protocol)
    }
}

fn armed() -> SeriesSpec {
    SeriesSpec { accept: Accept::WhenArmed, ..spec(Protocol::DectrisV2) }
}

fn ends(world: &World) -> Vec<(u64, Ended)> {
    world.seen.iter().map(|seen| seen.end.as_ref().expect("it has ended")).map(|(at_ns, end)| (*at_ns, end.ended)).collect()
}

#[test]
fn a_header_alone_is_no_image() {
    let mut world = World::new(&armed(), 1, None, 0);
    world.at(0, Input::Command(Command::Arm(ArmOrder::default())));
    world.message(MS, 0, start(1, None, None));
    // As long as the detector was not started, the header is waited with.
    world.at(3_600_000 * MS, Input::Command(Command::StartClock));
    world.run(u64::MAX);
    assert_eq!(ends(&world), [(3_600_100 * MS, Ended::NoData)]);
    world.assert_at_rest();
}

#[test]
fn a_start_that_comes_too_late_is_not_for_the_next_arm() {
    let mut world = World::new(&armed(), 1, None, 0);
    world.at(0, Input::Command(Command::StartClock));
    world.at(150 * MS, Input::Command(Command::Arm(ArmOrder::default())));
    for (n, read) in [start(1, None, Some(1)), image(1, None, 0, false), end(1, None)].into_iter().enumerate() {
        world.message((300 + n as u64) * MS, 0, read);
    }
    world.run(u64::MAX);
    assert_eq!((ends(&world), world.seen[0].states()), (vec![(302 * MS, Ended::Finished)], "c".into()));
    // After the start of the clock the time counts.
    world.at(400 * MS, Input::Command(Command::Arm(ArmOrder::default())));
    world.at(410 * MS, Input::Command(Command::StartClock));
    world.run(u64::MAX);
    assert_eq!(ends(&world)[1], (510 * MS, Ended::NoData));
    world.assert_at_rest();
}

/// The next series came as a whole while this one still waited for an upstream; then nothing comes.
#[test]
fn a_series_that_was_held_begins_at_once_when_the_last_one_has_ended() {
    let mut world = World::new(&spec(Protocol::DectrisV2), 2, None, 0);
    let first = [start(1, None, Some(3)), image(1, None, 0, false), end(1, None)];
    let second = [start(2, None, Some(1)), image(2, None, 0, false), end(2, None)];
    for (n, read) in first.into_iter().chain(second).enumerate() {
        world.message((n as u64 + 1) * MS, 0, read);
    }
    world.run(u64::MAX);
    assert_eq!(ends(&world), [(153 * MS, Ended::Finished), (153 * MS, Ended::Finished)]);
    assert_eq!([world.seen[0].states(), world.seen[1].states()], ["c", "c"]);
    world.assert_at_rest();
}

/// The same where the sources have come to their end: what was held is not kept for ever.
#[test]
fn what_was_held_is_taken_when_the_sources_have_ended() {
    let mut world = World::new(&spec(Protocol::Files), 2, None, 0);
    for (n, (upstream, series, number)) in [(0, 1, 0), (1, 1, 1), (0, 2, 0), (0, 2, 1)].into_iter().enumerate() {
        world.message(n as u64 * MS, upstream, image(series, None, number, false));
    }
    world.at(10 * MS, Input::Command(Command::Stop));
    (0..2).for_each(|upstream| world.at(20 * MS, Input::Closed(upstream, None)));
    world.run(u64::MAX);
    assert_eq!([world.seen[0].states(), world.seen[1].states()], ["cc", "cc"]);
    world.assert_at_rest();
}

/// The image with which a series begins is ahead of the window, so it waits for others; meanwhile the next series comes
/// over the same upstream and over the other.
#[test]
fn an_image_that_waits_begins_its_series_once() {
    for images in [None, Some(0)] {
        let mut world = World::new(&SeriesSpec { images, ..spec(Protocol::Files) }, 2, None, 0);
        for (n, (upstream, series, number)) in [(0, 1, 40), (0, 2, 0), (1, 2, 1), (1, 2, 2)].into_iter().enumerate() {
            world.message(n as u64 * MS, upstream, image(series, None, number, false));
        }
        world.run(400 * MS);
        (0..2).for_each(|upstream| world.at(500 * MS, Input::Closed(upstream, None)));
        world.run(u64::MAX);
        let started = world.seen.iter().filter(|seen| seen.start.series == 1).count();
        assert!(started <= 2 && world.seen.len() < 9, "{images:?}: {:?}", world.seen);
        let states: Vec<String> = world.seen.iter().map(super::world::Seen::states).collect();
        if images.is_none() {
            assert_eq!(states, [format!("{}c", "-".repeat(40)), "ccc".into()]);
        }
        world.assert_at_rest();
    }
}
