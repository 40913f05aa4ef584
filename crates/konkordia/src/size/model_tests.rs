use super::*;

const PERIOD_S: f64 = 1e-3;

/// Every step needs `1 / headroom` of its time, and the buffers are deep.
fn model(headroom: f64) -> Model {
    let busy = Service { mean_s: PERIOD_S / headroom, spread_s: 0.0 };
    Model {
        images: 20_000,
        period_s: PERIOD_S,
        arrivals: Arrivals::Even,
        sending_s: PERIOD_S,
        streams: 3,
        socket_images: 64.0,
        receive: busy,
        slots: 100,
        workers: 4,
        work: busy,
        strip_slots: 16,
        join: busy,
        pool_images: 84,
        write: busy,
        cache_images: 50,
        disk: busy,
        pauses: Pauses::default(),
        stalls: Pauses::default(),
        seed: 1,
    }
}

/// A queue with one server: everything else takes no time.
fn one_queue(utilisation: f64) -> Model {
    let nothing = Service::default();
    let work = Service { mean_s: PERIOD_S * utilisation, spread_s: 0.0 };
    Model {
        sending_s: 0.0,
        streams: 1,
        workers: 1,
        work,
        receive: nothing,
        join: nothing,
        write: nothing,
        disk: nothing,
        ..model(1.0)
    }
}

fn checked(model: &Model) -> Outcome {
    let outcome = model.run(50);
    assert_eq!(outcome.whole + outcome.partial + outcome.lost + outcome.refused, outcome.images, "{model:?}");
    for fill in &outcome.fills {
        assert!(fill.images_max <= fill.capacity + 1e-9, "{}: {} of {}", fill.name, fill.images_max, fill.capacity);
        assert_eq!(fill.over_time.len(), 50);
    }
    outcome
}

#[test]
fn with_headroom_and_without_pauses_nothing_is_lost_and_buffers_stay_empty() {
    for headroom in [1.001, 1.1, 2.0, 100.0] {
        let outcome = checked(&model(headroom));
        assert_eq!((outcome.whole, outcome.first_loss_s), (20_000, None), "{headroom}");
        assert!(outcome.fills.iter().all(|fill| fill.images_max <= 3.0), "{headroom}: {:?}", outcome.fills);
        // Five steps, each at most a period long, after the last packet.
        assert!(outcome.latency_s[2] <= 5.1 * PERIOD_S && outcome.latency_s[0] <= outcome.latency_s[2]);
    }
}

#[test]
fn above_utilisation_1_the_loss_is_what_does_not_fit() {
    for step in ["receive", "work", "join", "write", "disk"] {
        for utilisation in [1.25, 2.0] {
            let mut model = model(10.0);
            let slow = Service { mean_s: PERIOD_S * utilisation, spread_s: 0.0 };
            *match step {
                "receive" => &mut model.receive,
                "work" => &mut model.work,
                "join" => &mut model.join,
                "write" => &mut model.write,
                _ => &mut model.disk,
            } = slow;
            let outcome = checked(&model);
            let expected = 1.0 - 1.0 / utilisation;
            // What the buffers keep at the end is not lost: about 300 of 20 000.
            assert!((outcome.loss() - expected).abs() < 0.02, "{step} at {utilisation}: {} lost", outcome.loss());
            // A socket loses parts, all others leave no slot.
            assert_eq!(outcome.refused == 0, step == "receive", "{step}: {outcome:?}");
        }
    }
}

#[test]
fn loss_begins_when_the_buffers_behind_the_ring_are_full() {
    // The disk takes 9 of 10 images, so 100 images more are waiting each second.
    let mut model = model(10.0);
    model.disk.mean_s = PERIOD_S / 0.9;
    let outcome = checked(&model);
    let room = (model.cache_images + model.pool_images + model.slots) as f64;
    let begins_s = room / 100.0;
    let first_s = outcome.first_loss_s.unwrap();
    // The ring of strips holds up to 16 more, at 100 a second.
    assert!((0.95 * begins_s..1.05 * begins_s + 0.17).contains(&first_s), "{first_s} instead of {begins_s}");
}

#[test]
fn a_stall_of_the_disk_is_lost_as_far_as_it_exceeds_the_buffers() {
    let longest_s = |outcome: &Outcome| outcome.latency_s[2];
    let stalled = |length_s: f64| {
        let mut model = Model { images: 5_000, ..model(4.0) };
        model.stalls = Pauses { every_s: 2.0, length_s };
        model
    };
    let room = 50 + 84 + 100;
    let short = checked(&stalled(0.2));
    assert_eq!(short.loss(), 0.0);
    assert!(longest_s(&short) > 0.1, "{short:?}");
    let long = checked(&stalled(0.6));
    let stalls = (long.refused as f64 / (600.0 - f64::from(room))).round();
    assert!(stalls >= 1.0 && long.refused > 0 && long.partial + long.lost == 0, "{long:?}");
    let per_stall = long.refused as f64 / stalls;
    assert!((300.0..=380.0).contains(&per_stall), "{per_stall} of 366 lost in each of {stalls} stalls");
}

#[test]
fn a_queue_with_random_arrivals_is_as_long_as_theory_says() {
    for utilisation in [0.3f64, 0.6, 0.8, 0.9] {
        let mut model = one_queue(utilisation);
        (model.images, model.arrivals) = (400_000, Arrivals::Random);
        (model.slots, model.strip_slots, model.pool_images, model.cache_images) = (10_000, 10_000, 10_000, 10_000);
        model.socket_images = 10_000.0;
        let outcome = checked(&model);
        assert_eq!(outcome.loss(), 0.0);
        // Pollaczek and Khinchine, deterministic service: those waiting and the one that is served.
        let expected = utilisation + utilisation * utilisation / (2.0 * (1.0 - utilisation));
        let ratio = outcome.ring_mean / expected;
        assert!((0.95..1.05).contains(&ratio), "{utilisation}: {} instead of {expected}", outcome.ring_mean);
    }
}

#[test]
fn spread_makes_a_queue_longer_as_theory_says() {
    // A random service with spread s: the waiting grows by 1 + (s / mean)^2.
    let utilisation = 0.8f64;
    let mut model = one_queue(utilisation);
    (model.images, model.arrivals) = (400_000, Arrivals::Random);
    (model.slots, model.strip_slots, model.pool_images, model.cache_images) = (10_000, 10_000, 10_000, 10_000);
    model.work.spread_s = 0.3 * model.work.mean_s;
    let waiting = checked(&model).ring_mean - utilisation;
    let expected = 1.09 * utilisation * utilisation / (2.0 * (1.0 - utilisation));
    assert!((0.95..1.05).contains(&(waiting / expected)), "{waiting} instead of {expected}");
}

#[test]
fn pauses_take_the_time_that_they_should() {
    // A thread that pauses a third of its time has two thirds of its capacity.
    let mut model = one_queue(1.0);
    model.images = 200_000;
    model.pauses = Pauses { every_s: 0.02, length_s: 0.01 };
    // Only the worker is busy enough to be paused.
    let loss = checked(&model).loss();
    assert!((loss - 1.0 / 3.0).abs() < 0.01, "{loss}");
    // With headroom for the pauses and a ring for the longest, nothing is lost.
    model.work.mean_s = PERIOD_S / 3.0;
    assert_eq!(checked(&model).loss(), 0.0);
}

#[test]
fn every_image_is_in_exactly_one_place_at_any_time() {
    for seed in 0..20 {
        let mut rng = Rng::keyed(seed, &[9]);
        let mut drawn = |most: f64| Service { mean_s: most * PERIOD_S * rng.uniform(), spread_s: 0.2 * PERIOD_S * rng.uniform() };
        let mut model = Model { images: 3_000, seed, streams: 1 + seed as usize % 5, ..model(1.0) };
        (model.receive, model.work, model.join, model.write, model.disk) =
            (drawn(1.2), drawn(1.2), drawn(1.2), drawn(1.2), drawn(1.2));
        (model.pauses, model.stalls) = (Pauses { every_s: 0.1, length_s: 0.02 }, Pauses { every_s: 0.5, length_s: 0.1 });
        checked(&model);
        let mut run = model.start();
        (0..model.images).for_each(|n| run.image(n as f64 * PERIOD_S));
        for image in &run.all {
            // The steps come one after the other, so the times divide an image's life without gap and overlap.
            let times =
                [image.sent_s, image.begun_s, image.work_s, image.joining_s, image.joined_s, image.written_s, image.stored_s];
            assert!(times.windows(2).all(|pair| pair[0] <= pair[1]) && times.iter().all(|time| time.is_finite()), "{image:?}");
            // It leaves the ring when it is packed; one that was not taken leaves it when those before it have.
            let is_taken = matches!(image.state, State::Whole | State::Partial);
            assert!(image.work_s <= image.committed_s && (!is_taken || image.committed_s <= image.joining_s), "{image:?}");
        }
        assert!(run.all.windows(2).all(|pair| pair[0].committed_s <= pair[1].committed_s));
    }
}

#[test]
fn a_seed_repeats_everything() {
    let mut model = model(1.05);
    (model.pauses, model.work.spread_s) = (Pauses { every_s: 0.05, length_s: 0.01 }, 2e-4);
    assert_eq!(model.run(30), model.run(30));
    let other = Model { seed: 2, ..model.clone() };
    assert_ne!(model.run(30), other.run(30));
    assert_eq!(Model { images: 0, ..model }.run(30).loss(), 0.0);
}
