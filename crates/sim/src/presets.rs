//! Detectors by name: shape, bits, rate, streams, and who says so. The list serves the simulator, the stream generator
//! and `konkordia size`; each row names its source.
//!
//! Sources of several rows:
//! - *Table I* is that of Leonarski et al. 2020, Structural Dynamics 7, 014305.
//! - *Table 1* is that of Bell et al. 2026, "Data acquisition from high-rate detectors at MAX IV", arXiv 2601.05901. It
//!   names a detector, its images per second and its GB/s. 6 of its 20 rows are here; the text of the other 14 was not
//!   at hand. It has no shapes: they are those of the makers for these models. Bits are those with which shape times
//!   rate comes nearest to the table's GB/s.

/// How the images of a detector reach a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// UDP packets of JUNGFRAU modules, 512 x 1024 pixels each.
    Jungfrau {
        /// Modules.
        modules: u32,
        /// UDP interfaces of a module, 1 or 2; each is a stream.
        interfaces: u8,
    },
    /// Whole images as messages over ZeroMQ. With more than one upstream each of them sends one piece of every image.
    Messages {
        /// Senders.
        upstreams: u32,
    },
}

/// What a detector measures with, which decides where its images are packed (compressed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Counts photons: most pixels are 0 or nearly so, and the sender packs them to a small part (Bell et al. 2026).
    Counting,
    /// Integrates charge: its words are noise at the end, and pack well only as photons.
    Integrating,
    /// A camera (CMOS, CCD) or flat panel: the noise of the dark image fills the low bits, so packing gains little for
    /// its time (Bell et al. 2026).
    Camera,
}

/// One detector as published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectorPreset {
    /// Name on the command line, in small letters.
    pub name: &'static str,
    /// What and where.
    pub description: &'static str,
    /// What it measures with.
    pub class: Class,
    /// Rows of an image as it is sent: all modules or pieces one below the other.
    pub rows: u64,
    /// Columns of an image as it is sent.
    pub columns: u64,
    /// Bits of a pixel as it is sent, without compression.
    pub bits: u32,
    /// Images per second.
    pub frame_hz: f64,
    /// How the images arrive.
    pub wire: Wire,
    /// GB/s of pixels as the source has it. It may count nominal pixels.
    pub published_gb_per_s: Option<f64>,
    /// Who says so.
    pub source: &'static str,
}

/// Rows and columns of a JUNGFRAU module.
const MODULE: (u64, u64) = (512, 1024);

impl DetectorPreset {
    /// Pixels of an image.
    pub fn pixels(&self) -> u64 {
        self.rows * self.columns
    }

    /// Bytes of the pixels of an image as it is sent, without headers and compression.
    pub fn image_bytes(&self) -> u64 {
        (self.pixels() * u64::from(self.bits)).div_ceil(8)
    }

    /// Bytes of pixels per second of the whole detector.
    pub fn bytes_per_second(&self) -> f64 {
        self.image_bytes() as f64 * self.frame_hz
    }

    /// UDP streams, or connections.
    pub fn streams(&self) -> u32 {
        match self.wire {
            Wire::Jungfrau { modules, interfaces } => modules * u32::from(interfaces),
            Wire::Messages { upstreams } => upstreams,
        }
    }
}

/// A row with a JUNGFRAU.
const fn jungfrau(
    name: &'static str,
    description: &'static str,
    wire: (u32, u8),
    frame_hz: f64,
    published_gb_per_s: Option<f64>,
    source: &'static str,
) -> DetectorPreset {
    let (modules, interfaces) = wire;
    DetectorPreset {
        name,
        description,
        class: Class::Integrating,
        rows: MODULE.0 * modules as u64,
        columns: MODULE.1,
        bits: 16,
        frame_hz,
        wire: Wire::Jungfrau { modules, interfaces },
        published_gb_per_s,
        source,
    }
}

/// A row with one sender of whole images. `shape` is rows and columns, `rate` images per second and GB/s.
const fn messages(
    name: &'static str,
    description: &'static str,
    shape: (u64, u64),
    bits: u32,
    rate: (f64, f64),
    source: &'static str,
) -> DetectorPreset {
    DetectorPreset {
        name,
        description,
        class: Class::Counting,
        rows: shape.0,
        columns: shape.1,
        bits,
        frame_hz: rate.0,
        wire: Wire::Messages { upstreams: 1 },
        published_gb_per_s: Some(rate.1),
        source,
    }
}

/// The same detector as a camera.
const fn camera(preset: DetectorPreset) -> DetectorPreset {
    DetectorPreset { class: Class::Camera, ..preset }
}

const TABLE_I: &str = "Leonarski et al. 2020, Table I";
const PAPER_A_TEXT: &str = "Leonarski et al. 2020, comparison in the text; shape of the maker's data sheet";
const TABLE_1: &str = "Bell et al. 2026 (MAX IV), Table 1; shape of the maker's data sheet, bits fitted to its GB/s";
const WINTERSBERGER: &str = "Wintersberger 2011, detectors in the text";

/// All detectors with a name.
pub const PRESETS: [DetectorPreset; 17] = [
    jungfrau(
        "jungfrau-module",
        "one JUNGFRAU module, one interface",
        (1, 1),
        1100.0,
        Some(1.15),
        "Leonarski et al. 2020, one port in the text",
    ),
    jungfrau("jungfrau-4m", "SLS 2018, JUNGFRAU 4M", (8, 1), 1100.0, Some(9.2), TABLE_I),
    jungfrau(
        "jungfrau-9m",
        "JUNGFRAU 9M, 2 kHz",
        (18, 2),
        2000.0,
        Some(36.0),
        "Jungfraujoch at ICALEPCS 2023, THMBCMO38 (abstract); two interfaces assumed",
    ),
    jungfrau("jungfrau-10m", "SLS 2021, JUNGFRAU 10M", (20, 2), 2200.0, Some(46.1), TABLE_I),
    jungfrau("jungfrau-16m", "SwissFEL, JUNGFRAU 16M", (32, 1), 100.0, Some(3.4), TABLE_I),
    jungfrau(
        "jungfrau-4m-id29",
        "ESRF ID29 (EBSL8), 4M, dark and signal images in turn",
        (8, 2),
        2000.0,
        Some(16.0),
        "Ponsard et al. 2020, target in the text; JUNGFRAU modules with two interfaces assumed",
    ),
    messages("eiger2-4m", "MAX IV, EIGER2 4M", (2162, 2068), 16, (500.0, 4.0), TABLE_1),
    DetectorPreset {
        wire: Wire::Messages { upstreams: 4 },
        ..messages("lambda-3m", "MAX IV, Lambda 3M windmill, 4 modules", (4 * 516, 1556), 24, (500.0, 4.5), TABLE_1)
    },
    camera(messages("orca-lightning-12m", "MAX IV, Orca Lightning 12M", (2592, 4608), 12, (120.0, 2.0), TABLE_1)),
    camera(messages("ximea-150m", "MAX IV, XIMEA 150M", (10640, 14192), 12, (6.0, 1.4), TABLE_1)),
    messages("pilatus3-2m", "MAX IV, PILATUS3 2M", (1679, 1475), 32, (250.0, 2.0), TABLE_1),
    camera(messages("pi-mte3", "MAX IV, PI-MTE3", (4096, 4096), 32, (0.06, 0.004), TABLE_1)),
    camera(messages("pco-edge", "PCO Edge", (2160, 2560), 16, (100.0, 1.0), WINTERSBERGER)),
    camera(messages("perkin-elmer-2k", "Perkin-Elmer 2k, background subtracted", (2048, 2048), 32, (15.0, 0.24), WINTERSBERGER)),
    messages("pilatus-6m", "PILATUS 6M", (2527, 2463), 32, (12.5, 0.3), PAPER_A_TEXT),
    messages("eiger2-xe-16m", "EIGER2 XE 16M, steady", (4362, 4148), 16, (400.0, 13.4), PAPER_A_TEXT),
    messages("eiger2-xe-16m-burst", "EIGER2 XE 16M, burst", (4362, 4148), 16, (550.0, 18.5), PAPER_A_TEXT),
];

/// The detector of this name; capital letters count as small ones.
pub fn preset(name: &str) -> Option<&'static DetectorPreset> {
    PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_sources() {
        let rate = |name: &str| (preset(name).unwrap().bytes_per_second() / 1e8).round() as i64;
        // The three rows of Table I, to its last digit.
        assert_eq!((rate("jungfrau-16m"), rate("jungfrau-4m"), rate("jungfrau-10m")), (34, 92, 461));
        for preset in &PRESETS {
            let Some(published) = preset.published_gb_per_s else { continue };
            // Sources count nominal pixels: 2M for the 2.48 million of a PILATUS3 2M.
            let ratio = preset.bytes_per_second() / 1e9 / published;
            assert!((0.95..1.25).contains(&ratio), "{}: {ratio}", preset.name);
        }
    }

    #[test]
    fn every_row_has_its_own_name_and_a_source() {
        for (n, preset) in PRESETS.iter().enumerate() {
            assert!(PRESETS[..n].iter().all(|other| other.name != preset.name), "{}", preset.name);
            assert_eq!(preset.name, preset.name.to_ascii_lowercase());
            assert!(!preset.source.is_empty() && preset.frame_hz > 0.0 && preset.streams() > 0);
            // Each upstream sends whole rows.
            assert_eq!(preset.rows % u64::from(preset.streams()), 0, "{}", preset.name);
        }
        assert_eq!(preset("JUNGFRAU-10M").map(DetectorPreset::streams), Some(40));
        assert_eq!(preset("jungfrau-10m").map(DetectorPreset::image_bytes), Some(20 << 20));
        assert!(preset("nowhere").is_none());
    }
}
