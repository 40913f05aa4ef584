//! Programs made of the geometry of an image: what the assembler and the gather list of a run would do, as addresses.

use super::program::{Endian, Header, Key, Places, Program, Require, SEGMENTS_MAX, Segment, TERMS_MAX, Term, Tile};
use konkordia_core::geometry::{ImageGeometry, PixelRun};
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_wire::sls_udp::{self, HEADER_BYTES, places as sls};
use std::collections::BTreeMap;

/// What a geometry does not say.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// Name of the program.
    pub name: &'a str,
    /// UDP port of tile 0; tile n has port `first_port` + n.
    pub first_port: u16,
    /// Frames that the store has room for.
    pub slots: u32,
    /// Frames that may be incomplete at a time.
    pub window_frames: u32,
}

/// Numbers of frames of an EIGER have 48 bits (docs/protocols.md 1.1).
const EIGER_FRAME_MASK: u64 = (1 << 48) - 1;

/// The program that places the packets of a JUNGFRAU or an EIGER as `geometry` says: the slot is the output image, row
/// by row, with the bits that a pixel has on the wire. Pixels are not changed; gaps are never written.
///
/// # Errors
/// Why there is no such program: another detector, tiles that are turned (their rows are columns of the image, which no
/// copy can do), pixels of parts of bytes, or more than 16 places of one packet.
pub fn of_geometry(geometry: &ImageGeometry, streams: &Streams<'_>) -> Result<Program, String> {
    let format = *geometry.format();
    if !format.kind.is_sls() {
        return Err(format!(
            "packets of {} are not placed by programs; only those of jungfrau and eiger are",
            format.kind.name()
        ));
    }
    let slot_bytes = (geometry.pixels() as u64 * u64::from(format.bits)).div_ceil(8);
    let all = placed(geometry)?;
    let mut program = Program {
        name: streams.name.to_owned(),
        slots: streams.slots,
        slot_bytes,
        base_bytes: 0,
        window_frames: streams.window_frames,
        pixel: pixel(format.bits).map(str::to_owned),
        headers: BTreeMap::new(),
        places: BTreeMap::new(),
        tiles: Vec::new(),
    };
    for (tile, packets) in all.iter().enumerate() {
        let header = header(&format.of_tile(tile));
        let name = if header.first_packet == 0 { "sls".to_string() } else { format!("sls-from-{}", header.first_packet) };
        program.headers.entry(name.clone()).or_insert(header);
        let (offset, places) = factored(packets, name).map_err(|why| format!("tile {tile}: {why}"))?;
        let port = u16::try_from(usize::from(streams.first_port) + tile)
            .map_err(|_| format!("tile {tile} would have a UDP port above 65535; begin at a lower port"))?;
        let known = program.places.iter().find(|(_, known)| **known == places).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = place_name(&places, &program.places);
            program.places.insert(name.clone(), places);
            name
        });
        program.tiles.push(Tile { port: Some(port), module: None, places: name, offset });
    }
    Ok(program)
}

/// Type of the pixels of `bits`; those of 4 and 12 bits have none.
fn pixel(bits: u32) -> Option<&'static str> {
    match bits {
        8 => Some("uint8"),
        16 => Some("uint16"),
        32 => Some("uint32"),
        _ => None,
    }
}

/// Names say which way the lines go.
fn place_name(places: &Places, others: &BTreeMap<String, Places>) -> String {
    let is_upwards = places.terms.first().is_some_and(|term| term.multiply < 0);
    let base = if is_upwards { "upside-down" } else { "upright" };
    let free = |name: &String| !others.contains_key(name);
    std::iter::once(base.to_string()).chain((2..).map(|n| format!("{base}-{n}"))).find(free).unwrap_or_default()
}

fn header(format: &TileFormat) -> Header {
    let number = |bytes: std::ops::Range<usize>, mask| Key {
        offset: bytes.start as u32,
        bytes: bytes.len() as u32,
        endian: Endian::Little,
        mask,
        shift: 0,
    };
    let byte = |offset: usize, value: u8| Require {
        offset: offset as u32,
        bytes: 1,
        endian: Endian::Little,
        mask: None,
        value: value.into(),
    };
    Header {
        bytes: HEADER_BYTES as u32,
        payload_bytes: format.payload_bytes,
        packets: format.packets(),
        first_packet: format.first_packet,
        frame: number(sls::FRAME_NUMBER, (format.kind == DetectorKind::Eiger).then_some(EIGER_FRAME_MASK)),
        packet: number(sls::PACKET_NUMBER, None),
        module: None,
        require: vec![byte(sls::DETECTOR_TYPE, sls_udp::detector_type(format.kind)), byte(sls::VERSION, sls_udp::HEADER_VERSION)],
    }
}

/// For each tile and packet its segments, with destinations in the slot, in the order of the payload.
fn placed(geometry: &ImageGeometry) -> Result<Vec<Vec<Vec<Segment>>>, String> {
    let format = geometry.format();
    let mut all = vec![vec![Vec::new(); format.packets() as usize]; geometry.placements().len()];
    let mut wrong = None;
    geometry.for_each_run(|run| {
        if wrong.is_none() {
            wrong = place_run(format, run, &mut all[usize::from(run.tile)]).err();
        }
    });
    wrong.map_or(Ok(()), Err)?;
    for segments in all.iter_mut().flatten() {
        segments.sort_unstable();
        join(segments);
        if segments.len() > SEGMENTS_MAX {
            return Err(format!(
                "a packet would have {} places in the image, and {SEGMENTS_MAX} are possible; keep double pixels as they are",
                segments.len()
            ));
        }
    }
    Ok(all)
}

fn place_run(format: &TileFormat, run: PixelRun, packets: &mut [Vec<Segment>]) -> Result<(), String> {
    if run.step != 1 {
        return Err(format!(
            "tile {} is turned or mirrored: its rows are no rows of the image, and a copy cannot do that",
            run.tile
        ));
    }
    let bits = u64::from(format.bits);
    let (first_bit, length_bits, output_bit) =
        (u64::from(run.tile_pixel) * bits, u64::from(run.length) * bits, run.output as u64 * bits);
    if [first_bit, length_bits, output_bit].iter().any(|bit| !bit.is_multiple_of(8)) {
        return Err(format!("rows of tile {} do not begin and end with whole bytes at {} bit", run.tile, format.bits));
    }
    let (mut byte, mut left, mut destination) = (first_bit / 8, length_bits / 8, output_bit / 8);
    let payload = u64::from(format.payload_bytes);
    while left > 0 {
        let source = byte % payload;
        let bytes = left.min(payload - source);
        let packet = &mut packets[(byte / payload) as usize];
        packet.push(Segment { source: source as u32, destination: destination as i64, bytes: bytes as u32 });
        (byte, left, destination) = (byte + bytes, left - bytes, destination + bytes);
    }
    Ok(())
}

/// Joins segments that adjoin in the payload and in the image.
fn join(segments: &mut Vec<Segment>) {
    segments.dedup_by(|next, last| {
        let adjoins = last.source + last.bytes == next.source && last.destination + i64::from(last.bytes) == next.destination;
        if adjoins {
            last.bytes += next.bytes;
        }
        adjoins
    });
}

/// Offset, terms and patterns that give these segments of the packets of a tile.
fn factored(packets: &[Vec<Segment>], header: String) -> Result<(u64, Places), String> {
    let none = "it has packets without pixels of the image; mask no pixels here, but afterwards";
    let firsts: Vec<i64> = packets.iter().map(|p| p.first().map(|s| s.destination)).collect::<Option<_>>().ok_or(none)?;
    let shifted = |packet: usize, by: i64| -> Vec<Segment> {
        packets[packet].iter().map(|s| Segment { destination: s.destination - by, ..*s }).collect()
    };
    // The shortest period after which the segments of packets are the same but for their address.
    let is_period = |period: &usize| {
        (0..packets.len()).all(|p| {
            let (here, start) = (p % period, p - p % period);
            shifted(p, firsts[start]) == shifted(here, firsts[0])
        })
    };
    let period = (1..=packets.len()).find(is_period).unwrap_or(packets.len());
    let starts: Vec<i64> = firsts.iter().step_by(period).map(|first| first - firsts[0]).collect();
    let terms = terms_of(&starts, period as u32).ok_or("the addresses of its packets are no sum of a few terms")?;
    let patterns = (0..period).map(|p| shifted(p, firsts[0])).collect();
    Ok((firsts[0] as u64, Places { header, terms, patterns }))
}

/// Terms whose sum at packet `n x period` is `starts[n]`: each takes care of the first address that is not right yet.
fn terms_of(starts: &[i64], period: u32) -> Option<Vec<Term>> {
    let mut terms: Vec<Term> = Vec::new();
    let rest =
        |terms: &[Term], n: usize| -> i64 { starts[n] - terms.iter().filter_map(|term| term.of(n as u32 * period)).sum::<i64>() };
    while let Some(wrong) = (0..starts.len()).find(|n| rest(&terms, *n) != 0) {
        if terms.len() == TERMS_MAX {
            return None;
        }
        terms.push(Term { divide: wrong as u32 * period, modulo: None, multiply: rest(&terms, wrong) });
    }
    Some(terms)
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
