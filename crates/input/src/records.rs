//! Files of records. A record is a header of fixed length and the pixels of a tile. Finds the records and reads them
//! one by one.

use super::files::cannot_read;
use super::index::{Place, TileIndex};
use super::tile_reader::{TileFrame, TileReader};
use konkordia_core::MAX_PACKETS_PER_TILE;
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::failure::Failure;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_file::{PLAIN_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader, plain_header};
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of an input, and what their records are.
#[derive(Clone)]
pub struct Files {
    /// The files, by their number.
    pub paths: Arc<Vec<PathBuf>>,
    /// Bytes before the pixels: 112, 48, 16 or 0.
    pub header_bytes: usize,
    /// Format of the pixels that are wanted; the files hold whole tiles.
    pub format: TileFormat,
}

/// What was found in one file.
#[derive(Default)]
pub struct Scan {
    /// The records, in the order of the file.
    pub places: Vec<Place>,
    /// Header of the first record.
    pub first: SlsHeader,
    /// Bytes of an incomplete record at the end.
    pub cut_off_bytes: u64,
    /// Frames of which the receiver caught no packet.
    pub empty: u64,
    /// Frames with packets of rows that should not have been read out.
    pub other_rows: u64,
    /// Number of records with an invalid header, and what is wrong with the first of them.
    pub damaged: Option<(u64, String)>,
}

impl Scan {
    /// Adds notes on what is wrong with the file.
    pub fn notes(&self, path: &Path, incomplete: &mut bool, notes: &mut Vec<String>) {
        if self.cut_off_bytes > 0 {
            *incomplete = true;
            notes.push(format!(
                "{}: the last frame is cut off after {} bytes; it is not used",
                path.display(),
                self.cut_off_bytes
            ));
        }
        if self.empty > 0 {
            notes.push(format!("{}: {} frames have no packets; they are not used", path.display(), self.empty));
        }
        if let Some((count, why)) = &self.damaged {
            *incomplete = true;
            notes.push(format!("{}: {count} frames have a damaged header and are not used ({why})", path.display()));
        }
    }
}

/// Reads a header; `None` for planes without headers, an error for an invalid header.
pub fn judge(header: &[u8], format: &TileFormat) -> Result<Option<TileFrame>, String> {
    if header.is_empty() {
        return Ok(None);
    }
    if let Ok(plain) = <&[u8; PLAIN_HEADER_BYTES]>::try_from(header) {
        let header = plain_header(plain).ok_or("its frame number is invalid")?;
        return Ok(Some(TileFrame { header, bitmap: PacketBitmap::default() }));
    }
    let record = RecordHeader::new_checked(header, format.kind).map_err(|why| match why {
        konkordia_core::ledger::Malformed::PacketNumber => "its frame number is invalid".to_string(),
        other => format!("wrong {}", other.name()),
    })?;
    let caught = record.bitmap(format.whole().packets()).unwrap_or_default();
    let bitmap = caught.renumbered(format.first_packet as u16, format.packets() as u16, 0);
    Ok(Some(TileFrame { header: record.frame_header(), bitmap }))
}

/// Number of packets in the mask of a record.
fn caught(header: &[u8], format: &TileFormat) -> u32 {
    let record = RecordHeader::new_checked(header, format.kind).ok();
    record.and_then(|r| r.bitmap(format.whole().packets())).map_or(0, |bitmap| bitmap.count())
}

/// Reads all headers of file `number`, whose tile has this format ([`TileFormat::of_tile`]). Files without headers
/// cannot be scanned; see [`planes`].
pub fn scan(path: &Path, number: u32, header_bytes: usize, format: &TileFormat) -> Result<Scan, Failure> {
    assert!((1..=RECORD_HEADER_BYTES).contains(&header_bytes));
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    let size = file.metadata().map_err(|e| cannot_read(path, &e))?.len();
    let record_bytes = header_bytes as u64 + u64::from(format.whole().tile_bytes());
    let mut scan = Scan { cut_off_bytes: size % record_bytes, ..Scan::default() };
    let mut buffer = [0u8; RECORD_HEADER_BYTES];
    let header = &mut buffer[..header_bytes];
    for at in (0..size / record_bytes).map(|n| n * record_bytes) {
        file.read_exact_at(header, at).map_err(|e| cannot_read(path, &e))?;
        match judge(header, format) {
            Ok(Some(found)) if header_bytes == RECORD_HEADER_BYTES && found.bitmap.count() == 0 => {
                scan.empty += 1;
                scan.other_rows += u64::from(caught(header, format) > 0);
            }
            Ok(found) => {
                let packets = found.map_or(0, |f| f.bitmap.count());
                scan.other_rows += u64::from(format.is_partial() && caught(header, format) > packets);
                let frame = found.unwrap_or_default().header;
                if scan.places.is_empty() {
                    scan.first = frame;
                }
                scan.places.push(Place { frame: frame.frame_number, at, file: number });
            }
            Err(why) => scan.damaged.get_or_insert((0, why)).0 += 1,
        }
    }
    Ok(scan)
}

/// Frames of plain words in files of `sizes` bytes: those of tile `tile` of `tiles`, numbered from 1.
pub fn planes(sizes: &[u64], format: &TileFormat, tile: usize, tiles: usize) -> Vec<Place> {
    let tile_bytes = u64::from(format.tile_bytes());
    let frame_bytes = tile_bytes * tiles as u64;
    let frames = sizes.iter().enumerate().flat_map(|(file, size)| (0..size / frame_bytes).map(move |n| (file as u32, n)));
    let place = |((file, n), frame): ((u32, u64), u64)| Place { frame, at: n * frame_bytes + tile as u64 * tile_bytes, file };
    frames.zip(1..).map(place).collect()
}

/// Reads the records of one tile.
pub struct Reader {
    files: Files,
    index: TileIndex,
    /// Format of the tile.
    format: TileFormat,
    /// Bytes of the rows before the first one that is wanted.
    skipped_bytes: usize,
    /// The file that is open, its number, and where the next read begins.
    open: Option<(File, u32, u64)>,
}

impl Reader {
    /// Opens no file yet.
    pub fn new(files: Files, index: TileIndex, tile: usize) -> Self {
        let format = files.format.of_tile(tile);
        let skipped_bytes = format.pixels_read(tile).start * format.bits as usize / 8;
        Self { files, index, format, skipped_bytes, open: None }
    }

    fn read_record(&mut self, place: Place, header: &mut [u8], payloads: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        if self.open.as_ref().is_none_or(|(_, number, _)| *number != place.file) {
            self.open = Some((File::open(&self.files.paths[place.file as usize])?, place.file, 0));
        }
        let Some((file, _, next)) = self.open.as_mut() else { return Err(ErrorKind::NotFound.into()) };
        if *next != place.at {
            file.seek(SeekFrom::Start(place.at))?;
        }
        // The position is unknown if the read fails half way.
        *next = u64::MAX;
        let bytes = header.len() + self.skipped_bytes + payloads.iter().map(|p| p.len()).sum::<usize>();
        if self.skipped_bytes == 0 {
            read_parts(file, header, payloads)?;
        } else {
            read_parts(file, header, &mut [])?;
            file.seek(SeekFrom::Current(self.skipped_bytes as i64))?;
            read_parts(file, &mut [], payloads)?;
        }
        *next = place.at + bytes as u64;
        Ok(())
    }
}

impl TileReader for Reader {
    fn places(&self) -> &[Place] {
        self.index.places()
    }

    fn read_into(&mut self, nth: usize, payloads: &mut [IoSliceMut<'_>]) -> Result<TileFrame, Failure> {
        let place = self.index.places()[nth];
        let mut header = [0u8; RECORD_HEADER_BYTES];
        let header = &mut header[..self.files.header_bytes];
        self.read_record(place, header, payloads).map_err(|e| {
            let path = &self.files.paths[place.file as usize];
            let failure = cannot_read(path, &e);
            if e.kind() == ErrorKind::UnexpectedEof {
                Failure { why: "the file became shorter".into(), ..failure }
            } else {
                failure
            }
        })?;
        let mut frame = judge(header, &self.format).ok().flatten().unwrap_or_default();
        // The index uses this number; planes have no other.
        frame.header.frame_number = place.frame;
        if header.len() != RECORD_HEADER_BYTES {
            frame.bitmap = not_padding(&self.format, payloads);
        }
        Ok(frame)
    }
}

/// Fills `header` and then `payloads` from the current position of the file, with one system call if that returns all
/// bytes.
fn read_parts(mut file: &File, header: &mut [u8], payloads: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    const PARTS_MAX: usize = MAX_PACKETS_PER_TILE + 1;
    let count = payloads.len() + 1;
    assert!(count <= PARTS_MAX, "one slice, or one for each packet");
    let mut given = std::iter::once(header).chain(payloads.iter_mut().map(|p| &mut **p));
    let mut parts: [IoSliceMut<'_>; PARTS_MAX] = std::array::from_fn(|_| IoSliceMut::new(given.next().unwrap_or_default()));
    let mut rest = &mut parts[..count];
    IoSliceMut::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.read_vectored(rest) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => IoSliceMut::advance_slices(&mut rest, bytes),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Packets that are not all 0xFF bytes.
pub fn not_padding(format: &TileFormat, payloads: &[IoSliceMut<'_>]) -> PacketBitmap {
    let bytes = format.payload_bytes as usize;
    let mut bitmap = PacketBitmap::default();
    for (packet, payload) in payloads.iter().flat_map(|p| p.chunks(bytes)).enumerate() {
        if payload.iter().any(|byte| *byte != 0xFF) {
            bitmap.set(packet as u16);
        }
    }
    bitmap
}
