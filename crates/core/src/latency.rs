//! How long images take from their first byte to each stage of their way. Whoever brings an image to a stage counts it
//! at the meter of its run or series, which comes with the start of the series and has the clock
//! (docs/decisions/0027-latency.md).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// A stage on the way of an image. Only images with pixels count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The last of its tiles was sealed, or all of its parts were there.
    Assembled,
    /// Its last strip was done; of messages, a worker was done with it.
    Converted,
    /// It has its place in the order of images.
    Committed,
    /// It is the newest image for those who ask for one.
    Seen,
    /// It was written to its file: other programs find it there, but a power cut may lose it.
    Written,
    /// It is on the disk.
    Durable,
    /// It was handed to the socket of a consumer; counted once for each consumer.
    Streamed,
}

impl Stage {
    /// All of them, in the order in which images come to them. After `Seen` an image goes to files and consumers at
    /// once.
    pub const ALL: [Self; 7] =
        [Self::Assembled, Self::Converted, Self::Committed, Self::Seen, Self::Written, Self::Durable, Self::Streamed];

    /// Name in reports, files and interfaces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assembled => "assembled",
            Self::Converted => "converted",
            Self::Committed => "committed",
            Self::Seen => "seen",
            Self::Written => "written",
            Self::Durable => "durable",
            Self::Streamed => "streamed",
        }
    }

    /// The stage of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// How long images took from their first byte to a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLatency {
    /// The stage.
    pub stage: Stage,
    /// Images counted, at least one.
    pub images: u64,
    /// Half of the images took no longer, ns.
    pub p50_ns: u64,
    /// 99 per cent of them took no longer, ns.
    pub p99_ns: u64,
    /// 99.9 per cent of them took no longer, ns.
    pub p999_ns: u64,
    /// The longest of all, ns.
    pub max_ns: u64,
}

/// Names of the quantiles in interfaces and files, and the share of images that took no longer, as Prometheus has it.
pub const QUANTILES: [(&str, &str); 4] = [("p50", "0.5"), ("p99", "0.99"), ("p999", "0.999"), ("max", "1")];

impl StageLatency {
    /// The quantiles in us, in the order of [`QUANTILES`].
    pub fn quantiles_us(&self) -> [f64; 4] {
        [self.p50_ns, self.p99_ns, self.p999_ns, self.max_ns].map(|ns| ns as f64 / 1e3)
    }
}

/// Latencies by name, for interfaces: `STAGE_p50_us`, `STAGE_p99_us`, `STAGE_p999_us`, `STAGE_max_us` and
/// `STAGE_images`.
pub fn by_name(latencies: &[StageLatency]) -> BTreeMap<String, f64> {
    let rows = |latency: &StageLatency| {
        let name = latency.stage.name();
        let quantiles = QUANTILES.iter().zip(latency.quantiles_us());
        let quantiles = quantiles.map(move |((quantile, _), us)| (format!("{name}_{quantile}_us"), us));
        quantiles.chain([(format!("{name}_images"), latency.images as f64)]).collect::<Vec<_>>()
    };
    latencies.iter().flat_map(rows).collect()
}

/// Counts the latencies of one run or series. It has the clock by which the times of its images count.
pub trait LatencyMeter: Debug + Send + Sync {
    /// `images` images have come to `stage` now; the first byte of each was received at `received_ns`.
    fn reached(&self, stage: Stage, received_ns: u64, images: u64);

    /// What was counted so far, for stages to which images came, in the order of [`Stage::ALL`].
    fn read(&self) -> Vec<StageLatency>;
}

/// The meter of a run or series, shared by all who bring its images to a stage; by default none, which counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Meter(Option<Arc<dyn LatencyMeter>>);

/// Two starts of series are the same whoever measures their images.
impl PartialEq for Meter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Meter {
    /// Counts at `meter`.
    pub fn new(meter: Arc<dyn LatencyMeter>) -> Self {
        Self(Some(meter))
    }

    /// True if anything is counted.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// An image has come to `stage` now. `received_ns`: when its first byte was received; 0 = unknown, then it does not
    /// count.
    pub fn reached(&self, stage: Stage, received_ns: u64) {
        self.reached_by(stage, received_ns, 1);
    }

    /// As [`Meter::reached`], for several images that were received at about the same time.
    pub fn reached_by(&self, stage: Stage, received_ns: u64, images: u64) {
        if let Some(meter) = self.0.as_ref().filter(|_| received_ns > 0) {
            meter.reached(stage, received_ns, images);
        }
    }

    /// What was counted so far; empty without a meter.
    pub fn read(&self) -> Vec<StageLatency> {
        self.0.as_ref().map_or_else(Vec::new, |meter| meter.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_names_of_one_word_that_are_found_again() {
        for (n, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!((stage as usize, Stage::from_name(stage.name())), (n, Some(stage)));
            assert!(!stage.name().contains('_'), "{}", stage.name());
        }
        assert_eq!(Stage::from_name("lost"), None);
    }

    #[test]
    fn latencies_by_name_are_in_microseconds() {
        let one = StageLatency { stage: Stage::Seen, images: 3, p50_ns: 1500, p99_ns: 2000, p999_ns: 3000, max_ns: 4250 };
        let names: Vec<(String, f64)> = by_name(&[one]).into_iter().collect();
        let wanted = [("images", 3.0), ("max_us", 4.25), ("p50_us", 1.5), ("p999_us", 3.0), ("p99_us", 2.0)];
        assert_eq!(names, wanted.map(|(name, value)| (format!("seen_{name}"), value)));
        assert!(by_name(&Meter::default().read()).is_empty() && !Meter::default().is_on());
    }
}
