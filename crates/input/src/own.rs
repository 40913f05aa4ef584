//! Reads runs of this program with dtype = "raw": the images of a NeXus file hold the words of the detector, and
//! columns beside them say which packets were received.
//!
//! Geometry and detector are those of the configuration in the file.

use super::files::wrong;
use super::found::{Found, Kind};
use super::index::{Place, TileIndex};
use super::info::{KeptFrame, OwnRun, RunFrames};
use super::own_reader::{Part, RawRun};
use super::stack::{open_file, unreadable};
use super::stack_reader::Source;
use konkordia_config::{Config, overrides};
use konkordia_core::assembler::BITMAP_WORDS;
use konkordia_core::failure::Failure;
use konkordia_core::geometry::{DoublePixels, ImageGeometry};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Compression;
use konkordia_core::setup::{self, Port};
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::DetectorKind;
use konkordia_sinks::hdf5::foreign::ForeignFile;
use konkordia_sinks::hdf5::others::is_ours;
use konkordia_sinks::hdf5::reader::DataFileSummary;
use konkordia_sinks::hdf5::{self, CHECKSUM, FileSpec, Summary, master_file_name};
use konkordia_wire::sls_file::FRAME_NUMBER_END;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STACK: &str = "/entry/data/data";
const COLUMNS: &str = "/entry/konkordia/images";
const STREAMS: &str = "/entry/konkordia/ledger/streams";
const FIRST_FRAME: &str = "first_frame";

/// True for a file of this program, master or data file, whatever is in it.
pub fn is_own(path: &Path) -> bool {
    is_ours(path) == Some(true)
}

/// True if the images of a file of this program are words of a detector.
pub fn has_words(path: &Path) -> bool {
    let spec = hdf5::inspect(&master_of(path)).ok().and_then(|summary| summary.spec);
    spec.is_some_and(|spec| spec.raw_words && spec.series.is_none())
}

/// The master of a data file, or the file itself.
fn master_of(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let parts = name.strip_suffix(".h5").and_then(|stem| stem.rsplit_once("_data_"));
    match parts {
        Some((prefix, digits)) if digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit()) => {
            path.with_file_name(master_file_name(prefix))
        }
        _ => path.to_owned(),
    }
}

/// Opens a run: its master, or data files of it.
pub fn open(paths: &[PathBuf]) -> Result<Found, Failure> {
    let mut masters: Vec<PathBuf> = paths.iter().map(|path| master_of(path)).collect();
    masters.dedup();
    let [master] = &masters[..] else {
        let why = masters.iter().map(|m| m.display().to_string()).collect::<Vec<_>>().join("\n");
        return Err(wrong("the input belongs to several runs", why, "convert them one after the other"));
    };
    if !master.is_file() {
        let why = format!("it needs its master {}", master.display());
        let fix = "put it beside the data files; after a crash `konkordia repair` makes one";
        return Err(wrong(format!("{} cannot be converted alone", paths[0].display()), why, fix));
    }
    let summary = hdf5::inspect(master).map_err(unreadable)?;
    let spec = words_of(master, &summary)?;
    let (geometry, detector) = geometry_of(master, spec)?;
    let (mut notes, mut incomplete) = (Vec::new(), false);
    let wrong_setup = summary.ended.as_deref().and_then(setup::wrong_setup).map(str::to_owned);
    if let Some(wrong) = &wrong_setup {
        incomplete = true;
        notes.push(format!("the run had a wrong set-up: {wrong}"));
    }
    let mut parts = all_parts(master, spec, &summary, (&mut incomplete, &mut notes))?;
    let first_frame = number_frames(&mut parts, &mut notes);
    let tiles = index(&parts, &geometry, (&mut incomplete, &mut notes));
    let mut files: Vec<PathBuf> = parts.iter().map(|p| p.source.path.clone()).collect();
    files.push(master.clone());
    let format = *geometry.format();
    let mut pixel_runs = vec![Vec::new(); geometry.placements().len()];
    geometry.for_each_run(|run| pixel_runs[usize::from(run.tile)].push(run));
    let of_master = open_file(master)?;
    let ports = ports(&of_master, tiles.len());
    let own = OwnRun {
        metadata: spec.metadata.clone(),
        end_time: of_master.text("/entry/end_time"),
        wrong_setup,
        has_double_pixels: geometry.double_pixels() != DoublePixels::Mask,
        frames: frames_of(spec, &of_master, first_frame),
    };
    let last_frame = first_frame.saturating_add(summary.images.max(1) - 1);
    Ok(Found {
        words: format!("run of raw words, {}", master.display()),
        format,
        interfaces: format.tiles_per_module,
        placements: None,
        detector: Some(detector),
        own: Some(own),
        span: (Some(first_frame), Some(last_frame)),
        stopped: None,
        frames_expected: None,
        incomplete,
        notes,
        files,
        module_ids: ports.iter().map(|port| port.module_id).collect(),
        tiles,
        kind: Kind::Own(RawRun {
            parts: Arc::new(parts),
            geometry: Arc::new(geometry),
            pixel_runs: Arc::new(pixel_runs),
            ports: Arc::new(ports),
            decoded: Arc::default(),
        }),
    })
}

/// Opens the data files that are there.
fn all_parts(
    master: &Path,
    spec: &FileSpec,
    run: &Summary,
    (incomplete, notes): (&mut bool, &mut Vec<String>),
) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    for file in &run.data_files {
        match &file.problem {
            Some(problem) => {
                *incomplete = true;
                notes.push(missing_file(file, spec, run.images, problem));
            }
            None => parts.push(part(file, spec, run, (&mut *incomplete, &mut *notes))?),
        }
    }
    if parts.is_empty() {
        let why = notes.first().cloned().unwrap_or_else(|| "it names none".into());
        return Err(wrong(format!("{} has no data files that can be read", master.display()), why, "bring the data files back"));
    }
    Ok(parts)
}

/// The description of a run. Refuses a file whose images are not unchanged words of a detector.
fn words_of<'a>(master: &Path, summary: &'a Summary) -> Result<&'a FileSpec, Failure> {
    let name = master.display();
    let Some(spec) = &summary.spec else {
        let why = "its description of the run is missing or damaged";
        return Err(wrong(format!("{name} cannot be converted"), why, "`konkordia check` says what is wrong with the file"));
    };
    if spec.series.is_some() || !spec.raw_words {
        let why = format!("its pixels are {} of type {}, not words of a detector", spec.unit, spec.pixel);
        let fix = "give a run with dtype = \"raw\", or the raw frames that keep_raw = true keeps; `konkordia repack` changes the compression of a converted run";
        return Err(wrong(format!("{name} is converted already"), why, fix));
    }
    if matches!(summary.compression, Compression::Sz3 { .. }) {
        let why = "a lossy compression changed its words";
        return Err(wrong(format!("{name} cannot be converted"), why, "give the original run"));
    }
    if summary.state == "writing" {
        let why = "it is still being written, or the program that wrote it was killed";
        let fix = format!("wait for the end of the run; after a crash: konkordia repair {name}");
        return Err(wrong(format!("{name} is not complete"), why, fix));
    }
    Ok(spec)
}

/// Module and position of each tile from its headers, as stored in the ledger; zeros where no packet was received.
fn ports(master: &ForeignFile, tiles: usize) -> Vec<Port> {
    let column = |name: &str| master.numbers(&format!("{STREAMS}/header_{name}")).filter(|list| list.len() == tiles);
    let [rows, columns, ids] = ["row", "column", "module_id"].map(column);
    let of = |list: &Option<Vec<u64>>, tile: usize| list.as_ref().and_then(|list| u16::try_from(list[tile]).ok()).unwrap_or(0);
    (0..tiles).map(|n| Port { row: of(&rows, n), column: of(&columns, n), module_id: of(&ids, n) }).collect()
}

/// Which frames the run kept, from the columns of its master. These are there even if a data file is missing. Image 0
/// is frame `first` of the input.
fn frames_of(spec: &FileSpec, master: &ForeignFile, first: u64) -> RunFrames {
    if !spec.extra_columns.iter().any(|column| column.name == FIRST_FRAME) {
        return RunFrames::Each(Some(first));
    }
    let column = |name: &str| master.numbers(&format!("{COLUMNS}/{name}")).unwrap_or_default();
    let (numbers, positions, counts, states) = (column("frame_number"), column(FIRST_FRAME), column("frames"), column("status"));
    let rows = numbers.into_iter().zip(positions).zip(counts).zip(states);
    let kept = |(((number, position), frames), status): (((u64, u64), u64), u64)| KeptFrame {
        number: has_packets(status).then_some(number),
        position: (frames > 0).then_some(position),
    };
    RunFrames::Kept(first, Arc::new(rows.map(kept).collect()))
}

/// Where the run put its tiles, and `[detector]` of its configuration without the values that the arm command changed.
fn geometry_of(master: &Path, spec: &FileSpec) -> Result<(ImageGeometry, toml::Table), Failure> {
    let refuse = |why: String| {
        let fix = "the file is damaged, or of another version of konkordia; `konkordia check` says more";
        wrong(format!("{} does not say where its modules are", master.display()), why, fix)
    };
    let mut root: toml::Table = spec.configuration.parse().map_err(|e: toml::de::Error| refuse(e.to_string()))?;
    let mut detector = match root.remove("detector") {
        Some(toml::Value::Table(detector)) => detector,
        _ => return Err(refuse("the configuration in it has no [detector]".into())),
    };
    // The other tables do not matter here, and some of them may be impossible on this machine.
    let mut bare = toml::Table::new();
    bare.insert("detector".into(), toml::Value::Table(detector.clone()));
    let text = toml::to_string(&bare).map_err(|e| refuse(e.to_string()))?;
    let text = format!("{text}\n[processing]\ndtype = \"raw\"\n[output]\ndirectory = \".\"\nprefix = \"raw\"\n");
    let config = Config::parse(&text, master).map_err(|d| refuse(d.to_string()))?;
    let geometry = config.geometry;
    let placed = |g: &ImageGeometry| g.placements().iter().map(|p| (p.row, p.column)).collect::<Vec<_>>();
    let stored: Vec<(u32, u32)> = spec.tiles.iter().map(|t| (t.row, t.column)).collect();
    let (rows, columns) = (geometry.rows(), geometry.columns());
    if (rows, columns) != (spec.rows, spec.columns) {
        let found = format!("the file has {} x {}", spec.rows, spec.columns);
        return Err(refuse(format!("the configuration in it makes images of {rows} x {columns} pixels, {found}")));
    }
    if placed(&geometry) != stored {
        return Err(refuse("the tiles of the configuration in it have other positions than those in the file".into()));
    }
    if geometry.format().kind != DetectorKind::Jungfrau {
        return Err(refuse(format!("the configuration in it is for an {}", geometry.format().kind.name())));
    }
    detector.retain(|key, value| overrides::agrees("detector", key, value, &spec.metadata));
    Ok((geometry, detector))
}

fn missing_file(file: &DataFileSummary, spec: &FileSpec, images: u64, problem: &str) -> String {
    let last = (file.first_image + u64::from(spec.images_per_file)).min(images).max(file.first_image + 1) - 1;
    format!(
        "{}: cannot be read ({problem}); images {} to {last} will be lost images, unless the file is brought back",
        file.path.display(),
        file.first_image
    )
}

/// Opens one data file and reads its columns.
fn part(
    summary: &DataFileSummary,
    spec: &FileSpec,
    run: &Summary,
    (incomplete, notes): (&mut bool, &mut Vec<String>),
) -> Result<Part, Failure> {
    let file = open_file(&summary.path)?;
    let stack = file.stack(STACK).map_err(unreadable)?;
    let (images, tiles, words) = (stack.images.len(), spec.tiles.len(), spec.bitmap_words());
    if (stack.rows, stack.columns, stack.pixel_bytes) != (spec.rows as usize, spec.columns as usize, 2) {
        let why = format!("its images have {} x {} pixels of {} bytes", stack.rows, stack.columns, stack.pixel_bytes);
        return Err(wrong(format!("{} is of another run", summary.path.display()), why, "put the files of one run together"));
    }
    let column = |name: &str, each: usize| {
        let found = file.numbers(&format!("{COLUMNS}/{name}")).filter(|values| values.len() == images * each);
        found.ok_or_else(|| {
            let why = format!("its column '{name}' is missing, or does not have one row for each of its {images} images");
            wrong(format!("{} is damaged", summary.path.display()), why, "`konkordia check` says more; use a copy of the file")
        })
    };
    let [frames, timestamps, bunches, exposures, infos] =
        ["frame_number", "timestamp", "bunch_id", "exposure", "detector_info"].map(|name| column(name, 1));
    let (frames, timestamps, bunches, exposures, infos) = (frames?, timestamps?, bunches?, exposures?, infos?);
    let header = |n: usize| SlsHeader {
        frame_number: frames[n],
        timestamp_100ns: timestamps[n],
        bunch_id: bunches[n],
        exposure_length: exposures[n] as u32,
        daq_info: infos[n] as u32,
        ..SlsHeader::default()
    };
    let expected = u64::from(spec.images_per_file).min(run.images.saturating_sub(summary.first_image));
    if (images as u64) < expected {
        *incomplete = true;
        notes.push(format!("{}: holds {images} of {expected} images; the others will be lost images", summary.path.display()));
    }
    if words > BITMAP_WORDS {
        return Err(wrong(
            format!("{} is damaged", summary.path.display()),
            "it has more packets than a tile can have",
            "use a copy of the file",
        ));
    }
    Ok(Part {
        status: column("status", 1)?,
        bitmaps: column("packet_bitmap", tiles * words)?,
        source: Source {
            path: summary.path.clone(),
            headers: (0..images).map(header).collect(),
            stack,
            masks: None,
            // Older files do not have this column.
            checksums: file.has(&format!("{COLUMNS}/{CHECKSUM}")).then(|| column(CHECKSUM, 1)).transpose()?,
        },
        words,
        tiles,
        first_image: summary.first_image,
    })
}

/// Gives each image its frame number and returns that of image 0. If the run did not keep every frame as an image,
/// images are numbered from 1.
fn number_frames(parts: &mut [Part], notes: &mut Vec<String>) -> u64 {
    let first = first_number(parts);
    if first.is_none() {
        notes.push("the run did not keep every frame: its images are numbered from 1".into());
    }
    let first = first.unwrap_or(1);
    for part in parts {
        for (n, header) in part.source.headers.iter_mut().enumerate() {
            header.frame_number = part.first_image.saturating_add(first + n as u64);
        }
    }
    first
}

/// Frame number of image 0; 1 for a run without a packet. `None` if frame numbers do not increase by one from image to
/// image.
fn first_number(parts: &[Part]) -> Option<u64> {
    let mut first = None;
    for part in parts {
        let there = part.source.headers.iter().zip(&part.status).enumerate().filter(|(_, (_, status))| has_packets(**status));
        for (n, (header, _)) in there {
            let image = part.first_image.saturating_add(n as u64);
            let of_image_0 = header.frame_number.checked_sub(image).filter(|f| *f < FRAME_NUMBER_END)?;
            if *first.get_or_insert(of_image_0) != of_image_0 {
                return None;
            }
        }
    }
    Some(first.unwrap_or(1))
}

fn has_packets(status: u64) -> bool {
    status == ImageStatus::Complete as u64 || status == ImageStatus::Partial as u64
}

/// The frames of each tile: those whose words are stored and of which packets of the tile were received.
fn index(parts: &[Part], geometry: &ImageGeometry, (incomplete, notes): (&mut bool, &mut Vec<String>)) -> Vec<TileIndex> {
    let tiles = geometry.placements().len();
    let mut places: Vec<Vec<Place>> = vec![Vec::new(); tiles];
    for (number, part) in parts.iter().enumerate() {
        let (mut absent, mut discarded) = (0u64, 0u64);
        for (n, header) in part.source.headers.iter().enumerate() {
            discarded += u64::from(part.status[n] == ImageStatus::Discarded as u64);
            if !has_packets(part.status[n]) {
                continue;
            }
            if part.source.stack.images[n].is_none() {
                absent += 1;
                continue;
            }
            let place = Place { frame: header.frame_number, at: n as u64, file: number as u32 };
            (0..tiles).filter(|tile| part.bitmap(n, *tile).count() > 0).for_each(|tile| places[tile].push(place));
        }
        let name = part.source.path.display();
        if absent > 0 {
            *incomplete = true;
            notes.push(format!(
                "{name}: the words of {absent} images are cut off or were never written; they will be lost images"
            ));
        }
        if discarded > 0 {
            notes.push(format!(
                "{name}: the run discarded {discarded} images, whose words are not stored; they will be lost images"
            ));
        }
    }
    let name = |tile: usize| format!("tile {tile}");
    places.into_iter().enumerate().map(|(tile, places)| TileIndex::new(name(tile), places)).collect()
}
