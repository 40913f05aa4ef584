//! The keys of an EXCALIBUR, whose FEMs send the counts of a stripe of chips each (docs/protocols.md 9).

use super::diagnostics::Diagnostics;
use super::not_sls::Refusals;
use super::read::Document;
use konkordia_core::geometry::{DoublePixels, GeometryError, ImageGeometry, Orientation, Placement, Quarter};
use konkordia_core::tile::TileFormat;

/// Name of this type of detector.
pub const TYPE: &str = "excalibur";
/// Bits of the counters that are received.
pub const COUNTER_BITS: u32 = 12;
/// Keys of other types.
const OTHERS: [&str; 6] = ["interfaces", "rows", "ten_giga", "double_pixels", "model", "images_per_train"];

/// The tile of a FEM; reports what does not go with an EXCALIBUR.
pub fn read(document: &Document, d: &mut Diagnostics) -> Option<TileFormat> {
    let t = document.table("detector");
    let refusals = Refusals {
        settings: &OTHERS,
        who: "an EXCALIBUR has",
        header: ("packets", "packets of an EXCALIBUR do not say which FEM they come from"),
        flags: ("frames", "packets of an EXCALIBUR have no flags"),
        raw: ("an EXCALIBUR has", "raw frames are stored as files of an SLS receiver"),
        calibration: ("an EXCALIBUR", "an EXCALIBUR counts photons itself"),
    };
    refusals.report(document, d);
    let bits = t.integer("bits").unwrap_or(COUNTER_BITS.into());
    if bits != i64::from(COUNTER_BITS) {
        let why = "frames of other counters have packets of other lengths, or more subframes";
        let fix = format!("remove the line, and set the detector to {COUNTER_BITS} bits");
        d.add(t.span("bits"), format!("detector.bits: an EXCALIBUR with counters of {bits} bits is not received"), why, fix);
        return None;
    }
    Some(TileFormat::excalibur())
}

/// The stripes of the FEMs, one below the other; every second one is mounted upside down.
///
/// # Errors
/// The image is too large.
pub fn stacked(format: TileFormat, fems: u32) -> Result<ImageGeometry, GeometryError> {
    let upside_down = Orientation { flip_rows: false, rotate: Quarter::Deg180 };
    let orientation = |fem: u32| if fem % 2 == 1 { upside_down } else { Orientation::UPRIGHT };
    let placement = |fem: u32| Placement { row: fem * format.rows, column: 0, orientation: orientation(fem) };
    ImageGeometry::new(format, (0..fems).map(placement).collect(), None, DoublePixels::Keep)
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use konkordia_core::geometry::Orientation;
    use konkordia_core::pixel::PixelType;
    use konkordia_core::plan::Recipe;
    use konkordia_core::setup::Ports;
    use konkordia_core::tile::{DetectorKind, TileFormat};
    use std::path::Path;

    const GOOD: &str = "[detector]\ntype = \"excalibur\"\nmodules = 6\n";
    const OUTPUT: &str = "[output]\ndirectory = \"x\"\nprefix = \"y\"\n";

    fn refusal(text: &str) -> String {
        match parse(text, Path::new("run.toml")) {
            Ok(_) => panic!("not refused: {text}"),
            Err(why) => format!("{why:?}"),
        }
    }

    #[test]
    fn six_stripes_are_an_image_of_counts() {
        let config = parse(&format!("{GOOD}{OUTPUT}"), Path::new("run.toml")).unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!(config.geometry.format(), &TileFormat::excalibur());
        assert_eq!((config.geometry.rows(), config.geometry.columns()), (6 * 256, 2048));
        let rows = config.geometry.placements().iter().map(|p| (p.row, p.orientation == Orientation::UPRIGHT));
        let expected = [(0, true), (256, false), (512, true), (768, false), (1024, true), (1280, false)];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        assert_eq!((config.recipe, config.pixel), (Recipe::Counts, PixelType::Uint16));
        assert_eq!(config.setup.ports, Ports::Unknown);
        // Facts of the detectors of PSI are not those of others.
        assert_eq!((config.metadata.pixel_size_m, config.metadata.sensor_thickness_m), (None, None));
        assert_eq!(config.metadata.detector_description.as_deref(), Some("EXCALIBUR 6 modules"));
        assert_eq!(config.metadata.bit_depth, Some(12));
        let plan = crate::plan::plan(&config);
        assert_eq!((plan.geometry.format().kind, plan.packets_per_image()), (DetectorKind::Excalibur, 6 * 132));
    }

    #[test]
    fn sums_of_counts_are_wider() {
        let text = format!("{GOOD}bits = 12\n[processing]\nsummation = 4\n{OUTPUT}");
        let config = parse(&text, Path::new("run.toml")).unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!((config.recipe, config.pixel), (Recipe::Counts, PixelType::Uint32));
    }

    #[test]
    fn what_does_not_go_with_an_excalibur_is_refused() {
        let with = |more: &str| refusal(&format!("{GOOD}{more}{OUTPUT}"));
        for key in ["interfaces = 1", "rows = 8", "ten_giga = true", "double_pixels = \"gap\"", "model = \"lpd\""] {
            assert!(with(&format!("{key}\n")).contains("has no such setting"), "{key}");
        }
        assert!(with("bits = 24\n").contains("is not received"));
        assert!(with("geometry = \"jungfrau-1m\"\n").contains("does not fit this detector"));
        assert!(with("[frames]\nkeep_flag_bit = 3\n").contains("selected"));
        assert!(with("[processing]\ndtype = \"raw\"\n").contains("\\\"raw\\\" is for JUNGFRAU"));
        assert!(with("[calibration]\nkind = \"files\"\n").contains("calibration of an EXCALIBUR"));
        assert!(with("[[detector.tile]]\nrow = 0\ncolumn = 0\nmodule_id = 1\n").contains("cannot be compared"));
        assert!(refusal(&format!("{GOOD}{OUTPUT}keep_raw = true\n")).contains("keep_raw"));
    }
}
