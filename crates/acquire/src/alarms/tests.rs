use super::tally::Tally;
use super::watch::{Alarm, Change, Measured, Watch};
use konkordia_config::alarms::AlarmSettings;
use std::time::Duration;

fn settings() -> AlarmSettings {
    AlarmSettings {
        window: Duration::from_secs(4),
        loss_ratio: Some(0.1),
        no_hits: Some(Duration::from_secs(5)),
        hit_drop_ratio: Some(0.5),
        value_max: Some(1000.0),
        saturated_max: Some(3),
        invalid_max: Some(7),
        ice_ratio: Some(0.25),
        unanalysed_ratio: Some(0.5),
        beam_shift_px: Some(2.0),
        pedestal_age: Some(Duration::from_secs(3600)),
        pedestal_drift_adu: Some(5.0),
        program: Vec::new(),
        timeout: Duration::ZERO,
        address: None,
    }
}

/// Looks every 100 ms for `seconds` while 100 images come each second; `change` says what else comes with each look.
struct Bench {
    watch: Watch,
    now: Duration,
    measured: Measured,
}

impl Bench {
    fn new() -> Self {
        let measured = Measured { is_running: true, run: 1, ..Measured::default() };
        Self { watch: Watch::new(settings()), now: Duration::ZERO, measured }
    }

    fn run(&mut self, seconds: u32, change: impl Fn(&mut Measured)) -> Vec<(&'static str, bool)> {
        let mut found = Vec::new();
        for _ in 0..seconds * 10 {
            self.now += Duration::from_millis(100);
            self.measured.images += 10;
            let extremes = Tally { value_max: Some(20.0), saturated_max: Some(0), invalid_max: Some(0), ..self.measured.tally };
            self.measured.tally =
                Tally { with_analysis: extremes.with_analysis + 10, pedestals_taken_s: Some(6_400), ..extremes };
            self.measured.unix_s = 10_000;
            change(&mut self.measured);
            for Change { alarm, message } in self.watch.look(self.now, self.measured) {
                found.push((alarm.name(), message.is_some()));
            }
        }
        found
    }
}

/// Everything is well: all images analysed, half of them hits.
fn well(measured: &mut Measured) {
    measured.tally.analysed += 10;
    measured.tally.hits += 5;
    measured.tally.spots += 100;
    measured.tally.beam_images += 1;
    measured.tally.pedestal_drift_adu = Some(5.0);
}

#[test]
fn each_alarm_begins_with_its_cause_and_ends_after_it() {
    type Cause = fn(&mut Measured);
    let causes: [(Alarm, Cause); 10] = [
        (Alarm::Loss, |m| m.bad_images += 2),
        (Alarm::Strong, |m| m.tally.value_max = Some(1001.0)),
        (Alarm::Saturated, |m| m.tally.saturated_max = Some(4)),
        (Alarm::Invalid, |m| m.tally.invalid_max = Some(8)),
        (Alarm::Ice, |m| m.tally.ice_spots += 60),
        (Alarm::Unanalysed, |m| m.tally.analysed -= 9),
        (Alarm::HitDrop, |m| m.tally.hits -= 4),
        (Alarm::BeamShift, |m| m.tally.beam_shifts_px[1] -= 3.0),
        (Alarm::PedestalAge, |m| m.unix_s = 10_001),
        (Alarm::PedestalDrift, |m| m.tally.pedestal_drift_adu = Some(5.1)),
    ];
    for (alarm, cause) in causes {
        let mut bench = Bench::new();
        assert_eq!(bench.run(30, well), [], "{alarm:?}");
        let bad = |m: &mut Measured| {
            well(m);
            cause(m);
        };
        assert_eq!(bench.run(10, bad), [(alarm.name(), true)], "{alarm:?}");
        assert!(bench.watch.is_alarmed());
        assert_eq!(bench.run(60, well), [(alarm.name(), false)], "{alarm:?}");
        assert!(!bench.watch.is_alarmed());
        // What is just within the limits is no alarm.
        assert!(!alarm.fix().is_empty());
    }
}

#[test]
fn no_hits_for_long_is_an_alarm_until_one_comes() {
    let mut bench = Bench::new();
    let empty = |m: &mut Measured| m.tally.analysed += 10;
    assert_eq!(bench.run(4, empty), []);
    assert_eq!(bench.run(4, empty), [("no_hits", true)]);
    assert_eq!(bench.run(4, well), [("no_hits", false)]);
    // Nobody analyses, so nobody can find a hit.
    let mut blind = Bench::new();
    assert_eq!(blind.run(60, |m| m.tally.with_analysis -= 10), []);
}

#[test]
fn an_alarm_ends_with_its_run_and_a_new_run_begins_without_one() {
    let mut bench = Bench::new();
    bench.run(5, well);
    let lossy = |m: &mut Measured| {
        well(m);
        m.bad_images += 5;
    };
    assert_eq!(bench.run(5, lossy), [("loss", true)]);
    bench.measured = Measured { is_running: false, run: 1, ..Measured::default() };
    let mut ended = Vec::new();
    for _ in 0..40 {
        bench.now += Duration::from_millis(100);
        ended.extend(bench.watch.look(bench.now, bench.measured));
    }
    assert_eq!(ended, [Change { alarm: Alarm::Loss, message: None }]);
    bench.measured = Measured { is_running: true, run: 2, ..Measured::default() };
    assert_eq!(bench.run(30, well), []);
}
