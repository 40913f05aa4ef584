//! Installations and rates, for the simulator, the demonstration and the benches.

/// One detector installation as published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePreset {
    /// Short name for a command line.
    pub name: &'static str,
    /// Where and what.
    pub description: &'static str,
    /// JUNGFRAU modules of 512 x 1024 pixels.
    pub modules: usize,
    /// UDP interfaces per module.
    pub interfaces: usize,
    /// Images per second.
    pub frame_hz: f64,
    /// Exposure of one image in microseconds.
    pub exposure_us: f64,
}

impl RatePreset {
    /// Raw pixel bytes per second of the whole detector (headers not counted).
    pub fn bytes_per_second(&self) -> f64 {
        self.modules as f64 * 512.0 * 1024.0 * 2.0 * self.frame_hz
    }

    /// Time from image to image in nanoseconds.
    pub fn period_ns(&self) -> u64 {
        (1e9 / self.frame_hz).round() as u64
    }
}

/// Table I of Leonarski et al. 2020 (Structural Dynamics 7, 014305): 3.4, 9.2 and 46.1 GB/s.
pub const PRESETS: [RatePreset; 3] = [
    RatePreset {
        name: "swissfel-16m",
        description: "SwissFEL, JUNGFRAU 16M, 100 Hz",
        modules: 32,
        interfaces: 1,
        frame_hz: 100.0,
        exposure_us: 10.0,
    },
    RatePreset {
        name: "sls-4m",
        description: "SLS 2018, JUNGFRAU 4M, 1.1 kHz",
        modules: 8,
        interfaces: 1,
        frame_hz: 1100.0,
        exposure_us: 840.0,
    },
    RatePreset {
        name: "sls-10m",
        description: "SLS 2021, JUNGFRAU 10M, 2.2 kHz",
        modules: 20,
        interfaces: 2,
        frame_hz: 2200.0,
        exposure_us: 450.0,
    },
];

/// The preset of this name.
pub fn preset(name: &str) -> Option<&'static RatePreset> {
    PRESETS.iter().find(|p| p.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_table() {
        let rates: Vec<i64> = PRESETS.iter().map(|p| (p.bytes_per_second() / 1e8).round() as i64).collect();
        assert_eq!(rates, [34, 92, 461]);
        assert_eq!(preset("sls-10m").map(RatePreset::period_ns), Some(454_545));
        assert!(preset("nowhere").is_none());
    }
}
