//! The rules of alarms: what is measured goes in with its time, what begins and ends comes out. No clock.

use super::tally::Tally;
use konkordia_config::alarms::AlarmSettings;
use std::collections::VecDeque;
use std::time::Duration;

/// An alarm ends when its cause has been gone for so long.
const QUIET: Duration = Duration::from_secs(2);
/// Time between two samples of the counters.
const SAMPLE: Duration = Duration::from_millis(500);
/// Windows with which the hit rate of the newest one is compared.
const WINDOWS_BEFORE: u32 = 5;
/// Fewest images of which a share is taken.
const IMAGES_MIN: u64 = 10;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Images are lost or partial.
    Loss,
    /// No hit for long.
    NoHits,
    /// Far fewer hits than before.
    HitDrop,
    /// A very high pixel.
    Strong,
    /// Many saturated pixels.
    Saturated,
    /// Illegal gain codes.
    Invalid,
    /// Spots on rings of ice.
    Ice,
    /// Images pass without analysis.
    Unanalysed,
    /// The beam is off its centre.
    BeamShift,
    /// Old pedestals.
    PedestalAge,
    /// The pedestals move.
    PedestalDrift,
}

impl Alarm {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Loss,
        Self::NoHits,
        Self::HitDrop,
        Self::Strong,
        Self::Saturated,
        Self::Invalid,
        Self::Ice,
        Self::Unanalysed,
        Self::BeamShift,
        Self::PedestalAge,
        Self::PedestalDrift,
    ];

    /// Its name, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::NoHits => "no_hits",
            Self::HitDrop => "hit_drop",
            Self::Strong => "strong",
            Self::Saturated => "saturated",
            Self::Invalid => "invalid",
            Self::Ice => "ice",
            Self::Unanalysed => "unanalysed",
            Self::BeamShift => "beam_shift",
            Self::PedestalAge => "pedestal_age",
            Self::PedestalDrift => "pedestal_drift",
        }
    }

    /// What to do.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Loss => "look at the ledger; konkordia doctor says what the host lost",
            Self::NoHits => "look at the newest image, the beam, the shutter and the sample",
            Self::HitDrop => "look at the newest image and the sample delivery",
            Self::Strong => "attenuate the beam, and look at the newest image: a strong reflection can damage the detector",
            Self::Saturated => "attenuate the beam, and look at the newest image: too much light can damage the detector",
            Self::Invalid => "look at the state of the detector; take dark frames again when it is well",
            Self::Ice => "look at the cryo stream and the sample",
            Self::Unanalysed => "give the analysis more workers, or ask for less in the recipe",
            Self::BeamShift => "steer the beam back, or correct beam_center_x_px and beam_center_y_px in the configuration",
            Self::PedestalAge => "take dark frames: konkordia pedestal, or the command `pedestal` of the service",
            Self::PedestalDrift => "look at the temperature of the detector; take dark frames when it is stable",
        }
    }

    /// It is on in these settings.
    pub fn is_on(self, settings: &AlarmSettings) -> bool {
        match self {
            Self::Loss => settings.loss_ratio.is_some(),
            Self::NoHits => settings.no_hits.is_some(),
            Self::HitDrop => settings.hit_drop_ratio.is_some(),
            Self::Strong => settings.value_max.is_some(),
            Self::Saturated => settings.saturated_max.is_some(),
            Self::Invalid => settings.invalid_max.is_some(),
            Self::Ice => settings.ice_ratio.is_some(),
            Self::Unanalysed => settings.unanalysed_ratio.is_some(),
            Self::BeamShift => settings.beam_shift_px.is_some(),
            Self::PedestalAge => settings.pedestal_age.is_some(),
            Self::PedestalDrift => settings.pedestal_drift_adu.is_some(),
        }
    }
}

/// What is measured at one moment, since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Data are being taken.
    pub is_running: bool,
    /// The run.
    pub run: u64,
    /// Images in their final state.
    pub images: u64,
    /// Those that are lost or partial.
    pub bad_images: u64,
    /// Seconds since 1970.
    pub unix_s: u64,
    /// Of their results.
    pub tally: Tally,
}

/// An alarm begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub alarm: Alarm,
    /// What is wrong, if it begins.
    pub message: Option<String>,
}

/// Watches one detector.
pub struct Watch {
    settings: AlarmSettings,
    samples: VecDeque<(Duration, Measured)>,
    /// When the newest hit was seen, and how many there were.
    newest_hit: (Duration, u64),
    raised: [Option<Duration>; Alarm::ALL.len()],
}

impl Watch {
    /// With these limits.
    pub fn new(settings: AlarmSettings) -> Self {
        Self { settings, samples: VecDeque::new(), newest_hit: Default::default(), raised: Default::default() }
    }

    /// True while an alarm has not ended.
    pub fn is_alarmed(&self) -> bool {
        self.raised.iter().any(Option::is_some)
    }

    /// Takes what is measured at `now`, which never goes back.
    pub fn look(&mut self, now: Duration, measured: Measured) -> Vec<Change> {
        let is_new_run = self.samples.back().is_some_and(|(_, last)| last.run != measured.run || last.images > measured.images);
        if is_new_run || !measured.is_running {
            self.samples.clear();
        }
        if measured.tally.hits != self.newest_hit.1 || self.samples.is_empty() {
            self.newest_hit = (now, measured.tally.hits);
        }
        if self.samples.back().is_none_or(|(at, _)| now - *at >= SAMPLE) {
            self.samples.push_back((now, measured));
        }
        let longest = self.settings.window * (WINDOWS_BEFORE + 1);
        while self.samples.get(1).is_some_and(|(at, _)| now - *at >= longest) {
            self.samples.pop_front();
        }
        let mut changes = Vec::new();
        for (n, alarm) in Alarm::ALL.into_iter().enumerate() {
            match (self.cause(alarm, now, &measured), &mut self.raised[n]) {
                (Some(message), raised @ None) => {
                    *raised = Some(now);
                    changes.push(Change { alarm, message: Some(message) });
                }
                (Some(_), Some(seen)) => *seen = now,
                (None, raised) => {
                    if raised.take_if(|seen| now - *seen >= QUIET).is_some() {
                        changes.push(Change { alarm, message: None });
                    }
                }
            }
        }
        changes
    }

    /// Why there is an alarm now.
    fn cause(&self, alarm: Alarm, now: Duration, measured: &Measured) -> Option<String> {
        let (settings, tally) = (&self.settings, &measured.tally);
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let window_s = settings.window.as_secs_f64();
        match alarm {
            Alarm::Loss => {
                let share = self.share(now, measured, |m| (m.bad_images, m.images))?;
                let limit = settings.loss_ratio?;
                (share > limit).then(|| {
                    format!(
                        "{} of the images of the last {window_s} s are lost or partial, more than {}",
                        percent(share),
                        percent(limit)
                    )
                })
            }
            Alarm::NoHits => {
                let (limit, since) = (settings.no_hits?, now - self.newest_hit.0);
                let is_empty = measured.is_running && tally.analysed > 0 && since > limit;
                is_empty.then(|| format!("no hit came for {:.0} s", since.as_secs_f64()))
            }
            Alarm::HitDrop => self.hit_drop(now, measured),
            Alarm::Strong => {
                let (limit, value) = (settings.value_max?, tally.value_max?);
                (value > limit).then(|| format!("a pixel has the value {value}, more than {limit}"))
            }
            Alarm::Saturated => {
                let (limit, count) = (settings.saturated_max?, tally.saturated_max?);
                (count > limit).then(|| format!("an image has {count} saturated pixels, more than {limit}"))
            }
            Alarm::Invalid => {
                let (limit, count) = (settings.invalid_max?, tally.invalid_max?);
                (count > limit).then(|| format!("an image has {count} pixels with an illegal gain code, more than {limit}"))
            }
            Alarm::Ice => {
                let share = self.share(now, measured, |m| (m.tally.ice_spots, m.tally.spots))?;
                let limit = settings.ice_ratio?;
                (share > limit).then(|| format!("{} of the spots of the last {window_s} s lie on rings of ice", percent(share)))
            }
            Alarm::Unanalysed => {
                let missed = |m: &Measured| (m.tally.with_analysis - m.tally.analysed, m.tally.with_analysis);
                let (share, limit) = (self.share(now, measured, missed)?, settings.unanalysed_ratio?);
                (share > limit).then(|| format!("{} of the images of the last {window_s} s were not analysed", percent(share)))
            }
            Alarm::BeamShift => self.beam_shift(now, measured),
            Alarm::PedestalAge => measured.is_running.then(|| self.pedestal_age(measured)).flatten(),
            Alarm::PedestalDrift => {
                let (limit, drift) = (settings.pedestal_drift_adu?, tally.pedestal_drift_adu?);
                let has_moved = measured.is_running && drift > limit;
                has_moved.then(|| format!("a tenth of the pedestals have moved by more than {drift:.1} ADU since the run began"))
            }
        }
    }

    /// The share `of.0` of `of.1` in the last window; `None` for too few.
    fn share(&self, now: Duration, measured: &Measured, of: impl Fn(&Measured) -> (u64, u64)) -> Option<f64> {
        Self::between(self.before(now)?, measured, of)
    }

    /// What was measured at the beginning of the last window, or of the run.
    fn before(&self, now: Duration) -> Option<&Measured> {
        let is_before = |(at, _): &&(Duration, Measured)| now - *at >= self.settings.window;
        self.samples.iter().rev().find(is_before).or(self.samples.front()).map(|(_, before)| before)
    }

    fn beam_shift(&self, now: Duration, measured: &Measured) -> Option<String> {
        let (limit, before, after) = (self.settings.beam_shift_px?, self.before(now)?.tally, measured.tally);
        let images = after.beam_images.checked_sub(before.beam_images)?;
        let [x, y] = [0, 1].map(|axis| (after.beam_shifts_px[axis] - before.beam_shifts_px[axis]) / images as f64);
        (measured_enough(images) && x.hypot(y) > limit).then(|| {
            let images = format!("by the ring in {images} images");
            format!("the beam is {:.1} pixels from its centre ({x:+.1} along x, {y:+.1} along y) {images}", x.hypot(y))
        })
    }

    fn pedestal_age(&self, measured: &Measured) -> Option<String> {
        let limit = self.settings.pedestal_age?;
        let Some(taken_s) = measured.tally.pedestals_taken_s else {
            return Some("it is not known when the pedestals were taken".into());
        };
        let age = Duration::from_secs(measured.unix_s.saturating_sub(taken_s));
        (age > limit).then(|| format!("the pedestals are {:.1} hours old", age.as_secs_f64() / 3600.0))
    }

    fn between(before: &Measured, after: &Measured, of: impl Fn(&Measured) -> (u64, u64)) -> Option<f64> {
        let (before, after) = (of(before), of(after));
        let (part, all) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
        (measured_enough(all)).then(|| part as f64 / all as f64)
    }

    fn hit_drop(&self, now: Duration, measured: &Measured) -> Option<String> {
        let limit = self.settings.hit_drop_ratio?;
        let hits = |m: &Measured| (m.tally.hits, m.tally.analysed);
        let middle = self.samples.iter().rev().find(|(at, _)| now - *at >= self.settings.window)?;
        let first = self.samples.front()?;
        let (before, after) = (Self::between(&first.1, &middle.1, hits)?, Self::between(&middle.1, measured, hits)?);
        // Of nothing there is no drop.
        (before >= 0.01 && after < limit * before)
            .then(|| format!("the hit rate fell from {:.1} % to {:.1} %", 100.0 * before, 100.0 * after))
    }
}

fn measured_enough(all: u64) -> bool {
    all >= IMAGES_MIN
}
