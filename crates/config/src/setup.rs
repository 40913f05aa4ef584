//! Expected packet headers and senders. A run compares its packets with them, to notice a detector that is not set up
//! as the configuration says.

use super::diagnostics::Diagnostics;
use super::geometry::Preset;
use super::read::{Document, Table};
use konkordia_core::sender::Senders;
use konkordia_core::setup::{Ports, SetupRules};
use std::net::{IpAddr, SocketAddr};

/// The rules for a detector with `ports_per_module` ports in a module. Explicit tiles do not imply rows and columns in
/// the headers: only the header values that a tile states are expected.
pub fn rules(document: &Document, d: &mut Diagnostics, ports_per_module: u32) -> SetupRules {
    let t = document.table("detector");
    let tiles = document.array("detector.tile");
    let preset = t.text("geometry").and_then(Preset::find);
    let ports = match (tiles.is_empty(), preset) {
        (false, _) => Ports::Given(tiles.iter().map(expected).collect()),
        (true, Some(preset)) => Ports::Grid { down: preset.down },
        (true, None) => Ports::Ordered,
    };
    let senders = senders(document.table("source"), d);
    SetupRules { is_strict: t.flag("strict").unwrap_or(true), ports_per_module, ports, senders }
}

/// The senders from which packets are taken.
fn senders(source: &Table, d: &mut Diagnostics) -> Senders {
    let texts = source.texts("senders");
    match texts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] if !source.has("senders") => return Senders::Learned,
        ["learned"] => return Senders::Learned,
        ["any"] => return Senders::Any,
        _ => {}
    }
    let listed: Option<Vec<_>> = texts.iter().map(|text| sender(text)).collect();
    match listed.filter(|list| !list.is_empty()) {
        Some(list) => Senders::Listed(list),
        None => {
            let what = "source.senders: not \"learned\", \"any\" or a list of addresses";
            let fix =
                "write addresses with or without a port, for example [\"10.1.1.10\", \"10.1.1.11:32410\", \"[fd00::1]:32410\"]";
            d.add(source.span("senders"), what, "host names are not looked up", fix);
            Senders::Learned
        }
    }
}

fn sender(text: &str) -> Option<(IpAddr, Option<u16>)> {
    let with_port = text.parse::<SocketAddr>().map(|address| (address.ip(), Some(address.port())));
    with_port.ok().or_else(|| Some((text.parse().ok()?, None))).map(|(ip, port)| (ip.to_canonical(), port))
}

/// Row, column and module id that the header of a tile should have.
fn expected(tile: &Table) -> [Option<u16>; 3] {
    ["header_row", "header_column", "module_id"].map(|name| tile.integer(name).and_then(|n| u16::try_from(n).ok()))
}
