//! Files of a run, damaged at any places, read by everything that reads HDF5 files: our reader, the check, the repair,
//! and the reader of other programs' files. Nothing panics, and what is read has the size that the file claims.
//!
//! The input says what is damaged: bytes that are changed one after the other would only spoil the checksums of a file
//! of 100 KB. The fuzz target `hdf5_file` and the tests of the sinks use this.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::foreign::ForeignFile;
use konkordia_sinks::hdf5::others::OthersFile;
use konkordia_sinks::hdf5::{Decode, FileSpec, ImageRecord, ImageStatus, LedgerRecord, Overwrite, Reader, StreamRecord};
use konkordia_sinks::hdf5::{TileInfo, Writer, check as check_file, inspect, repair};

const ROWS: u32 = 8;
const COLUMNS: u32 = 16;
const IMAGES: u64 = 3;
const EDITS_MAX: usize = 12;

/// The files of a whole run: name and content, the master first.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// A folder in memory for this process.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    base.join(format!("konkordia-hostile-{}", std::process::id()))
}

fn spec(directory: &Path) -> FileSpec {
    let tile = TileInfo { rows: ROWS, columns: COLUMNS, row: 0, column: 0, flip_rows: false, rotate_deg: 0, packets: 2 };
    FileSpec {
        directory: directory.into(),
        prefix: "r".into(),
        images_per_file: 2,
        overwrite: Overwrite::Replace,
        rows: ROWS,
        columns: COLUMNS,
        pixel: PixelType::Int16,
        pixel_mask: vec![0; (ROWS * COLUMNS) as usize],
        tiles: vec![tile],
        calibration_hash: "sha256:0123".into(),
        configuration: "[detector]\ntype = \"jungfrau\"\n".into(),
        compression: konkordia_sinks::hdf5::Compression::None,
        ..FileSpec::default()
    }
}

fn ledger() -> LedgerRecord {
    let named = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
    let packets = [("packets_received", 2 * IMAGES), ("packets_placed", 2 * IMAGES)];
    let images = [("images_expected", IMAGES), ("images_complete", IMAGES)];
    LedgerRecord {
        totals: named(&[packets, images].concat()),
        streams: vec![StreamRecord { name: "udp://127.0.0.1:50010".into(), counters: named(&packets) }],
        balances: vec!["images_expected = images_complete".into()],
        latency: Vec::new(),
        ended: "complete".into(),
        end_time: Some("2026-11-21T12:00:09Z".into()),
        images_expected: IMAGES,
    }
}

fn whole_run() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = folder();
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let mut writer = Writer::create(spec(&folder)).expect("a run can be written");
        for index in 0..IMAGES {
            let pixels = vec![index as u8; (ROWS * COLUMNS * 2) as usize];
            let record = ImageRecord {
                index,
                frame_number: 1 + index,
                status: ImageStatus::Complete,
                parts: &[&pixels],
                packets_received: &[2],
                packet_bitmap: &[3],
                frame_values: &[10_000 * index, index, 8400, 1],
                extra: &[],
            };
            writer.write(&record).expect("an image can be written");
        }
        let report = writer.finish(&ledger()).expect("the run can be finished");
        let paths = std::iter::once(report.master).chain(report.data_files);
        let files: Files = paths.map(|path| (path.clone(), std::fs::read(path).expect("it was just written"))).collect();
        assert!(files.len() == 3 && Reader::open(&files[0].0).is_ok(), "the undamaged run can be read");
        files
    })
}

/// True near a global heap, in which virtual data sets and texts of any length lie. libhdf5 itself can loop for ever
/// over a damaged one (`H5HG__cache_heap_deserialize`). That says nothing of our code, and would end every longer
/// search.
fn is_global_heap(bytes: &[u8], at: usize) -> bool {
    const HEAP_BYTES: usize = 4096;
    let from = at.saturating_sub(HEAP_BYTES);
    bytes[from..(at + 20).min(bytes.len())].windows(4).any(|four| four == b"GCOL")
}

/// Writes the files, damaged as the input says.
fn write_damaged(edits: &[u8]) -> PathBuf {
    let mut files = whole_run().clone();
    for [kind, a, b, c, value] in edits.as_chunks::<5>().0.iter().take(EDITS_MAX) {
        let index = usize::from(kind >> 4) % files.len();
        let bytes = &mut files[index].1;
        let place = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some(at) = place.checked_rem(bytes.len()) else { continue };
        let end = (at + 8).min(bytes.len());
        if is_global_heap(bytes, at) {
            continue;
        }
        match kind & 15 {
            0..=5 => bytes[at] ^= value,
            6..=9 => bytes[at] = *value,
            10 => bytes[at..end].fill(*value),
            11 => bytes[at..end].fill(0xFF),
            12 => {
                let from = (at / 256 * 256 + usize::from(*value)).min(bytes.len() - 1);
                let to = (from + 16).min(bytes.len());
                let at = at.min(bytes.len() - (to - from));
                bytes.copy_within(from..to, at);
            }
            // Names, types and links are where there is text.
            13 => {
                let text = bytes.iter().enumerate().skip(at).find(|(_, byte)| byte.is_ascii_lowercase()).map(|(n, _)| n);
                text.into_iter().for_each(|n| bytes[n] = *value);
            }
            14 if value & 7 == 0 => bytes.truncate(at),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
    let _ = std::fs::remove_dir_all(folder());
    std::fs::create_dir_all(folder()).expect("the folder can be made");
    for (path, bytes) in &files {
        std::fs::write(path, bytes).expect("the folder can be written");
    }
    files[0].0.clone()
}

/// Reads a run with our reader.
fn read(master: &Path, decode: &Decode<'_>) {
    let Ok(reader) = Reader::open(master) else { return };
    let _ = inspect(master);
    let names: Vec<&str> = vec!["frame_number", "status", "timestamp", "chunk_crc32"];
    names.iter().for_each(|name| drop(reader.column(name)));
    let mut chunk = Vec::new();
    for image in 0..IMAGES + 1 {
        let _ = reader.read_chunk(image, &mut chunk);
        let _ = reader.read_image(image, decode);
    }
}

/// Reads a file as one of another program.
fn read_others(path: &Path, decode: &Decode<'_>) {
    if let Ok(file) = OthersFile::open(path) {
        for number in 0..file.images().min(IMAGES + 1) {
            if let Ok((placed, Some(pixels))) = file.image(number, decode) {
                assert_eq!(pixels.len(), placed.layout.image_bytes());
            }
        }
        if file.images() < 1000 {
            let _ = file.findings(Some(decode));
        }
    }
    let Ok(file) = ForeignFile::open(path) else { return };
    for group in ["/", "/entry", "/entry/data", "/entry/instrument/detector"] {
        for name in file.names(group) {
            let name = format!("{group}/{name}");
            let _ = (file.has(&name), file.number(&name), file.text(&name), file.numbers(&name));
        }
    }
    let _ = file.stack("/entry/data/data");
}

/// Damages a run as the input says, and reads it.
pub fn check(data: &[u8], decode: &Decode<'_>) {
    let Some(([how], edits)) = data.split_first_chunk::<1>() else { return };
    let master = write_damaged(edits);
    let files: Vec<PathBuf> = whole_run().iter().map(|(path, _)| path.clone()).collect();
    match how % 6 {
        0 | 1 => read(&master, decode),
        2 => drop(check_file(&master, decode)),
        3 => {
            let _ = repair(&master);
            drop(check_file(&master, decode));
        }
        4 => read_others(&master, decode),
        _ => read_others(&files[1], decode),
    }
}

/// Removes what was written.
#[allow(dead_code, reason = "a fuzz target never comes to its end")]
pub fn clean() {
    let _ = std::fs::remove_dir_all(folder());
}
