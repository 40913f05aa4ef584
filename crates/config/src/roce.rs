//! Frames that the detector writes by RoCEv2 (`[source] kind = "roce"`).

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::tile::{RemotePages, TileFormat};

/// The value of `[source] kind`.
const KIND: &str = "roce";
/// The keys that only such a source has.
const KEYS: [&str; 5] = ["queue_pair", "memory_key", "memory_address", "pages", "path_mtu"];
/// The port of RoCEv2.
const PORT: i64 = 4791;
const PORT_OF_PACKETS: i64 = 50010;
/// Payload bytes of a packet that network cards know; smaller ones need more packets than a frame may have.
const PATH_MTUS: [u32; 3] = [1024, 2048, 4096];

/// The port where the streams begin if the configuration names none.
pub fn default_port(source: &Table) -> i64 {
    if is_asked_for(source) { PORT } else { PORT_OF_PACKETS }
}

fn is_asked_for(source: &Table) -> bool {
    source.text("kind") == Some(KIND)
}

/// The tile as it comes: in the packets of the detector, or written by RoCEv2.
pub fn carried(document: &Document, d: &mut Diagnostics, tile: TileFormat) -> Option<TileFormat> {
    let source = document.table("source");
    if !is_asked_for(source) {
        refuse_keys(source, d);
        return Some(tile);
    }
    let run = document.table("run");
    if run.has("first_frame") && run.text("first_frame") != Some("auto") {
        let why = "packets name the page of a frame, and not its number";
        d.add(run.span("first_frame"), "first_frame with kind = \"roce\"", why, "remove the line");
    }
    // A wrong name is reported where the key is read.
    let receive = source.text("receive").and_then(Receive::from_name).unwrap_or_default();
    if receive == Receive::Only(Backend::Verbs) {
        let why = "raw packets are told apart by their UDP ports, and all streams of RoCEv2 come to one";
        d.add(source.span("receive"), "receive = \"verbs\" with kind = \"roce\"", why, "write \"packet\" or \"xdp\"");
    }
    let whole = |name: &str, default: i64| source.integer(name).unwrap_or(default);
    let mtu = whole("path_mtu", 4096) as u32;
    if !PATH_MTUS.contains(&mtu) {
        let what = format!("source.path_mtu: RoCEv2 has no path MTU of {mtu} bytes that can be received");
        d.add(source.span("path_mtu"), what, "", "give 1024, 2048 or 4096, as the sender uses");
        return None;
    }
    let remote = RemotePages {
        queue_pair: whole("queue_pair", 256) as u32,
        key: whole("memory_key", 1) as u32,
        address: whole("memory_address", 0) as u64,
        pages: whole("pages", 256) as u16,
        has_outer_headers: !matches!(receive, Receive::Auto | Receive::Only(Backend::Socket)),
    };
    let carried = tile.by_rdma(mtu, remote);
    if carried.is_none() {
        let (what, why) = if tile.is_partial() {
            (
                "source.kind: \"roce\" with partial readout".to_owned(),
                "a detector that writes by RDMA writes whole frames".to_owned(),
            )
        } else {
            let packets = (tile.tile_bytes() + 128).div_ceil(mtu);
            let what = format!("source.path_mtu: {mtu} bytes of payload make {packets} packets of a frame");
            (what, "a stream can have at most 512".to_owned())
        };
        let fix = if tile.is_partial() { "remove detector.rows" } else { "give a larger path MTU, here and to the sender" };
        d.add(source.span("path_mtu").or_else(|| source.span("kind")), what, why, fix);
    }
    carried
}

/// Reports that a detector of another type does not write by RDMA.
pub fn refuse(document: &Document, d: &mut Diagnostics, detector: &str) {
    let source = document.table("source");
    refuse_keys(source, d);
    if is_asked_for(source) {
        let what = format!("source.kind: \"roce\" with type = \"{detector}\"");
        let fix = "remove the line, or give type = \"jungfrau\" or \"eiger\"";
        d.add(source.span("kind"), what, "its frames are more than pixels, and only pixels are written by RDMA", fix);
    }
}

fn refuse_keys(source: &Table, d: &mut Diagnostics) {
    if is_asked_for(source) {
        return;
    }
    for name in KEYS.into_iter().filter(|name| source.has(name)) {
        let what = format!("source.{name}: only with kind = \"roce\"");
        d.add(source.span(name), what, "the packets of the detector are no RDMA", "remove the line, or set kind = \"roce\"");
    }
}
