//! Keys that only detectors of PSI have, refused for the others with the words of each.

use super::diagnostics::Diagnostics;
use super::read::Document;

/// What packets of PSI say of their place.
const HEADER: [&str; 3] = ["header_row", "header_column", "module_id"];
/// Flags of PSI by which frames are selected.
const FLAGS: [&str; 2] = ["dark_flag_bit", "keep_flag_bit"];

/// The words in which a type of detector refuses what it has not. Pairs are what is concerned, and why.
pub struct Refusals {
    /// Keys of `[detector]` that other types have.
    pub settings: &'static [&'static str],
    /// Who has no such setting.
    pub who: &'static str,
    /// What cannot be compared with the place that a header says.
    pub header: (&'static str, &'static str),
    /// What cannot be selected by flags.
    pub flags: (&'static str, &'static str),
    /// Who has no raw files.
    pub raw: (&'static str, &'static str),
    /// Whose words are not calibrated.
    pub calibration: (&'static str, &'static str),
}

impl Refusals {
    /// Reports every key that does not go with this type.
    pub fn report(&self, document: &Document, d: &mut Diagnostics) {
        let (t, fix) = (document.table("detector"), "remove the line");
        for key in self.settings.iter().filter(|key| t.has(key)) {
            d.add(t.span(key), format!("detector.{key}: {} no such setting", self.who), "", fix);
        }
        let (what, why) = self.header;
        for tile in document.array("detector.tile") {
            for key in HEADER.into_iter().filter(|key| tile.has(key)) {
                d.add(tile.span(key), format!("detector.tile.{key}: {what} cannot be compared with it"), why, fix);
            }
        }
        let (frames, output) = (document.table("frames"), document.table("output"));
        let (what, why) = self.flags;
        for key in FLAGS.into_iter().filter(|key| frames.has(key)) {
            d.add(frames.span(key), format!("frames.{key}: {what} cannot be selected by it"), why, fix);
        }
        if output.flag("keep_raw") == Some(true) {
            let (who, why) = self.raw;
            d.add(output.span("keep_raw"), format!("output.keep_raw: {who} no such files"), why, fix);
        }
        let calibration = document.table("calibration");
        if calibration.has("kind") && calibration.text("kind") != Some("none") {
            let (what, why) = self.calibration;
            d.add(calibration.span("kind"), format!("calibration of {what}"), why, "remove [calibration]");
        }
    }
}
