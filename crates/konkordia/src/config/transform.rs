//! `[transform]`: what happens to the images of a stream.

use super::diagnostics::Diagnostics;
use super::model::quarter_turns;
use super::read::Document;
use konkordia_core::array::{Element, Packing};
use konkordia_core::geometry::Orientation;
use std::path::PathBuf;

/// The keys, checked; files are read at arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransformOptions {
    /// Unpack 12-bit pixels.
    pub mono12p: bool,
    /// Pixels come as CBF files. Read where messages are read, not here.
    pub cbf: bool,
    /// Table of values, and the type of its numbers.
    pub lookup: Option<(PathBuf, Element)>,
    /// Plane that is subtracted.
    pub background: Option<PathBuf>,
    /// Plane of bytes.
    pub mask: Option<PathBuf>,
    /// First row, first column, rows, columns.
    pub crop: Option<[u32; 4]>,
    /// Flip and turn.
    pub orientation: Option<Orientation>,
    /// The turn undoes how the detector is mounted: the images that leave are upright in the laboratory, not those of the sender.
    pub upright: bool,
    /// Turn images as the header of their series asks.
    pub turn_as_asked: bool,
    /// First row, first column, rows, columns after the turn: pixels that become -1, or masked.
    pub mask_rectangle: Option<[u32; 4]>,
    /// Rows and columns that become one.
    pub bin: Option<[u32; 2]>,
    /// Their mean instead of their sum.
    pub bin_mean: bool,
    /// Consecutive images that become one, at least 2.
    pub sum_frames: Option<u32>,
    /// How images leave; `None` = as they came, or the default of changed ones.
    pub packing: Option<Packing>,
    /// Changed ones leave packed if they came packed, too.
    pub keeps_packing: bool,
}

impl TransformOptions {
    /// True if the pixels of single images change.
    pub fn changes_pixels(&self) -> bool {
        self.mono12p
            || self.lookup.is_some()
            || self.background.is_some()
            || self.mask.is_some()
            || self.mask_rectangle.is_some()
            || self.crop.is_some()
            || self.orientation.is_some()
            || self.turn_as_asked
            || self.bin.is_some()
    }

    /// In words, in the order in which they are done.
    pub fn describe(&self) -> String {
        let mut list = Vec::new();
        let mut add = |is: bool, what: &str| {
            if is {
                list.push(what.to_string());
            }
        };
        add(self.cbf, "read CBF");
        add(self.mono12p, "unpack 12 bits");
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
        match self.packing {
            Some(Packing::None) => list.push("leave unpacked".into()),
            Some(Packing::BitshuffleLz4) => list.push("leave as bslz4".into()),
            Some(_) => list.push("leave as lz4".into()),
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
            d.add(t.span(key), format!("transform.{key} is no part of an image"), "", fix);
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
        d.add(t.span("bin"), "transform.bin has one or two numbers", "", "give [n], or [rows, columns]");
    }
    let orientation = quarter_turns(t, d, "transform").filter(|o| *o != Orientation::UPRIGHT);
    if t.has("upright") && orientation.is_none() {
        d.add(t.span("upright"), "transform.upright without a turn", "", "add rotate_deg or a flip, or remove the line");
    }
    let dtype = if t.text("lookup_dtype") == Some("uint16") { Element::Uint16 } else { Element::Float32 };
    TransformOptions {
        mono12p: t.text("unpack") == Some("mono12p"),
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
        packing: match t.text("compression") {
            Some("bslz4") => Some(Packing::BitshuffleLz4),
            Some("lz4") => Some(Packing::Lz4),
            Some("none") => Some(Packing::None),
            _ => None,
        },
        keeps_packing: t.text("compression") == Some("as-received"),
    }
}
