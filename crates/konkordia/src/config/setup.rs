//! What the headers of the packets are held against, to find a detector that is set up otherwise than the configuration says.

use super::geometry::Preset;
use super::read::{Document, Table};
use konkordia_core::setup::{Ports, SetupRules};

/// The rules for a detector with so many ports in a module. Explicit tiles say nothing of rows and columns in the detector, so that only what
/// stands beside them is expected.
pub fn rules(document: &Document, ports_per_module: u32) -> SetupRules {
    let t = document.table("detector");
    let tiles = document.array("detector.tile");
    let preset = t.text("geometry").and_then(Preset::find);
    let ports = match (tiles.is_empty(), preset) {
        (false, _) => Ports::Given(tiles.iter().map(expected).collect()),
        (true, Some(preset)) => Ports::Grid { down: preset.down },
        (true, None) => Ports::Ordered,
    };
    SetupRules { is_strict: t.flag("strict").unwrap_or(true), ports_per_module, ports }
}

/// Row, column and module id that the header of a tile should have.
fn expected(tile: &Table) -> [Option<u16>; 3] {
    ["header_row", "header_column", "module_id"].map(|name| tile.integer(name).and_then(|n| u16::try_from(n).ok()))
}
