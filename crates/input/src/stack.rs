//! Reads stacks of images in HDF5: those of the slsReceiver, with one file per port, and those of SwissFEL, with all
//! modules in one image (docs/protocols.md 1.7 and 6.5).

use super::files::{head, wrong};
use super::found::{Found, Kind};
use super::index::{Place, TileIndex};
use super::options::Options;
use super::sls::{self, Ports, SideBySide};
use super::stack_reader::{Source, Stacks, of_rows_read, stored_row_bytes};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::TileFormat;
use konkordia_sinks::hdf5::foreign::{ForeignFile, Stack, is_hdf5};
use konkordia_wire::sls_file::{DataFileName, FRAME_NUMBER_END, MASK_BYTES, mask_bitmap};
use konkordia_wire::sls_master;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// True if the file is HDF5.
pub fn is_stack(path: &Path) -> bool {
    head(path, 8).is_ok_and(|bytes| is_hdf5(&bytes))
}

/// True if the file is one that the slsReceiver or SwissFEL wrote, with frames of words: images that were converted
/// since have larger pixels.
pub fn has_frames(path: &Path) -> bool {
    let Ok(file) = open_file(path) else { return false };
    if file.text("/entry/instrument/detector/Detector Type").is_some() || hdf5_master_beside(path).is_some() {
        return true;
    }
    let has_words = |name: &String| {
        let group = format!("/data/{name}");
        file.has(&format!("{group}/daq_rec")) && file.stack(&format!("{group}/data")).is_ok_and(|stack| stack.pixel_bytes == 2)
    };
    file.names("/data").iter().any(has_words)
}

pub(super) fn open_file(path: &Path) -> Result<ForeignFile, Failure> {
    ForeignFile::open(path).map_err(unreadable)
}

/// The failure for an input that cannot be read. A damaged file counts as a wrong choice of input (exit code of a wrong
/// configuration); only an I/O error keeps its exit code.
pub(super) fn unreadable(error: konkordia_sinks::hdf5::Error) -> Failure {
    let failure = Failure::from(error);
    if failure.exit == Exit::Incomplete { Failure { exit: Exit::Configuration, ..failure } } else { failure }
}

fn hdf5_master_beside(path: &Path) -> Option<PathBuf> {
    let name = DataFileName::parse(path.file_name()?.to_str()?, "h5")?;
    let master = path.with_file_name(format!("{}_master_{}.h5", name.stem, name.acquisition));
    master.is_file().then_some(master)
}

/// Opens HDF5 files: one master of the slsReceiver (or data files of it), or SwissFEL files one after the other.
pub fn open(paths: &[PathBuf], options: &Options) -> Result<Found, Failure> {
    let first = open_file(&paths[0])?;
    if first.has("/data") || first.text("/entry/instrument/detector/Detector Type").is_some() {
        let mut masters = Vec::new();
        for path in paths {
            let own = open_file(path)?.text("/entry/instrument/detector/Detector Type").is_some();
            let master = if own { Some(path.clone()) } else { hdf5_master_beside(path) };
            masters.push(master.ok_or_else(|| {
                let why = "there is no <name>_master_<acquisition>.h5 beside it";
                wrong(format!("{} has no master", path.display()), why, "put the master beside the data files, or give it")
            })?);
        }
        masters.dedup();
        let [master] = &masters[..] else {
            return Err(wrong(
                "the input belongs to several acquisitions",
                "there are several masters",
                "convert them one after the other",
            ));
        };
        return sls_files(master, options);
    }
    swissfel(paths, options)
}

/// Opens an acquisition in the slsReceiver's HDF5.
fn sls_files(path: &Path, options: &Options) -> Result<Found, Failure> {
    let master = open_file(path)?;
    let fact = |name: &str| master.number(&format!("/entry/instrument/detector/{name}"));
    let refuse = |why: String| {
        let fix = "whole modules of a JUNGFRAU or an EIGER can be converted; docs/convert.md";
        wrong(format!("{} cannot be converted", path.display()), why, fix)
    };
    let (format, interfaces) = format_of(&master).map_err(refuse)?;
    let axis = |name: &str| fact(name).filter(|n| (1..=1024).contains(n)).map(|n| n as u32);
    let ports_x = axis("Geometry in x axis").ok_or_else(|| refuse("it has no geometry".into()))?;
    let ports_y = axis("Geometry in y axis").ok_or_else(|| refuse("it has no geometry".into()))?;
    let count = ports_x * ports_y;
    if count % interfaces != 0 || count > 1024 {
        return Err(refuse(format!("{ports_x} x {ports_y} ports of {} rows do not make whole modules", format.whole_rows())));
    }
    let ports: Ports = sls::data_files(path, "h5", "h5")?;
    let mut notes = Vec::new();
    let mut incomplete = sls::missing_files(&ports, count, None, &mut notes);
    let (mut files, mut tiles) = (Vec::new(), Vec::new());
    for port in 0..count {
        let mut places = Vec::new();
        for file in ports.get(&port).into_iter().flat_map(BTreeMap::values) {
            let source = sls_file(file, &format)?;
            places.extend(take_places(&source, files.len() as u32, None, &mut incomplete, &mut notes));
            files.push(source);
        }
        tiles.push(TileIndex::new(format!("port {port}"), places));
    }
    let format = rows_in_masks(format, &tiles, &files, &mut notes);
    let first = |t: &TileIndex| t.places().first().map(|p| files[p.file as usize].headers[p.at as usize]);
    let headers: Vec<_> = tiles.iter().map(first).collect();
    let side_by_side = if options.in_port_order {
        SideBySide::as_numbered(headers.len())
    } else {
        sls::arrange(format, (ports_x, ports_y), &headers, &mut notes)
    };
    let tiles = side_by_side.order.iter().map(|port| tiles[*port].clone()).collect();
    let words = format!("slsReceiver acquisition in HDF5, {}", path.display());
    let frames_expected = fact("Frames in File").or_else(|| fact("Total Frames"));
    let found = Parts { words, format, interfaces, notes, incomplete, frames_expected };
    let stopped = sls::stopped(master.text("/entry/instrument/detector/Timestamp").as_deref(), fact("Frames in File"));
    Ok(Found { placements: side_by_side.places, stopped, ..found.finish(files, tiles, vec![(0, 0); count as usize]) })
}

/// The format of a tile and the number of tiles of a module, from the master.
fn format_of(master: &ForeignFile) -> Result<(TileFormat, u32), String> {
    let fact = |name: &str| master.number(&format!("/entry/instrument/detector/{name}"));
    let pixels = |x: u64| (fact("Number of pixels in x axis").unwrap_or(x), fact("Number of pixels in y axis").unwrap_or(0));
    let kind = master.text("/entry/instrument/detector/Detector Type").unwrap_or_default();
    let (format, interfaces) = match kind.as_str() {
        "Jungfrau" => sls_master::jungfrau(pixels(1024), None)?,
        "Eiger" => sls_master::eiger(pixels(512), fact("Dynamic Range"), fact("Ten Giga Enable") != Some(0))?,
        other => return Err(format!("its detector is '{other}'; Jungfrau and Eiger are supported")),
    };
    Ok((sls_master::read_rows(format, fact("Number of rows")), interfaces))
}

/// The format, with all rows if packets were caught of other rows than those that were read according to the master.
fn rows_in_masks(format: TileFormat, tiles: &[TileIndex], files: &[Source], notes: &mut Vec<String>) -> TileFormat {
    let has_others = |(tile, index): (usize, &TileIndex)| {
        let mask = |p: &Place| files[p.file as usize].mask(p.at as usize);
        index.places().iter().filter_map(mask).any(|mask| {
            let caught = mask_bitmap(mask, format.whole().packets());
            caught.count() > of_rows_read(&caught, &format.of_tile(tile)).count()
        })
    };
    if format.is_partial() && tiles.iter().enumerate().any(has_others) {
        notes.push(sls::other_rows_note(&format));
        return format.whole();
    }
    format
}

/// Opens one data file of a port.
fn sls_file(path: &Path, format: &TileFormat) -> Result<Source, Failure> {
    let file = open_file(path)?;
    let stack = file.stack("/data").map_err(unreadable)?;
    if (stack.rows, stack.columns * stack.pixel_bytes) != (format.whole_rows() as usize, stored_row_bytes(format)) {
        let why = format!(
            "its images have {} rows of {} bytes; those of a port have {} rows of {}",
            stack.rows,
            stack.columns * stack.pixel_bytes,
            format.whole_rows(),
            stored_row_bytes(format)
        );
        return Err(wrong(
            format!("{} does not fit its master", path.display()),
            why,
            "put the files of one acquisition together",
        ));
    }
    let images = stack.images.len();
    let column = |name: &str| file.numbers(name).filter(|v| v.len() >= images);
    let frames = column("/frame number").ok_or_else(|| {
        wrong(format!("{} has no frame numbers", path.display()), "its table 'frame number' is incomplete", "the file is damaged")
    })?;
    let rest =
        ["timestamp", "detector specific 1", "exp length or sub exposure time", "detector specific 3", "mod id", "row", "column"];
    let columns = rest.map(|name| column(&format!("/{name}")).unwrap_or_default());
    let header = |n: usize| {
        let [timestamp, bunch, exposure, daq, module, row, column] = columns.each_ref().map(|c| c.get(n).copied().unwrap_or(0));
        SlsHeader {
            frame_number: frames[n],
            timestamp_100ns: timestamp,
            bunch_id: bunch,
            exposure_length: exposure as u32,
            daq_info: daq as u32,
            module_id: module as u16,
            row: row as u16,
            column: column as u16,
        }
    };
    let masks = file.bytes("/packets caught bit mask", MASK_BYTES).filter(|m| m.len() >= images * MASK_BYTES);
    Ok(Source { path: path.to_owned(), headers: (0..images).map(header).collect(), stack, masks, checksums: None })
}

/// Refuses images that do not consist of whole modules of 16-bit pixels.
fn check_shape(path: &Path, stack: &Stack, rows: usize, columns: usize) -> Result<(), Failure> {
    if stack.rows.is_multiple_of(rows) && stack.columns.is_multiple_of(columns) && stack.pixel_bytes == 2 {
        return Ok(());
    }
    let why = format!(
        "its images are {} x {} pixels of {} bytes; those of the detector have {rows} x {columns} and 2 bytes",
        stack.rows, stack.columns, stack.pixel_bytes
    );
    Err(wrong(format!("{} does not fit the detector", path.display()), why, "give raw data of a JUNGFRAU"))
}

/// Number of images that were written to a file. A receiver may extend its data set before frames arrive; an entry that
/// it never used has neither a frame number nor a packet.
fn written(source: &Source) -> usize {
    let is_unused = |n: &usize| {
        let number = source.headers[*n].frame_number;
        let has_number = number != 0 && number < FRAME_NUMBER_END;
        match source.mask(*n) {
            Some(mask) => !has_number && (mask.iter().all(|byte| *byte == 0) || mask.iter().all(|byte| *byte == 0xFF)),
            None => !has_number && source.stack.images.get(*n).copied().flatten().is_none(),
        }
    };
    let count = source.headers.len();
    count - (0..count).rev().take_while(is_unused).count()
}

/// The usable images of a file, in its order; `good` leaves out those that the file itself calls bad.
fn take_places(source: &Source, file: u32, good: Option<&[bool]>, incomplete: &mut bool, notes: &mut Vec<String>) -> Vec<Place> {
    let (mut absent, mut damaged, mut empty) = (0u64, 0u64, 0u64);
    let written = written(source);
    if written < source.headers.len() {
        notes.push(format!(
            "{}: its data set has room for {} frames, {written} were written; the unused rest is left out",
            source.path.display(),
            source.headers.len()
        ));
    }
    let mut places = Vec::with_capacity(written);
    for (n, header) in source.headers.iter().enumerate().take(written) {
        if source.stack.images.get(n).copied().flatten().is_none() {
            absent += 1;
        } else if header.frame_number >= FRAME_NUMBER_END {
            damaged += 1;
        } else if source.mask(n).is_some_and(|mask| mask.iter().all(|byte| *byte == 0)) {
            empty += 1;
        } else if good.is_none_or(|good| good.get(n).copied().unwrap_or(false)) {
            places.push(Place { frame: header.frame_number, at: n as u64, file });
        }
    }
    if empty > 0 {
        notes.push(format!("{}: {empty} frames have no packets; they are not used", source.path.display()));
    }
    for (count, what) in [(absent, "images are missing or cut off"), (damaged, "images have an invalid frame number")] {
        if count > 0 {
            *incomplete = true;
            notes.push(format!("{}: {count} {what}; they are not used", source.path.display()));
        }
    }
    places
}

/// Opens SwissFEL files: images in `/data/<detector>/data`, and columns of numbers beside them.
fn swissfel(paths: &[PathBuf], options: &Options) -> Result<Found, Failure> {
    let (mut notes, mut incomplete) = (Vec::new(), false);
    let (mut files, mut places): (Vec<Source>, Vec<Place>) = (Vec::new(), Vec::new());
    let format = TileFormat::jungfrau(1).ok_or_else(|| wrong("no such detector", "", ""))?;
    for path in paths {
        let file = open_file(path)?;
        let group = swissfel_group(path, &file, options)?;
        let (source, good) = swissfel_file(path, &file, &group, last_number(&files), &mut notes)?;
        let bad = good.iter().filter(|g| !**g).count();
        if bad > 0 {
            incomplete = true;
            notes.push(format!("{}: {bad} frames are not good (is_good_frame) and are not used", path.display()));
        }
        places.extend(take_places(&source, files.len() as u32, Some(&good), &mut incomplete, &mut notes));
        files.push(source);
    }
    let (rows, columns) = (files[0].stack.rows, files[0].stack.columns);
    if let Some(other) = files.iter().find(|f| (f.stack.rows, f.stack.columns) != (rows, columns)) {
        let why =
            format!("one has images of {rows} x {columns} pixels, the other of {} x {}", other.stack.rows, other.stack.columns);
        let what = format!("{} and {} are of different detectors", paths[0].display(), other.path.display());
        return Err(wrong(what, why, "convert them separately"));
    }
    // Modules lie one below the other; in one older file they also lie side by side.
    let at = |row: usize| (0..columns).step_by(1024).map(move |column| (row, column));
    let tiles: Vec<(usize, usize)> = (0..rows).step_by(512).flat_map(at).collect();
    let index = (0..tiles.len()).map(|t| TileIndex::new(format!("module {t}"), places.clone())).collect();
    let words = format!("SwissFEL JUNGFRAU HDF5 of {} module(s), {}", tiles.len(), paths[0].display());
    let parts = Parts { words, format, interfaces: 1, notes, incomplete, frames_expected: None };
    Ok(parts.finish(files, index, tiles))
}

fn swissfel_group(path: &Path, file: &ForeignFile, options: &Options) -> Result<String, Failure> {
    let names: Vec<String> = file.names("/data").into_iter().filter(|n| file.has(&format!("/data/{n}/data"))).collect();
    let name = match (&options.detector, &names[..]) {
        (Some(name), _) if names.contains(name) => name,
        (None, [only]) => only,
        (_, []) => {
            let why = "it holds neither /data/<detector>/data nor what the slsReceiver writes";
            return Err(wrong(
                format!("{} is not a raw file of a known format", path.display()),
                why,
                "docs/convert.md lists the formats",
            ));
        }
        _ => {
            let fix = format!("choose with --detector one of {}", names.join(", "));
            return Err(wrong(
                format!("{} holds {} detectors", path.display(), names.len()),
                "only one can be converted at a time",
                fix,
            ));
        }
    };
    let group = format!("/data/{name}");
    if file.has(&format!("{group}/meta/conversion_factor")) {
        let why = "it has a conversion factor, so its pixels are not raw words of the detector";
        return Err(wrong(format!("{} is converted already", path.display()), why, "give the raw file"));
    }
    Ok(group)
}

/// The highest frame number so far, including frames that are not used: no two frames may have the same number.
fn last_number(files: &[Source]) -> u64 {
    files.iter().flat_map(|file| &file.headers).map(|header| header.frame_number).max().unwrap_or(0)
}

/// Opens one file, and returns which of its frames are good. If its frame numbers are not usable, its frames are
/// numbered from `before` + 1.
fn swissfel_file(
    path: &Path,
    file: &ForeignFile,
    group: &str,
    before: u64,
    notes: &mut Vec<String>,
) -> Result<(Source, Vec<bool>), Failure> {
    let stack = file.stack(&format!("{group}/data")).map_err(unreadable)?;
    check_shape(path, &stack, 512, 1024)?;
    let images = stack.images.len();
    // One number per image, or one for each module of each image; then that of the first module is used.
    let table = |name: &str| {
        let found = file.numbers(&format!("{group}/{name}")).or_else(|| file.numbers(&format!("{group}/meta/{name}")))?;
        (images > 0 && !found.is_empty() && found.len().is_multiple_of(images)).then_some(found)
    };
    let of = |table: &Option<Vec<u64>>, n: usize| table.as_ref().map_or(0, |t| t[n * (t.len() / images)]);
    let (daq, pulse, index, good) = (table("daq_rec"), table("pulse_id"), table("frame_index"), table("is_good_frame"));
    let numbers: Option<Vec<u64>> = index.is_some().then(|| (0..images).map(|n| of(&index, n)).collect());
    let usable = |list: &Vec<u64>| list.windows(2).all(|w| w[0] < w[1]) && list.iter().all(|n| *n < FRAME_NUMBER_END);
    if numbers.as_ref().is_some_and(|list| !usable(list)) {
        notes.push(format!("{}: frame_index does not count upwards; frames are numbered by their position", path.display()));
    }
    let numbers = numbers.filter(usable);
    if let Some(map) = file.numbers(&format!("{group}/module_map")).or_else(|| file.numbers(&format!("{group}/meta/module_map")))
    {
        let off = map.iter().filter(|m| **m == u64::MAX).count();
        if off > 0 {
            notes.push(format!("{}: {off} modules were switched off (module_map) and are not in the images", path.display()));
        }
    }
    let header = |n: usize| SlsHeader {
        frame_number: numbers.as_ref().map_or(before + n as u64 + 1, |list| list[n]),
        bunch_id: of(&pulse, n),
        daq_info: of(&daq, n) as u32,
        ..SlsHeader::default()
    };
    let is_good =
        |n: usize| good.as_ref().is_none_or(|t| t[n * (t.len() / images)..(n + 1) * (t.len() / images)].iter().all(|g| *g != 0));
    let flags = (0..images).map(is_good).collect();
    Ok((Source { path: path.to_owned(), headers: (0..images).map(header).collect(), stack, masks: None, checksums: None }, flags))
}

/// What both kinds of files have in common.
struct Parts {
    words: String,
    format: TileFormat,
    interfaces: u32,
    notes: Vec<String>,
    incomplete: bool,
    frames_expected: Option<u64>,
}

impl Parts {
    fn finish(self, files: Vec<Source>, tiles: Vec<TileIndex>, places: Vec<(usize, usize)>) -> Found {
        let module_id = |t: &TileIndex| t.places().first().map_or(0, |p| files[p.file as usize].headers[p.at as usize].module_id);
        Found {
            words: self.words,
            format: self.format,
            interfaces: self.interfaces,
            placements: None,
            detector: None,
            own: None,
            span: (None, None),
            stopped: None,
            frames_expected: self.frames_expected,
            incomplete: self.incomplete,
            notes: self.notes,
            files: files.iter().map(|f| f.path.clone()).collect(),
            module_ids: tiles.iter().map(module_id).collect(),
            tiles,
            kind: Kind::Stacks(Stacks {
                files: Arc::new(files),
                format: self.format,
                tiles: Arc::new(places),
                decoded: Arc::default(),
            }),
        }
    }
}
