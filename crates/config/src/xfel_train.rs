//! The keys of a detector of European XFEL, whose modules send the images of a train together (docs/protocols.md 7).

use super::diagnostics::Diagnostics;
use super::not_sls::Refusals;
use super::read::Document;
use super::shared_keys::required;
use konkordia_core::tile::{TileFormat, XfelDetector};

/// Name of this type of detector.
pub const TYPE: &str = "xfel-train";
/// Keys that only this type has.
const OWN: [&str; 2] = ["model", "images_per_train"];
/// Keys of other types.
const OTHERS: [&str; 5] = ["interfaces", "bits", "rows", "ten_giga", "double_pixels"];

/// Reports keys that only detectors of this type have.
pub fn refuse_own(document: &Document, d: &mut Diagnostics) {
    let t = document.table("detector");
    for key in OWN.into_iter().filter(|key| t.has(key)) {
        let why = format!("only type = \"{TYPE}\" has this key");
        d.add(t.span(key), format!("detector.{key}: this detector sends no trains"), why, "remove the line");
    }
}

/// The tile of a module; reports what does not go with trains.
pub fn read(document: &Document, d: &mut Diagnostics) -> Option<TileFormat> {
    let t = document.table("detector");
    let refusals = Refusals {
        settings: &OTHERS,
        who: "a train has",
        header: ("trains", "packets of trains do not say which module they come from"),
        flags: ("trains", "the header of a train has no flags"),
        raw: ("trains have", "raw frames are stored as files of an SLS receiver; the images of this run are raw words already"),
        calibration: ("trains", "the words of trains are stored as they come"),
    };
    refusals.report(document, d);
    let model = required(document, d, "detector", "model");
    let images = t.integer("images_per_train");
    if images.is_none() && !t.has("images_per_train") {
        let why = "packets do not say how long a train is";
        let fix = "add images_per_train = ... (images that the detector keeps of each train)";
        d.add(t.span.clone(), "[detector] has no 'images_per_train'", why, fix);
    }
    let model = XfelDetector::ALL.into_iter().find(|known| Some(known.name()) == model.as_deref())?;
    let images = u32::try_from(images?).ok()?;
    let format = TileFormat::xfel_train(model, images);
    if format.is_none() {
        let what = format!("detector.images_per_train: a train of {images} images is too long");
        let why = format!("a train may have at most {} packets", konkordia_core::MAX_PACKETS_PER_TILE);
        d.add(t.span("images_per_train"), what, why, format!("give at most {} for this model", model.images_max()));
    }
    format
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use konkordia_core::pixel::PixelType;
    use konkordia_core::plan::Recipe;
    use konkordia_core::setup::Ports;
    use konkordia_core::tile::{DetectorKind, TileFormat, XfelDetector};
    use std::path::Path;

    const GOOD: &str = "[detector]\ntype = \"xfel-train\"\nmodel = \"agipd\"\nimages_per_train = 15\nmodules = 2\n";
    const OUTPUT: &str = "[output]\ndirectory = \"x\"\nprefix = \"y\"\n";

    fn refusal(text: &str) -> String {
        match parse(text, Path::new("run.toml")) {
            Ok(_) => panic!("not refused: {text}"),
            Err(why) => format!("{why:?}"),
        }
    }

    #[test]
    fn trains_are_raw_words_of_known_length() {
        let config = parse(&format!("{GOOD}{OUTPUT}"), Path::new("run.toml")).unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!(config.geometry.format(), &TileFormat::xfel_train(XfelDetector::Agipd, 15).unwrap());
        assert_eq!((config.geometry.rows(), config.geometry.columns()), (2 * 15 * 1024, 128));
        assert_eq!((config.recipe, config.pixel), (Recipe::Raw, PixelType::Uint16));
        assert_eq!(config.setup.ports, Ports::Unknown);
        // Facts of the detectors of PSI are not those of others.
        assert_eq!((config.metadata.pixel_size_m, config.metadata.sensor_thickness_m), (None, None));
        assert_eq!(config.metadata.detector_description.as_deref(), Some("AGIPD 2 modules"));
        let plan = crate::plan::plan(&config);
        assert_eq!((plan.geometry.format().kind, plan.packets_per_image()), (DetectorKind::XfelTrain, 2 * 482));
    }

    #[test]
    fn what_does_not_go_with_trains_is_refused() {
        let with = |more: &str| refusal(&format!("{GOOD}{more}{OUTPUT}"));
        for key in ["interfaces = 1", "bits = 16", "rows = 8", "ten_giga = true", "double_pixels = \"gap\""] {
            assert!(with(&format!("{key}\n")).contains("has no such setting"), "{key}");
        }
        assert!(with("geometry = \"jungfrau-1m\"\n").contains("does not fit this detector"));
        assert!(with("[frames]\nkeep_flag_bit = 3\n").contains("selected"));
        assert!(with("[processing]\ndtype = \"int32\"\n").contains("cannot be stored"));
        assert!(refusal(&format!("{GOOD}{OUTPUT}keep_raw = true\n")).contains("keep_raw"));
        let of = |detector: &str| refusal(&format!("[detector]\n{detector}\n{OUTPUT}"));
        assert!(of("type = \"xfel-train\"\nmodel = \"lpd\"\nimages_per_train = 32").contains("at most 31"));
        assert!(of("type = \"xfel-train\"\nmodel = \"lpd\"").contains("images_per_train"));
        assert!(of("type = \"xfel-train\"\nimages_per_train = 3").contains("model"));
        assert!(of("type = \"eiger\"\nmodel = \"lpd\"").contains("sends no trains"));
    }
}
