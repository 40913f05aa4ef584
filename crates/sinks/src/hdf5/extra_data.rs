//! Trains of a detector of European XFEL as files that EXtra-data reads: for each module a file
//! `RAW-R<run>-<aggregator><module>-S<sequence>.h5` with the source `<detector>/DET/<module>CH0:xtdf`, and one of the
//! train builder with the source `<detector>/TRAINS/BUILDER:output`. All files have the same trains in the same rows; a
//! module that is missing in a train has a count of 0 in its row. Read [`ExtraDataFiles`] first. The layout is in
//! docs/trains.md; it follows the mock files of EXtra-data 1.25 (format version 1.0).
//!
//! There is no journal: what was flushed before a process is killed can be read. Files are flushed after every train.

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File, Group};
use konkordia_core::pixel::PixelType;

use super::columns::ColumnType;
use super::error::{Context, Error, ErrorKind};
use super::low::{self, Format};
use super::table::Table;
use super::text;

/// The parts of a source.
const PARTS: [&str; 4] = ["header", "image", "detector", "trailer"];
const CREATE: &str = "create the file of a module";
const WRITE: &str = "write a train";

/// What the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraDataSpec {
    /// Their folder.
    pub directory: PathBuf,
    /// Number of the run, in their names.
    pub run: u32,
    /// Name of the detector, for example `FXE_DET_LPD1M-1`.
    pub detector: String,
    /// Name of the aggregators, for example `LPD`.
    pub aggregator: String,
    /// Number of modules.
    pub modules: usize,
    /// Shape of an image as it is stored: LPD 1 x 256 x 256, DSSC 1 x 128 x 512, AGIPD 2 x 512 x 128.
    pub image_shape: [usize; 3],
    /// Bytes of the section that belongs to the type of detector.
    pub detector_bytes: usize,
    /// Trains of a file; the next file follows with the next sequence number.
    pub trains_per_file: u64,
}

/// A module of a train.
#[derive(Clone, Copy, Debug)]
pub struct ExtraDataModule<'a> {
    /// Major and minor version of the format of the train.
    pub version: (u32, u32),
    /// Data id.
    pub data_id: u64,
    /// Link id.
    pub link_id: u64,
    /// Reserved bytes of the header and the lengths before them, as they came.
    pub reserved: [u8; 16],
    /// Number of images; the lists have as many elements.
    pub images: usize,
    /// Cell ids, u16 little-endian.
    pub cell_ids: &'a [u8],
    /// Pulse ids, u64 little-endian.
    pub pulse_ids: &'a [u8],
    /// States, u16 little-endian.
    pub states: &'a [u8],
    /// Lengths, u32 little-endian.
    pub lengths: &'a [u8],
    /// The pixels of all images, u16 little-endian.
    pub pixels: &'a [u8],
    /// Of images with missing pixels, in their order: the number, and one byte per pixel, 0 = there.
    pub missing: &'a [(usize, Vec<u8>)],
    /// The section that belongs to the type of detector.
    pub detector: &'a [u8],
    /// Checksum of the trailer.
    pub checksum: [u8; 16],
    /// State of the trailer.
    pub status: u64,
}

/// Bit of `image/mask` of a pixel that did not arrive. The bit is ours: those below 24 are taken by the corrections of
/// European XFEL.
pub const MASK_MISSING: u32 = 1 << 31;

/// The part of `INDEX` that all files have.
struct Index {
    trains: Table,
    /// `first` and `count` of each part of the source.
    parts: Vec<Table>,
}

impl Index {
    fn create(file: &File, source: &str, parts: &[&str]) -> hdf5::Result<Self> {
        let index = file.create_group("INDEX")?;
        let columns: [(&str, ColumnType, &[usize]); 3] =
            [("trainId", ColumnType::U64, &[]), ("timestamp", ColumnType::U64, &[]), ("flag", ColumnType::U32, &[])];
        let trains = Table::create(&index, &columns)?;
        let part = |part: &&str| {
            let group = index.create_group(&format!("{source}/{part}"))?;
            Table::create(&group, &[("first", ColumnType::U64, &[]), ("count", ColumnType::U64, &[])])
        };
        Ok(Self { trains, parts: parts.iter().map(part).collect::<hdf5::Result<_>>()? })
    }

    /// Adds a train, with the first row and the number of rows of each part.
    fn add(&mut self, train: Row, parts: &[(u64, u64)]) -> hdf5::Result<()> {
        let flag = u32::from(!train.is_lost);
        self.trains.append(&[&train.id.to_le_bytes(), &train.time_ns.to_le_bytes(), &flag.to_le_bytes()])?;
        for (table, (first, count)) in self.parts.iter_mut().zip(parts) {
            table.append(&[&first.to_le_bytes(), &count.to_le_bytes()])?;
        }
        Ok(())
    }
}

/// A row of the index.
#[derive(Clone, Copy)]
struct Row {
    id: u64,
    time_ns: u64,
    /// Nothing of this train came; its row keeps its place.
    is_lost: bool,
}

/// The file of one module.
struct ModuleFile {
    file: File,
    index: Index,
    header: Table,
    image: Table,
    detector: Table,
    trailer: Table,
    pixels: Dataset,
    mask: Dataset,
}

impl ModuleFile {
    fn create(spec: &ExtraDataSpec, module: usize, sequence: u32) -> Result<Self, Error> {
        use ColumnType::{U8, U16, U32, U64};
        let path = file_path(spec, &format!("{}{module:02}", spec.aggregator), sequence);
        let source = format!("{}/DET/{module}CH0:xtdf", spec.detector);
        let make = || -> hdf5::Result<Self> {
            let file = low::create_file(&path, Format::V18)?;
            let paths: Vec<String> = PARTS.iter().map(|part| format!("{source}/{part}")).collect();
            metadata(&file, &paths, spec.run, sequence)?;
            let index = Index::create(&file, &source, &PARTS)?;
            let group = |part: &str| file.create_group(&format!("INSTRUMENT/{source}/{part}"));
            let header: [(&str, ColumnType, &[usize]); 8] = [
                ("trainId", U64, &[]),
                ("dataId", U64, &[]),
                ("linkId", U64, &[]),
                ("magicNumberBegin", U8, &[8]),
                ("majorTrainFormatVersion", U32, &[]),
                ("minorTrainFormatVersion", U32, &[]),
                ("pulseCount", U64, &[]),
                ("reserved", U8, &[16]),
            ];
            let image: [(&str, ColumnType, &[usize]); 5] = [
                ("trainId", U64, &[1]),
                ("pulseId", U64, &[1]),
                ("cellId", U16, &[1]),
                ("status", U16, &[1]),
                ("length", U32, &[1]),
            ];
            let trailer: [(&str, ColumnType, &[usize]); 4] =
                [("trainId", U64, &[]), ("checksum", U8, &[16]), ("status", U64, &[]), ("magicNumberEnd", U8, &[8])];
            let images = group("image")?;
            let shape = [&spec.image_shape[..], &spec.image_shape[..]];
            Ok(Self {
                index,
                header: Table::create(&group("header")?, &header)?,
                image: Table::create(&images, &image)?,
                detector: Table::create(&group("detector")?, &[("trainId", U64, &[]), ("data", U8, &[spec.detector_bytes])])?,
                trailer: Table::create(&group("trailer")?, &trailer)?,
                pixels: low::create_images(&images, "data", PixelType::Uint16, shape, None, None)?,
                mask: low::create_images(&images, "mask", PixelType::Uint32, shape, Some(&[0; 4]), None)?,
                file,
            })
        };
        make().context(CREATE, &path)
    }

    /// Adds a train; `None`: the module is missing, and the row of the train says so.
    fn add(&mut self, shape: [usize; 3], train: Row, module: Option<&ExtraDataModule<'_>>) -> hdf5::Result<()> {
        let (entries, images) = (self.header.rows, self.image.rows);
        let count = module.map_or(0, |module| module.images as u64);
        let one = (entries, u64::from(module.is_some()));
        self.index.add(train, &[one, (images, count), one, one])?;
        if let Some(module) = module {
            self.add_module(shape, train.id.to_le_bytes(), module)?;
        }
        self.file.flush()
    }

    fn add_module(&mut self, shape: [usize; 3], id: [u8; 8], module: &ExtraDataModule<'_>) -> hdf5::Result<()> {
        let first = self.image.rows;
        let begin: [u8; 8] = 0x5854_4446_BEEF_FACE_u64.to_le_bytes();
        let end: [u8; 8] = 0x5854_4446_DEAD_ABCD_u64.to_le_bytes();
        let [major, minor] = [module.version.0, module.version.1].map(u32::to_le_bytes);
        let [data_id, link_id, count] = [module.data_id, module.link_id, module.images as u64].map(u64::to_le_bytes);
        self.header.append(&[&id, &data_id, &link_id, &begin, &major, &minor, &count, &module.reserved])?;
        self.detector.append(&[&id, module.detector])?;
        self.trailer.append(&[&id, &module.checksum, &module.status.to_le_bytes(), &end])?;
        let ids = id.repeat(module.images);
        self.image.append(&[&ids, module.pulse_ids, module.cell_ids, module.states, module.lengths])?;
        let image_bytes = 2 * shape.iter().product::<usize>();
        for data in [&self.pixels, &self.mask] {
            low::set_extent(data, first + module.images as u64, &shape)?;
        }
        for (image, pixels) in module.pixels.chunks_exact(image_bytes).enumerate() {
            low::write_chunk(&self.pixels, &[first + image as u64, 0, 0, 0], pixels)?;
        }
        for (image, marks) in module.missing {
            // Chunks of images without missing pixels take no space.
            let mask: Vec<u8> = marks.iter().flat_map(|mark| (MASK_MISSING * u32::from(*mark != 0)).to_le_bytes()).collect();
            low::write_chunk(&self.mask, &[first + *image as u64, 0, 0, 0], &mask)?;
        }
        Ok(())
    }
}

/// Most different numbers of others that the files have columns for.
const NUMBERS_MAX: usize = 256;

/// The file of the train builder.
struct BuilderFile {
    file: File,
    index: Index,
    data: Table,
    /// Numbers of others, one column for each name.
    injected: Group,
    numbers: Vec<(String, Table)>,
}

impl BuilderFile {
    fn create(spec: &ExtraDataSpec, sequence: u32) -> Result<Self, Error> {
        let path = file_path(spec, "TRAINS", sequence);
        let source = format!("{}/TRAINS/BUILDER:output", spec.detector);
        let make = || -> hdf5::Result<Self> {
            let file = low::create_file(&path, Format::V18)?;
            metadata(&file, &[format!("{source}/data")], spec.run, sequence)?;
            let index = Index::create(&file, &source, &["data"])?;
            let group = file.create_group(&format!("INSTRUMENT/{source}/data"))?;
            let columns: [(&str, ColumnType, &[usize]); 3] = [
                ("trainId", ColumnType::U64, &[]),
                ("moduleFlags", ColumnType::U32, &[spec.modules]),
                ("lostBefore", ColumnType::U64, &[]),
            ];
            let injected = group.create_group("injected")?;
            Ok(Self { index, data: Table::create(&group, &columns)?, injected, numbers: Vec::new(), file })
        };
        make().context(CREATE, &path)
    }

    /// Adds a train; gives the numbers that found no column.
    fn add(&mut self, row: Row, train: Option<&ExtraDataTrain<'_>>) -> hdf5::Result<u64> {
        self.index.add(row, &[(self.data.rows, u64::from(train.is_some()))])?;
        let mut without_column = 0;
        if let Some(train) = train {
            without_column = self.add_numbers(train.injected)?;
            let flags: Vec<u8> = train.flags.iter().flat_map(|flags| flags.to_le_bytes()).collect();
            self.data.append(&[&row.id.to_le_bytes(), &flags, &train.lost_before.to_le_bytes()])?;
        }
        self.file.flush()?;
        Ok(without_column)
    }

    /// Adds the numbers of a train; NaN where a train has none of this name.
    fn add_numbers(&mut self, values: &[(String, f64)]) -> hdf5::Result<u64> {
        let mut without_column = 0;
        for (name, _) in values {
            let is_known = self.numbers.iter().any(|(known, _)| known == name);
            if !is_known && self.numbers.len() == NUMBERS_MAX {
                without_column += 1;
            } else if !is_known {
                self.add_column(name)?;
            }
        }
        for (name, table) in &mut self.numbers {
            let value = values.iter().find(|(of, _)| of == name).map_or(f64::NAN, |(_, value)| *value);
            table.append(&[&value.to_le_bytes()])?;
        }
        Ok(without_column)
    }

    /// Adds a column with NaN in the rows that are there.
    fn add_column(&mut self, name: &str) -> hdf5::Result<()> {
        let mut table = Table::create(&self.injected, &[(name, ColumnType::F64, &[])])?;
        table.append(&[&f64::NAN.to_le_bytes().repeat(self.data.rows as usize)])?;
        self.numbers.push((name.to_owned(), table));
        Ok(())
    }
}

/// A train.
#[derive(Clone, Copy, Debug)]
pub struct ExtraDataTrain<'a> {
    /// Its id, above that of the train before.
    pub train_id: u64,
    /// When it was built, in nanoseconds from 1970.
    pub time_ns: u64,
    /// Ids before it of which nothing came.
    pub lost_before: u64,
    /// What is wrong with each module, 0 = nothing.
    pub flags: &'a [u32],
    /// The modules; `None` = missing.
    pub modules: &'a [Option<ExtraDataModule<'a>>],
    /// Numbers of others by name, which is one of letters, digits and `_`.
    pub injected: &'a [(String, f64)],
}

/// Lost trains between two trains that get rows of their own; of a larger gap only the number is stored.
const LOST_ROWS_MAX: u64 = 1000;

/// The open files of a run.
pub struct ExtraDataFiles {
    spec: ExtraDataSpec,
    modules: Vec<ModuleFile>,
    builder: BuilderFile,
    sequence: u32,
    rows: u64,
    numbers_without_column: u64,
}

impl ExtraDataFiles {
    /// Makes the first file of each module.
    ///
    /// # Errors
    /// A file exists or cannot be made, or the specification has no modules.
    pub fn create(spec: ExtraDataSpec) -> Result<Self, Error> {
        if spec.modules == 0 || spec.trains_per_file == 0 || spec.image_shape.contains(&0) {
            return Err(Error::new(ErrorKind::Invalid, CREATE, &spec.directory, "there are no modules, trains or pixels"));
        }
        let (modules, builder) = Self::files(&spec, 0)?;
        Ok(Self { spec, modules, builder, sequence: 0, rows: 0, numbers_without_column: 0 })
    }

    /// Numbers of others that are not in the files, because there were more than 256 names.
    pub fn numbers_without_column(&self) -> u64 {
        self.numbers_without_column
    }

    fn files(spec: &ExtraDataSpec, sequence: u32) -> Result<(Vec<ModuleFile>, BuilderFile), Error> {
        let modules = (0..spec.modules).map(|module| ModuleFile::create(spec, module, sequence)).collect::<Result<_, _>>()?;
        Ok((modules, BuilderFile::create(spec, sequence)?))
    }

    /// Adds a train, and rows for the trains that were lost before it.
    ///
    /// # Errors
    /// A file cannot be written; nothing more can be added then.
    ///
    /// # Panics
    /// If there is another number of modules or flags than in the specification.
    pub fn add(&mut self, train: &ExtraDataTrain<'_>) -> Result<(), Error> {
        assert_eq!([train.modules.len(), train.flags.len()], [self.spec.modules; 2], "one entry for each module");
        let lost = if train.lost_before > LOST_ROWS_MAX { 0 } else { train.lost_before };
        for id in train.train_id - lost..train.train_id {
            self.row(Row { id, time_ns: train.time_ns, is_lost: true }, train)?;
        }
        self.row(Row { id: train.train_id, time_ns: train.time_ns, is_lost: false }, train)
    }

    fn row(&mut self, row: Row, train: &ExtraDataTrain<'_>) -> Result<(), Error> {
        if self.rows == self.spec.trains_per_file {
            let names: Vec<_> = std::mem::take(&mut self.builder.numbers).into_iter().map(|(name, _)| name).collect();
            (self.modules, self.builder) = Self::files(&self.spec, self.sequence + 1)?;
            // What an earlier file has, each later one has too.
            names.iter().try_for_each(|name| self.builder.add_column(name)).context(WRITE, &self.spec.directory)?;
            (self.sequence, self.rows) = (self.sequence + 1, 0);
        }
        self.rows += 1;
        let shape = self.spec.image_shape;
        for (file, module) in self.modules.iter_mut().zip(train.modules) {
            let module = module.as_ref().filter(|_| !row.is_lost);
            file.add(shape, row, module).context(WRITE, &self.spec.directory)?;
        }
        let train = Some(train).filter(|_| !row.is_lost);
        self.numbers_without_column += self.builder.add(row, train).context(WRITE, &self.spec.directory)?;
        Ok(())
    }
}

fn file_path(spec: &ExtraDataSpec, aggregator: &str, sequence: u32) -> PathBuf {
    Path::new(&spec.directory).join(format!("RAW-R{:04}-{aggregator}-S{sequence:05}.h5", spec.run))
}

/// The group `METADATA`: what the file has, and from which run it is.
fn metadata(file: &File, paths: &[String], run: u32, sequence: u32) -> hdf5::Result<()> {
    let group = file.create_group("METADATA")?;
    let sources = group.create_group("dataSources")?;
    let ids: Vec<String> = paths.iter().map(|path| format!("INSTRUMENT/{path}")).collect();
    text::write_list(&sources, "dataSourceId", &ids)?;
    text::write_list(&sources, "root", &vec!["INSTRUMENT".to_owned(); paths.len()])?;
    text::write_list(&sources, "deviceId", paths)?;
    let now: String = crate::clock::now().chars().filter(|c| c.is_ascii_alphanumeric()).take(15).collect();
    let own = format!("konkordia {}", env!("CARGO_PKG_VERSION"));
    let texts = [("dataFormatVersion", "1.0".to_owned()), ("creationDate", format!("{now}Z")), ("daqLibrary", own)];
    for (name, value) in texts {
        text::write_list(&group, name, &[value])?;
    }
    for (name, value) in [("runNumber", run), ("sequenceNumber", sequence)] {
        let mut table = Table::create(&group, &[(name, ColumnType::U32, &[])])?;
        table.append(&[&value.to_le_bytes()])?;
    }
    Ok(())
}
