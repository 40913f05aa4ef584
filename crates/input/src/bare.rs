//! Data files without a master: records with a header of 112, 48 or 16 bytes, or plain words (docs/protocols.md 1.7).

use super::files::{cannot_read, head, wrong};
use super::found::{Found, Kind};
use super::index::{Place, TileIndex};
use super::options::{Format, Options};
use super::records;
use konkordia_core::failure::Failure;
use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_file::{DataFileName, PLAIN_HEADER_BYTES, RECORD_HEADER_BYTES};
use konkordia_wire::sls_udp::HEADER_BYTES;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a module's words.
const MODULE_BYTES: u64 = 512 * 1024 * 2;

/// How a file is read: bytes of the header, and UDP interfaces per module.
type Layout = (usize, u32);

/// Opens files of one detector. Files with the same port in their name (or the same row and column in their headers)
/// follow each other.
pub fn open(paths: &[PathBuf], format: Option<Format>, options: &Options) -> Result<Found, Failure> {
    let header_bytes = match format {
        Some(Format::U16) => return planes(paths, options),
        Some(Format::Raw48) => Some(HEADER_BYTES),
        Some(Format::Raw16) => Some(PLAIN_HEADER_BYTES),
        Some(Format::Raw112 | Format::SlsRaw) => Some(RECORD_HEADER_BYTES),
        Some(Format::Hdf5) | None => None,
    };
    let mut layouts = Vec::new();
    for path in paths {
        layouts.push(layout_of(path, header_bytes)?);
    }
    match layouts.first() {
        None | Some(None) if header_bytes.is_none() => planes(paths, options),
        Some(Some(first)) => {
            if let Some(other) = layouts.iter().position(|l| l.as_ref() != Some(first)) {
                let what = format!("{} and {} have different formats", paths[0].display(), paths[other].display());
                return Err(wrong(what, "their records have headers or images of different size", "convert them separately"));
            }
            with_headers(paths, *first)
        }
        _ => Err(unknown(&paths[0])),
    }
}

fn unknown(path: &Path) -> Failure {
    let why = "neither its size nor its first bytes fit a known format: slsReceiver, headers of 112, 48 or 16 bytes, plain words";
    wrong(format!("{} has an unknown format", path.display()), why, "give it with --format; docs/convert.md lists the formats")
}

/// The layout that fits best. The first record and, if there is one, the second must have valid headers; a layout whose
/// records fill the file is preferred.
fn layout_of(path: &Path, header_bytes: Option<usize>) -> Result<Option<Layout>, Failure> {
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    let size = file.metadata().map_err(|e| cannot_read(path, &e))?.len();
    let lengths = [RECORD_HEADER_BYTES, HEADER_BYTES, PLAIN_HEADER_BYTES];
    let mut best = (0, None);
    for length in lengths.into_iter().filter(|n| header_bytes.is_none_or(|wanted| wanted == *n)) {
        for interfaces in [1, 2] {
            let Some(format) = TileFormat::jungfrau(interfaces) else { continue };
            let record = length as u64 + u64::from(format.tile_bytes());
            let mut numbers = Vec::new();
            for at in [0, record].into_iter().filter(|at| at + record <= size) {
                let mut header = [0u8; RECORD_HEADER_BYTES];
                file.read_exact_at(&mut header[..length], at).map_err(|e| cannot_read(path, &e))?;
                numbers.push(records::judge(&header[..length], &format).ok().flatten().map(|f| f.header.frame_number));
            }
            let whole = size % record == 0;
            let score = if plausible(&numbers, length, whole) { numbers.len() + 2 * usize::from(whole) } else { 0 };
            if score > best.0 {
                best = (score, Some((length, interfaces)));
            }
        }
    }
    Ok(best.1)
}

/// Whether the headers are those of this layout. Headers of 112 and 48 bytes are known by their version and detector
/// type. Headers of 16 bytes need frame numbers that increase or, with a single record, a file size that fits.
fn plausible(numbers: &[Option<u64>], length: usize, whole: bool) -> bool {
    const STEP_MAX: u64 = 1 << 20;
    match numbers {
        [Some(_)] => whole || length != PLAIN_HEADER_BYTES,
        [Some(first), Some(second)] => {
            length != PLAIN_HEADER_BYTES || second.checked_sub(*first).is_some_and(|d| (1..STEP_MAX).contains(&d))
        }
        _ => false,
    }
}

/// Which tile a file belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// By its name.
    Port(u32),
    /// By its first header: modules are numbered down a column first.
    ColumnRow(u16, u16),
}

fn with_headers(paths: &[PathBuf], (header_bytes, interfaces): Layout) -> Result<Found, Failure> {
    let format = TileFormat::jungfrau(interfaces).ok_or_else(|| unknown(&paths[0]))?;
    let named: Option<Vec<DataFileName>> =
        paths.iter().map(|p| DataFileName::parse(p.file_name()?.to_str()?, p.extension()?.to_str()?)).collect();
    one_acquisition(paths, named.as_deref().unwrap_or_default())?;
    let (mut notes, mut incomplete) = (Vec::new(), false);
    let mut tiles: BTreeMap<Key, (Vec<Place>, u16)> = BTreeMap::new();
    for (number, path) in paths.iter().enumerate() {
        let scan = records::scan(path, number as u32, header_bytes, &format)?;
        scan.notes(path, &mut incomplete, &mut notes);
        let key = match &named {
            Some(names) => Key::Port(names[number].port),
            None => Key::ColumnRow(scan.first.column, scan.first.row),
        };
        tiles.entry(key).or_insert((Vec::new(), scan.first.module_id)).0.extend(scan.places);
    }
    if !tiles.len().is_multiple_of(interfaces as usize) {
        let why = format!("{} half modules of 256 x 1024 pixels do not make whole modules", tiles.len());
        return Err(wrong(
            format!("files of {} are missing", paths[0].display()),
            why,
            "give the files of both interfaces of each module",
        ));
    }
    half_modules(&tiles.keys().collect::<Vec<_>>(), interfaces, &paths[0])?;
    let name = |key: &Key| match key {
        Key::Port(port) => format!("port {port}"),
        Key::ColumnRow(column, row) => format!("port at row {row}, column {column}"),
    };
    let words = format!("records with headers of {header_bytes} bytes, {}", paths[0].display());
    Ok(Found {
        incomplete,
        notes,
        module_ids: tiles.values().map(|t| t.1).collect(),
        tiles: tiles.into_iter().map(|(key, (places, _))| TileIndex::new(name(&key), places)).collect(),
        ..found(paths, header_bytes, format, words)
    })
}

/// Refuses files of several acquisitions: their frames have the same numbers and would be taken for tiles of one
/// detector.
fn one_acquisition(paths: &[PathBuf], names: &[DataFileName]) -> Result<(), Failure> {
    let of = |name: &DataFileName| (name.stem.clone(), name.acquisition);
    match names.iter().position(|name| of(name) != of(&names[0])) {
        None => Ok(()),
        Some(other) => Err(wrong(
            "the input belongs to several acquisitions",
            format!("{}\n{}", paths[0].display(), paths[other].display()),
            "convert them one after the other",
        )),
    }
}

/// Refuses halves of different modules. With two interfaces, ports 2m and 2m + 1 are the halves of module m.
fn half_modules(keys: &[&Key], interfaces: u32, first: &Path) -> Result<(), Failure> {
    for pair in keys.chunks_exact(interfaces as usize) {
        if let [Key::Port(a), Key::Port(b)] = pair
            && (a % 2 != 0 || *b != a + 1)
        {
            let why = format!("ports {a} and {b} are halves of different modules; ports 2m and 2m + 1 are those of module m");
            let what = format!("files of {} are missing", first.display());
            return Err(wrong(what, why, "give the files of both interfaces of each module"));
        }
    }
    Ok(())
}

/// Plain words: every file holds whole frames of all modules.
fn planes(paths: &[PathBuf], options: &Options) -> Result<Found, Failure> {
    let format = TileFormat::jungfrau(1).ok_or_else(|| unknown(&paths[0]))?;
    let modules = options.modules.unwrap_or(1);
    let frame_bytes = MODULE_BYTES * u64::from(modules);
    let (mut sizes, mut notes, mut incomplete) = (Vec::new(), Vec::new(), false);
    for path in paths {
        let size = path.metadata().map_err(|e| cannot_read(path, &e))?.len();
        let cut_off = size % frame_bytes;
        // A file whose size is not a multiple of a frame is something else, unless --format says that it is plain
        // words.
        if size < frame_bytes || (cut_off != 0 && options.format != Some(Format::U16)) {
            head(path, 1)?;
            return Err(wrong_size(path, size, frame_bytes, modules));
        }
        if cut_off > 0 {
            incomplete = true;
            notes.push(format!("{}: the last frame is cut off after {cut_off} bytes; it is not used", path.display()));
        }
        sizes.push(size);
    }
    let tiles = (0..modules as usize)
        .map(|tile| TileIndex::new(format!("module {tile}"), records::planes(&sizes, &format, tile, modules as usize)));
    let words = format!("plain words of {modules} module(s), {}", paths[0].display());
    let (tiles, module_ids) = (tiles.collect(), vec![0; modules as usize]);
    Ok(Found { incomplete, notes, tiles, module_ids, ..found(paths, 0, format, words) })
}

fn found(paths: &[PathBuf], header_bytes: usize, format: TileFormat, words: String) -> Found {
    let files = records::Files { paths: Arc::new(paths.to_vec()), header_bytes, format };
    Found::stacked(Kind::Records(files), words, format, paths.to_vec())
}

fn wrong_size(path: &Path, size: u64, frame_bytes: u64, modules: u32) -> Failure {
    let why = format!(
        "it has {size} bytes and no known header; frames of {modules} module(s) as plain uint16 words have {frame_bytes} bytes"
    );
    wrong(
        format!("{} has an unknown format", path.display()),
        why,
        "give it with --format and, for plain words, --modules; docs/convert.md lists the formats",
    )
}
