//! The per-image columns: one row of bytes per image, the same in the journal, in the data files and in the master.

use super::checksum::{self, CHECKSUM};
use super::error::{Error, ErrorKind};
use super::extra_column::ExtraColumn;
use super::spec::FileSpec;

pub(crate) use konkordia_core::frame_header::ColumnType;
use konkordia_core::image::ImageTimes;
pub use konkordia_core::ledger::ImageStatus;
use konkordia_core::results;

/// One image for [`super::Writer::write`].
#[derive(Clone, Copy, Debug)]
pub struct ImageRecord<'a> {
    /// Number of the image in the run, from 0: its position in the files. Must grow from call to call; skipped numbers
    /// are lost images.
    pub index: u64,
    /// Frame number that the detector gave.
    pub frame_number: u64,
    /// How much of the image arrived.
    pub status: ImageStatus,
    /// The chunk, in one or several parts that are written one after the other: for example the 12-byte header and the
    /// blocks of `Compression::BSLZ4`, or all pixels of `Compression::None`. Empty for an image without pixels (lost,
    /// discarded).
    pub parts: &'a [&'a [u8]],
    /// Packets that arrived, per tile.
    pub packets_received: &'a [u16],
    /// Which packets arrived: bit p % 64 of word p / 64, `bitmap_words` words per tile, tile after tile.
    pub packet_bitmap: &'a [u64],
    /// Values of `FileSpec::frame_columns`, column after column; of a column that has a value for each tile, tile after
    /// tile.
    pub frame_values: &'a [u64],
    /// Values of `FileSpec::extra_columns`, one column after the other: the bits of each number.
    pub extra: &'a [u64],
}

#[cfg(test)]
impl<'a> ImageRecord<'a> {
    /// An image with these parts of its chunk, of one tile of which no packet is recorded.
    pub(crate) fn partial(index: u64, parts: &'a [&'a [u8]]) -> Self {
        Self {
            index,
            frame_number: index,
            status: ImageStatus::Partial,
            parts,
            packets_received: &[0],
            packet_bitmap: &[0],
            frame_values: &[0; 4],
            extra: &[],
        }
    }
}

/// One per-image column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: ColumnType,
    /// Shape of one image's values; empty for a single number.
    pub(crate) shape: Vec<usize>,
    /// Byte offset in the row.
    pub(crate) offset: usize,
    pub(crate) description: String,
}

impl Column {
    pub(crate) fn bytes(&self) -> usize {
        self.kind.bytes() * self.shape.iter().product::<usize>()
    }
}

/// All columns of a run.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) list: Vec<Column>,
    pub(crate) row_bytes: usize,
    tiles: usize,
    words: usize,
    extra: usize,
    /// Bytes of each of the values that the packet format gives to an image.
    frame_value_bytes: Vec<usize>,
}

/// One image of a series for [`super::Writer::write_series`].
#[derive(Clone, Copy, Debug)]
pub struct SeriesRecord<'a> {
    /// Position of the image in the files, from 0. Must grow from call to call; skipped positions are lost images.
    pub index: u64,
    /// Its state. An image that is not to be stored is `Discarded`.
    pub status: ImageStatus,
    /// The chunks, as many as [`super::SeriesInfo::pieces`]; empty for an image without pixels.
    pub pieces: &'a [&'a [u8]],
    /// When it was exposed, if known.
    pub times: Option<ImageTimes>,
    /// Bit n is set if the part of upstream n is missing.
    pub parts_missing: u64,
    /// Values of `FileSpec::extra_columns`, as of [`ImageRecord`]; zeros if there are none.
    pub extra: &'a [u64],
}

/// The rest of a row that is being written.
struct Put<'a>(&'a mut [u8]);

impl Put<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        let (here, after) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        self.0 = after;
    }
}

fn wrong_count(image: u64, what: &str, got: usize, want: usize) -> Error {
    let cause = format!("image {image}: {got} values of {what} instead of {want}");
    Error::new(ErrorKind::Invalid, "write an image", std::path::Path::new("-"), cause)
}

/// The meaning of the additional columns: of runs with a selection of frames, and of results.
fn meaning(name: &str) -> &'static str {
    match name {
        "first_frame" => "position in the run of the first frame of this image, from 0",
        "frames" => "frames that were added",
        "frames_complete" => "frames with all packets received",
        _ => results::meaning(name).unwrap_or("named by the run"),
    }
}

impl Columns {
    pub(crate) fn new(spec: &FileSpec) -> Self {
        let (tiles, words) = (spec.tiles.len().max(1), spec.bitmap_words());
        let (extra, frame_value_bytes) = (spec.extra_numbers(), Vec::new());
        let mut columns = Self { list: Vec::new(), row_bytes: 0, tiles, words, extra, frame_value_bytes };
        use ColumnType::{U8, U16, U32, U64};
        if spec.series.is_some() {
            columns.push("frame_number", U64, vec![], "number of the image in its series; 0 for an image never seen");
            columns.push("status", U8, vec![], "0 lost, 1 complete, 2 partial, 3 discarded or not to be stored, 4 vetoed");
            columns.push(
                "timestamp_ns",
                U64,
                vec![],
                "begin of the exposure by the clock of the detector, since the start of the series",
            );
            columns.push("exposure_ns", U64, vec![], "length of the exposure by the clock of the detector");
            columns.push("parts_missing", U64, vec![], "bit n is set when the part of source n is missing");
            columns.push_extra(spec);
            columns.push(CHECKSUM, U32, vec![], checksum::DESCRIPTION);
            return columns;
        }
        columns.push("frame_number", U64, vec![], "frame number that the detector gave; 0 for an image never seen");
        columns.push("status", U8, vec![], "0 lost, 1 complete, 2 partial, 3 discarded, 4 vetoed");
        columns.push("packets_received", U16, vec![tiles], "packets that arrived, per tile");
        columns.push("packet_bitmap", U64, vec![tiles, words], "bit p % 64 of word p / 64 is set when packet p arrived");
        for column in &spec.frame_columns {
            let (shape, values) = if column.is_per_tile { (vec![tiles], tiles) } else { (vec![], 1) };
            columns.push(&column.name, column.kind, shape, &column.meaning);
            columns.frame_value_bytes.extend(std::iter::repeat_n(column.kind.bytes(), values));
        }
        columns.push_extra(spec);
        // The checksum is the last one, so that a row of an older journal, which has none, is the beginning of a row
        // that has one.
        columns.push(CHECKSUM, U32, vec![], checksum::DESCRIPTION);
        columns
    }

    fn push_extra(&mut self, spec: &FileSpec) {
        for ExtraColumn { name, kind, length } in &spec.extra_columns {
            let shape = if *length == 1 { vec![] } else { vec![*length] };
            self.push(name, *kind, shape, meaning(name));
        }
    }

    fn push(&mut self, name: &str, kind: ColumnType, shape: Vec<usize>, description: &str) {
        let column = Column { name: name.to_owned(), kind, shape, offset: self.row_bytes, description: description.to_owned() };
        self.row_bytes += column.bytes();
        self.list.push(column);
    }

    /// The state of an image by its row; `None` if no image has this state.
    pub(crate) fn status(&self, row: &[u8]) -> Option<ImageStatus> {
        ImageStatus::from_u8(row[self.status_at()])
    }

    fn status_at(&self) -> usize {
        self.list.iter().find(|column| column.name == "status").map(|column| column.offset).expect("every run has states")
    }

    /// Replaces the state in a row.
    pub(crate) fn set_status(&self, row: &mut [u8], status: ImageStatus) {
        row[self.status_at()] = status as u8;
    }

    /// The checksum in a row.
    pub(crate) fn checksum(&self, row: &[u8]) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|k| row[self.row_bytes - checksum::BYTES + k]))
    }

    /// Replaces the checksum in a row.
    pub(crate) fn set_checksum(&self, row: &mut [u8], sum: u32) {
        row[self.row_bytes - checksum::BYTES..].copy_from_slice(&sum.to_le_bytes());
    }

    /// The row of an image with pixels of which nothing else is known. Its state is partial, because nothing shows that
    /// it is complete.
    pub(crate) fn unknown_row(&self) -> Vec<u8> {
        let mut row = vec![0; self.row_bytes];
        row[self.status_at()] = ImageStatus::Partial as u8;
        row
    }

    /// Rows of one column in one HDF5 chunk: about 64 KiB.
    pub(crate) fn rows_per_chunk(column: &Column, images_per_file: u32) -> u64 {
        let rows = (65536 / column.bytes().max(1)).clamp(1, 1024) as u64;
        rows.min(u64::from(images_per_file)).max(1)
    }

    /// Space that the next flush may take beyond the chunks of the images: two chunks of each column (the last one and
    /// the next), and the headers and index nodes of a data file.
    pub(crate) fn flush_bytes(&self, images_per_file: u32) -> u64 {
        let chunks = self.list.iter().map(|c| 2 * c.bytes() as u64 * Self::rows_per_chunk(c, images_per_file));
        chunks.sum::<u64>() + (128 << 10)
    }

    /// Writes the row of an image of a series into `row` (`row_bytes` long), little endian.
    pub(crate) fn pack_series(&self, image: &SeriesRecord<'_>, row: &mut [u8]) -> Result<(), Error> {
        if !image.extra.is_empty() && image.extra.len() != self.extra {
            return Err(wrong_count(image.index, "extra columns", image.extra.len(), self.extra));
        }
        let times = image.times.unwrap_or_default();
        let seen = if image.status == ImageStatus::Lost { 0 } else { image.index };
        let mut put = Put(row);
        put.bytes(&seen.to_le_bytes());
        put.bytes(&[image.status as u8]);
        [times.start_ns, times.real_ns, image.parts_missing].iter().for_each(|number| put.bytes(&number.to_le_bytes()));
        let extra = image.extra.iter().copied().chain(std::iter::repeat(0)).take(self.extra);
        extra.for_each(|number| put.bytes(&number.to_le_bytes()));
        put.bytes(&checksum::of(image.pieces.iter().copied()).to_le_bytes());
        assert!(put.0.is_empty(), "the columns and the row agree");
        Ok(())
    }

    /// Writes one image's row into `row` (`row_bytes` long), little endian.
    pub(crate) fn pack(&self, image: &ImageRecord<'_>, row: &mut [u8]) -> Result<(), Error> {
        let wrong = |what: &str, got: usize, want: usize| Err(wrong_count(image.index, what, got, want));
        if image.packets_received.len() != self.tiles {
            return wrong("packets_received", image.packets_received.len(), self.tiles);
        }
        if image.packet_bitmap.len() != self.tiles * self.words {
            return wrong("packet_bitmap", image.packet_bitmap.len(), self.tiles * self.words);
        }
        if image.frame_values.len() != self.frame_value_bytes.len() {
            return wrong("the columns of the packet format", image.frame_values.len(), self.frame_value_bytes.len());
        }
        if image.extra.len() != self.extra {
            return wrong("extra columns", image.extra.len(), self.extra);
        }
        assert_eq!(row.len(), self.row_bytes, "the row buffer is made from the same columns");
        let mut put = Put(row);
        put.bytes(&image.frame_number.to_le_bytes());
        put.bytes(&[image.status as u8]);
        image.packets_received.iter().for_each(|v| put.bytes(&v.to_le_bytes()));
        image.packet_bitmap.iter().for_each(|v| put.bytes(&v.to_le_bytes()));
        image.frame_values.iter().zip(&self.frame_value_bytes).for_each(|(v, bytes)| put.bytes(&v.to_le_bytes()[..*bytes]));
        image.extra.iter().for_each(|v| put.bytes(&v.to_le_bytes()));
        put.bytes(&checksum::of(image.parts.iter().copied()).to_le_bytes());
        assert!(put.0.is_empty(), "the columns and the row agree");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdf5::spec::TileInfo;

    #[test]
    fn row_has_every_column_at_its_offset() {
        let tile = TileInfo { rows: 1, columns: 1, row: 0, column: 0, flip_rows: false, rotate_deg: 0, packets: 65 };
        let spots = ExtraColumn { name: "spots".into(), kind: ColumnType::F64, length: 2 };
        let spec = FileSpec { tiles: vec![tile; 3], extra_columns: vec![spots], ..FileSpec::default() };
        let columns = Columns::new(&spec);
        let record = ImageRecord {
            index: 0,
            frame_number: 0x0102,
            status: ImageStatus::Partial,
            parts: &[b"1234", b"56789"],
            packets_received: &[1, 2, 3],
            packet_bitmap: &[1, 0, 2, 0, 3, 1 << 63],
            frame_values: &[7, 8, 9, 10],
            extra: &[11, 12],
        };
        let mut row = vec![0xAA; columns.row_bytes];
        columns.pack(&record, &mut row).unwrap();
        let number = |name: &str, skip: usize| {
            let c = columns.list.iter().find(|c| c.name == name).unwrap();
            let mut bytes = [0; 8];
            let at = c.offset + skip * c.kind.bytes();
            bytes[..c.kind.bytes()].copy_from_slice(&row[at..at + c.kind.bytes()]);
            u64::from_le_bytes(bytes)
        };
        assert_eq!((number("frame_number", 0), number("status", 0)), (0x0102, 2));
        assert_eq!((number("packets_received", 2), number("packet_bitmap", 5)), (3, 1 << 63));
        assert_eq!((number("timestamp", 0), number("bunch_id", 0), number("exposure", 0)), (7, 8, 9));
        assert_eq!((number("detector_info", 0), number(CHECKSUM, 0)), (10, 0xCBF4_3926));
        assert_eq!((number("spots", 0), number("spots", 1)), (11, 12));
        assert!(columns.pack(&ImageRecord { packets_received: &[1], ..record }, &mut row).is_err());
        assert!(columns.pack(&ImageRecord { packet_bitmap: &[1], ..record }, &mut row).is_err());
        assert!(columns.pack(&ImageRecord { extra: &[], ..record }, &mut row).is_err());
        assert!(columns.pack(&ImageRecord { frame_values: &[7, 8, 9], ..record }, &mut row).is_err());
    }

    /// Files of SLS detectors keep these columns, in this order, and do not name them in their description.
    #[test]
    fn the_columns_of_sls_detectors_stay() {
        use ColumnType::{U8, U16, U32, U64};
        let spec = FileSpec::default();
        let list = Columns::new(&spec).list;
        let found: Vec<_> = list.iter().map(|c| (c.name.as_str(), c.kind, c.description.as_str())).collect();
        let expected = [
            ("frame_number", U64, "frame number that the detector gave; 0 for an image never seen"),
            ("status", U8, "0 lost, 1 complete, 2 partial, 3 discarded, 4 vetoed"),
            ("packets_received", U16, "packets that arrived, per tile"),
            ("packet_bitmap", U64, "bit p % 64 of word p / 64 is set when packet p arrived"),
            ("timestamp", U64, "detector clock, units of 100 ns"),
            ("bunch_id", U64, "bunch or pulse number"),
            ("exposure", U32, "exposure reported by the detector, units of 100 ns"),
            ("detector_info", U32, "debug or DAQ word of the detector"),
            (CHECKSUM, U32, checksum::DESCRIPTION),
        ];
        assert_eq!(found, expected);
        assert!(!spec.to_text().contains("frame_column"));
    }

    /// The columns of another packet format stand where those of SLS detectors stand.
    #[test]
    fn a_format_brings_its_own_columns() {
        use konkordia_core::frame_header::{ColumnValue, FrameColumn};
        let tile = TileInfo { rows: 1, columns: 1, row: 0, column: 0, flip_rows: false, rotate_deg: 0, packets: 1 };
        let frame_columns = vec![
            FrameColumn::of_image("pulse", ColumnType::U64, ColumnValue::Field(0), "number of the pulse"),
            FrameColumn::of_tiles("board", ColumnType::U16, ColumnValue::Field(1), "number of the board"),
        ];
        let spec = FileSpec { tiles: vec![tile; 2], frame_columns, ..FileSpec::default() };
        let columns = Columns::new(&spec);
        let names: Vec<_> = columns.list.iter().map(|column| (column.name.as_str(), column.shape.as_slice())).collect();
        let own = [("pulse", &[][..]), ("board", &[2])];
        assert_eq!(names[4..], [&own[..], &[(CHECKSUM, &[])]].concat());
        let record = ImageRecord {
            packets_received: &[1, 1],
            packet_bitmap: &[1, 1],
            frame_values: &[u64::MAX - 1, 0x0102, 0x0304],
            ..ImageRecord::partial(0, &[b"1"])
        };
        let mut row = vec![0xAA; columns.row_bytes];
        columns.pack(&record, &mut row).unwrap();
        let at = columns.list[4].offset;
        assert_eq!(row[at..at + 12], [0xFE, 255, 255, 255, 255, 255, 255, 255, 2, 1, 4, 3]);
        assert_eq!(columns.list[5].description, "number of the board");
    }
}
