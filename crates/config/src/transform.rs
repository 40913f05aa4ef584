//! `[transform]`: what happens to the images of a stream.

use super::diagnostics::Diagnostics;
use super::read::Document;
use super::shared_keys::quarter_turns;
use konkordia_core::array::{Element, PackedBits};
use konkordia_core::geometry::Orientation;
use konkordia_core::plan::Compression;
use std::path::PathBuf;

/// The checked keys. The files that they name are read at arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransformOptions {
    /// Unpack pixels of this many bits to whole bytes.
    pub unpack: Option<PackedBits>,
    /// The pixels arrive as CBF files. The message decoder unpacks them, not the transformation.
    pub cbf: bool,
    /// File with the table of new pixel values, and the type of its numbers.
    pub lookup: Option<(PathBuf, Element)>,
    /// File with the plane that is subtracted.
    pub background: Option<PathBuf>,
    /// File with one byte per pixel: where it is not 0, the pixel is masked.
    pub mask: Option<PathBuf>,
    /// First row, first column, rows, columns.
    pub crop: Option<[u32; 4]>,
    /// Flip and turn.
    pub orientation: Option<Orientation>,
    /// True: the turn undoes how the detector is mounted, so the images that leave are upright in the laboratory.
    /// False: the images of the sender are upright.
    pub upright: bool,
    /// Turn images as the header of their series asks.
    pub turn_as_asked: bool,
    /// First row, first column, rows, columns, counted after the turn. These pixels become -1, or masked.
    pub mask_rectangle: Option<[u32; 4]>,
    /// Rows and columns that are binned into one.
    pub bin: Option<[u32; 2]>,
    /// Binning gives the mean instead of the sum.
    pub bin_mean: bool,
    /// Number of consecutive images that are added to make one, at least 2.
    pub sum_frames: Option<u32>,
    /// Compression of the images that leave; `None` = as received, or the default for changed images.
    pub compression: Option<Compression>,
    /// Changed images are compressed again if they arrived compressed.
    pub keeps_packing: bool,
}

impl TransformOptions {
    /// True if the pixels of single images change.
    pub fn changes_pixels(&self) -> bool {
        self.unpack.is_some()
            || self.lookup.is_some()
            || self.background.is_some()
            || self.mask.is_some()
            || self.mask_rectangle.is_some()
            || self.crop.is_some()
            || self.orientation.is_some()
            || self.turn_as_asked
            || self.bin.is_some()
    }

    /// The steps in words, in the order in which they are done.
    pub fn describe(&self) -> String {
        let mut list = Vec::new();
        let mut add = |is: bool, what: &str| {
            if is {
                list.push(what.to_string());
            }
        };
        add(self.cbf, "read CBF");
        let unpack = self.unpack.map(|bits| format!("unpack {} bits", bits.count()));
        add(unpack.is_some(), unpack.as_deref().unwrap_or_default());
        add(self.lookup.is_some(), "lookup");
        add(self.background.is_some(), "background");
        add(self.mask.is_some(), "mask");
        add(self.crop.is_some(), "crop");
        add(self.orientation.is_some(), "turn");
        add(self.turn_as_asked, "turn as the header asks");
        add(self.mask_rectangle.is_some(), "mask a rectangle");
        add(self.bin.is_some(), "bin");
        if let Some(frames) = self.sum_frames {
            list.push(format!("add {frames} images to make one"));
        }
        match self.compression {
            Some(Compression::None) => list.push("decompress".into()),
            Some(compression) => list.push(format!("compress as {}", compression.text())),
            None => {}
        }
        if list.is_empty() { "none".into() } else { list.join(", ") }
    }
}

/// Reads the table.
pub fn read(document: &Document, d: &mut Diagnostics, resolve: &dyn Fn(&str) -> PathBuf) -> TransformOptions {
    let t = document.table("transform");
    let path = |key: &str| t.text(key).map(resolve);
    if t.has("lookup_dtype") && !t.has("lookup") {
        d.add(t.span("lookup_dtype"), "transform.lookup_dtype without lookup", "", "add lookup = \"FILE\", or remove the line");
    }
    let mut window = |key: &str| -> Vec<u32> {
        let list: Vec<u32> = t.integers(key).into_iter().map(|n| n as u32).collect();
        if t.has(key) && (list.len() != 4 || list[2] == 0 || list[3] == 0) {
            let fix = "give [first row, first column, rows, columns], rows and columns at least 1";
            d.add(t.span(key), format!("transform.{key} is not a valid rectangle"), "", fix);
        }
        list
    };
    let (crop, rectangle) = (window("crop"), window("mask_rectangle"));
    if t.text("unpack") == Some("cbf") && document.table("source").text("protocol") != Some("stins") {
        let fix = "remove the line; files of a folder are unpacked anyway";
        d.add(t.span("unpack"), "transform.unpack = \"cbf\" is for protocol = \"stins\"", "", fix);
    }
    let bin: Vec<u32> = t.integers("bin").into_iter().map(|n| n as u32).collect();
    if t.has("bin") && !(1..=2).contains(&bin.len()) {
        d.add(t.span("bin"), "transform.bin needs one or two numbers", "", "give [n], or [rows, columns]");
    }
    let orientation = quarter_turns(t, d, "transform").filter(|o| *o != Orientation::UPRIGHT);
    if t.has("upright") && orientation.is_none() {
        d.add(t.span("upright"), "transform.upright without a turn", "", "add rotate_deg or a flip, or remove the line");
    }
    let dtype = if t.text("lookup_dtype") == Some("uint16") { Element::Uint16 } else { Element::Float32 };
    TransformOptions {
        unpack: PackedBits::ALL.into_iter().find(|bits| t.text("unpack") == Some(Element::Packed(*bits).name())),
        cbf: t.text("unpack") == Some("cbf"),
        lookup: path("lookup").map(|path| (path, dtype)),
        background: path("background"),
        mask: path("mask"),
        mask_rectangle: rectangle.try_into().ok(),
        crop: crop.try_into().ok(),
        orientation,
        turn_as_asked: false,
        upright: t.flag("upright").unwrap_or(false),
        bin: bin.first().map(|rows| [*rows, bin.get(1).copied().unwrap_or(*rows)]).filter(|bin| *bin != [1, 1]),
        bin_mean: t.text("bin_mode") == Some("mean"),
        sum_frames: t.integer("sum_frames").map(|frames| frames as u32).filter(|frames| *frames > 1),
        // "as-received" is the name of none.
        compression: t.text("compression").and_then(|text| Compression::parse(text, None).ok()),
        keeps_packing: t.text("compression") == Some("as-received"),
    }
}
