//! What the files of a run hold: decided at arm, immutable afterwards, stored as text in every file of the run.

use std::path::PathBuf;

pub use konkordia_core::experiment::Metadata;
use konkordia_core::frame_header::FrameColumn;
use konkordia_core::latency::StageLatency;
pub use konkordia_core::output::{Layout, Overwrite, PartOfImage};
use konkordia_core::pixel::PixelType;
pub use konkordia_core::plan::{BlockSize, Compression, ErrorBound};
use konkordia_core::sls_header;

use super::column_names::{self, is_plain, is_reserved};
use super::error::{Error, ErrorKind};
use super::experiment_text;
use super::extra_column::ExtraColumn;
use super::series_info::{SeriesInfo, chunk_shape, chunk_start};

/// Pixels of one image.
pub(crate) const PIXELS_MAX: usize = 1 << 28;
/// Images of one data file.
pub(crate) const IMAGES_PER_FILE_MAX: u32 = 1_000_000;
const TILES_MAX: usize = 4096;

/// One detector tile, as placed in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileInfo {
    /// Image rows that the tile takes, as it lies in the image.
    pub rows: u32,
    /// Image columns that the tile takes, as it lies in the image.
    pub columns: u32,
    /// First image row of the tile.
    pub row: u32,
    /// First image column of the tile.
    pub column: u32,
    /// Whether the rows are stored upside down with respect to the wire (before the tile is turned).
    pub flip_rows: bool,
    /// How far the tile is turned after that, clockwise as seen in the image: 0, 90, 180 or 270 degrees.
    pub rotate_deg: u32,
    /// Packets per image (1 to 65535).
    pub packets: u32,
}

/// What the numbers in the file mean: value = (number - offset) x step, in [`FileSpec::unit`]. Special values are not
/// scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Value of one step of the stored numbers, for example 0.125 photon; above 0.
    pub step: f64,
    /// Steps that were added to every number.
    pub offset: f64,
}

impl Scale {
    /// True if the numbers are the values themselves.
    pub fn is_trivial(&self) -> bool {
        self.step == 1.0 && self.offset == 0.0
    }
}

/// Everything that [`super::Writer::create`] needs. All lengths in pixels unless the name says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSpec {
    /// An existing directory.
    pub directory: PathBuf,
    /// Start of every file name; no path separator.
    pub prefix: String,
    /// Images per data file (1 to 1000000).
    pub images_per_file: u32,
    /// What to do with older files of the same prefix.
    pub overwrite: Overwrite,
    /// Image rows (slow axis).
    pub rows: u32,
    /// Image columns (fast axis).
    pub columns: u32,
    /// Type of the pixels; detector words without conversion are `Uint16` with `raw_words`.
    pub pixel: PixelType,
    /// The pixels are detector words: of the special values only *missing* (0xFFFF) exists.
    pub raw_words: bool,
    /// How the chunks given to `write` are compressed.
    pub compression: Compression,
    /// How the master names the images.
    pub layout: Layout,
    /// Number of images that the run is expected to take, if known: determines the estimate of the space needed.
    pub images_planned: Option<u64>,
    /// Facts about the measurement.
    pub metadata: Metadata,
    /// NXmx mask bits, `rows x columns` row by row; bit 0 gap, 1 dead, 4 noisy, 8 user (docs/formats.md). For a series
    /// it may be empty: no bit is set.
    pub pixel_mask: Vec<u32>,
    /// Tiles in the order in which [`super::ImageRecord`] lists them.
    pub tiles: Vec<TileInfo>,
    /// So many consecutive tiles make one module of the detector, which gets its own `NXdetector_module`; 0 = the whole
    /// image is described as one module.
    pub tiles_per_module: u32,
    /// Unit of the pixel values, for example "photon" or "ADU".
    pub unit: String,
    /// What the numbers mean, if they are not the values themselves; a trivial scale is not written.
    pub scale: Option<Scale>,
    /// Lowest number that is a measurement, where that is not the lowest of the type (0 when counts below zero were set
    /// to 0).
    pub underload: Option<f64>,
    /// Highest number that is a measurement, where that is not the highest of the type (the detector's own limit).
    pub saturation: Option<f64>,
    /// Whether XDS must be able to read the files: `Some(true)` = only what it can read may be written, `Some(false)` =
    /// it need not, `None` = not said.
    pub xds: Option<bool>,
    /// A file of pedestals is written beside the images, see [`super::Writer::write_pedestals`].
    pub pedestal_snapshots: bool,
    /// These files hold a part of the image; their prefix ends with [`PartOfImage::suffix`].
    pub part: Option<PartOfImage>,
    /// The master has no data files of its own: it shows those of so many parts. 0 = it has its own.
    pub parts: u32,
    /// Hash of the calibration in use, empty when there is none.
    pub calibration_hash: String,
    /// Name and version of the program, for example "konkordia 0.1.0".
    pub software: String,
    /// The configuration as given by the user, stored word by word.
    pub configuration: String,
    /// How pixels were made from words: names and values, for example ("rounding", "half to even").
    pub conversion: Vec<(String, String)>,
    /// Per-image columns that the packet format brings; those of SLS detectors by default. A series has none.
    pub frame_columns: Vec<FrameColumn>,
    /// Additional per-image columns, see [`super::ImageRecord::extra`].
    pub extra_columns: Vec<ExtraColumn>,
    /// For a series: its shape, channels and fields; its per-image columns differ from those of a run. `None` for a
    /// run.
    pub series: Option<SeriesInfo>,
}

impl Default for FileSpec {
    fn default() -> Self {
        Self {
            directory: PathBuf::from("."),
            prefix: "run".into(),
            images_per_file: 1000,
            overwrite: Overwrite::Refuse,
            rows: 0,
            columns: 0,
            pixel: PixelType::Int16,
            raw_words: false,
            compression: Compression::BSLZ4,
            layout: Layout::Both,
            images_planned: None,
            metadata: Metadata::default(),
            pixel_mask: Vec::new(),
            tiles: Vec::new(),
            tiles_per_module: 0,
            unit: "photon".into(),
            scale: None,
            underload: None,
            saturation: None,
            xds: None,
            pedestal_snapshots: false,
            part: None,
            parts: 0,
            calibration_hash: String::new(),
            software: konkordia_core::SOFTWARE.into(),
            configuration: String::new(),
            conversion: Vec::new(),
            frame_columns: sls_header::COLUMNS.to_vec(),
            extra_columns: Vec::new(),
            series: None,
        }
    }
}

/// Counters of one stream (one UDP port), for [`LedgerRecord`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StreamRecord {
    /// For example "udp://0.0.0.0:50010".
    pub name: String,
    /// Counter names and values; all streams list the same names in the same order.
    pub counters: Vec<(String, u64)>,
}

/// The account of a run, written by [`super::Writer::finish`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LedgerRecord {
    /// Counter names and values of the whole run.
    pub totals: Vec<(String, u64)>,
    /// One record per stream.
    pub streams: Vec<StreamRecord>,
    /// Sums that must hold, such as "packets_received = packets_placed + packets_late"; `check` evaluates them on
    /// totals and streams.
    pub balances: Vec<String>,
    /// How long the images took to each stage; empty if that was not measured. The writer replaces it by what its own
    /// meter has counted ([`super::Writer::set_meter`]).
    pub latency: Vec<StageLatency>,
    /// Why the run ended, for example "complete", "stopped", "stalled", "disk full".
    pub ended: String,
    /// ISO 8601, when the last image was taken, if observed.
    pub end_time: Option<String>,
    /// Images that the run took, lost ones included. The files are extended to this number, so that a gap at the end is
    /// visible. Images that were planned but never came do not count.
    pub images_expected: u64,
}

impl FileSpec {
    /// Pixels of one plane: rows x columns. A plane is an image, except in series of other shapes.
    pub fn pixels(&self) -> usize {
        self.rows as usize * self.columns as usize
    }

    /// Dimensions of one image, slowest first.
    pub fn image_shape(&self) -> Vec<usize> {
        match &self.series {
            Some(series) => series.image_shape.iter().map(|&size| size as usize).collect(),
            None => vec![self.rows as usize, self.columns as usize],
        }
    }

    /// Chunks of one image.
    pub fn pieces(&self) -> usize {
        self.series.as_ref().map_or(1, |series| series.pieces as usize)
    }

    /// Dimensions of one chunk, without that of the images.
    pub(crate) fn chunk_shape(&self) -> Vec<usize> {
        let shape: Vec<u64> = self.image_shape().iter().map(|&size| size as u64).collect();
        chunk_shape(&shape, self.pieces() as u32).unwrap_or(shape).iter().map(|&size| size as usize).collect()
    }

    /// Largest size of a chunk, in bytes.
    pub(crate) fn chunk_bytes_max(&self) -> u64 {
        12 + 64 + 2 * self.piece_bytes() as u64
    }

    /// Where each chunk begins in an image, without the dimension of the images.
    pub(crate) fn chunk_starts(&self) -> Vec<Vec<u64>> {
        let wide = |shape: Vec<usize>| shape.iter().map(|&size| size as u64).collect::<Vec<u64>>();
        let (image, chunk) = (wide(self.image_shape()), wide(self.chunk_shape()));
        (0..self.pieces()).map(|piece| chunk_start(&image, &chunk, piece)).collect()
    }

    /// Pixels of one image, in all its planes.
    pub fn elements(&self) -> usize {
        self.image_shape().iter().fold(1, |product, &size| product.saturating_mul(size))
    }

    /// Bytes of one decoded image.
    pub fn image_bytes(&self) -> usize {
        self.elements() * self.pixel.bytes()
    }

    /// Bytes of one decoded chunk.
    pub fn piece_bytes(&self) -> usize {
        self.image_bytes() / self.pieces().max(1)
    }

    /// True if *missing* is the only special value in the files: for detector words, and for images of other programs.
    pub fn has_only_missing(&self) -> bool {
        self.raw_words || self.series.is_some()
    }

    /// Words of the packet bitmap of one tile: enough for the tile with the most packets.
    pub fn bitmap_words(&self) -> usize {
        self.tiles.iter().map(|tile| tile.packets.div_ceil(64) as usize).max().unwrap_or(1).max(1)
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let wrong = |cause: String| Err(Error::new(ErrorKind::Invalid, "use this file specification", &self.directory, cause));
        let bad_prefix = self.prefix.is_empty() || self.prefix.starts_with('.') || self.prefix.contains(['/', '\0']);
        if bad_prefix || self.prefix.len() > 200 {
            return wrong(format!("the prefix '{}' is not a plain file name of at most 200 bytes", self.prefix));
        }
        if self.rows == 0 || self.columns == 0 || self.pixels() > PIXELS_MAX || self.elements() > PIXELS_MAX {
            return wrong(format!("an image of {} x {} pixels is empty or too large", self.rows, self.columns));
        }
        if let Some(problem) = self.series.as_ref().and_then(|series| series.problem(self.rows, self.columns)) {
            return wrong(problem);
        }
        let may_be_empty = self.series.is_some() && self.pixel_mask.is_empty();
        if self.pixel_mask.len() != self.pixels() && !may_be_empty {
            return wrong(format!("the pixel mask has {} values for {} pixels", self.pixel_mask.len(), self.pixels()));
        }
        if !(1..=IMAGES_PER_FILE_MAX).contains(&self.images_per_file) {
            return wrong(format!("{} images per file are not possible; choose 1 to 1000000", self.images_per_file));
        }
        if self.raw_words && self.pixel != PixelType::Uint16 {
            return wrong(format!("detector words are uint16 and cannot be stored as {}", self.pixel));
        }
        if self.tiles.len() > TILES_MAX || self.tiles.iter().any(|tile| !(1..=65535).contains(&tile.packets)) {
            return wrong("there are more than 4096 tiles, or a tile has no packets or more than 65535".into());
        }
        let outside = |t: &TileInfo| t.row.checked_add(t.rows).is_none_or(|end| end > self.rows);
        let beside = |t: &TileInfo| t.column.checked_add(t.columns).is_none_or(|end| end > self.columns);
        if let Some(tile) = self.tiles.iter().find(|t| outside(t) || beside(t)) {
            return wrong(format!("tile {tile:?} lies outside the image of {} x {} pixels", self.rows, self.columns));
        }
        if self.scale.is_some_and(|s| !(s.step > 0.0 && s.step.is_finite() && s.offset.is_finite())) {
            return wrong(format!("the step of {:?} must be above 0", self.scale));
        }
        let limits = [self.underload, self.saturation].into_iter().flatten();
        if limits.clone().any(|v| !v.is_finite()) || !limits.is_sorted() {
            return wrong(format!("valid pixel values cannot range from {:?} to {:?}", self.underload, self.saturation));
        }
        if let Some(problem) = self.part.and_then(|part| part.problem(self.rows, self.columns)) {
            return wrong(problem);
        }
        if self.part.is_some_and(|part| !self.prefix.ends_with(&part.suffix())) {
            return wrong(format!("the prefix '{}' does not say which part of the image it is", self.prefix));
        }
        let taken = |name: &str| is_reserved(name) || self.frame_columns.iter().any(|column| column.name == name);
        if let Some(problem) = column_names::problem(&self.frame_columns) {
            return wrong(problem);
        }
        if let Some(name) = self.extra_columns.iter().map(|column| &column.name).find(|name| !is_plain(name) || taken(name)) {
            return wrong(format!("'{name}' cannot be the name of a per-image column"));
        }
        Ok(())
    }

    /// Numbers of each image in the additional columns.
    pub(crate) fn extra_numbers(&self) -> usize {
        self.extra_columns.iter().map(|column| column.length).sum()
    }

    /// The specification as text, one `key = value` per line, without the directory, the overwrite policy and the mask.
    pub fn to_text(&self) -> String {
        let mut out = String::from("konkordia_run = 1\n");
        let mut put = |key: &str, value: &str| out.push_str(&format!("{key} = {}\n", escape(value)));
        put("prefix", &self.prefix);
        put("images_per_file", &self.images_per_file.to_string());
        put("rows", &self.rows.to_string());
        put("columns", &self.columns.to_string());
        put("pixel", self.pixel.name());
        put("raw_words", &self.raw_words.to_string());
        put("compression", self.compression.name());
        if let Some(level) = self.compression.level() {
            put("compression_level", &level.to_string());
        }
        if let Some(block) = self.compression.unusual_block() {
            put("compression_block_bytes", &block.bytes().to_string());
        }
        if let Compression::Sz3 { bound } = self.compression {
            put("compression_error_bound", &format!("{:?}", bound.value()));
        }
        put("layout", self.layout.name());
        if let Some(images) = self.images_planned {
            put("images_planned", &images.to_string());
        }
        put("unit", &self.unit);
        // `{:?}` prints the shortest text that reads back to the same number.
        if let Some(scale) = self.scale {
            put("scale", &format!("{:?} {:?}", scale.step, scale.offset));
        }
        for (key, value) in [("underload", self.underload), ("saturation", self.saturation)] {
            if let Some(value) = value {
                put(key, &format!("{value:?}"));
            }
        }
        if let Some(xds) = self.xds {
            put("xds", &xds.to_string());
        }
        if self.pedestal_snapshots {
            put("pedestal_snapshots", "true");
        }
        if let Some(part) = self.part {
            put("part", &part.to_text());
        }
        if self.parts > 0 {
            put("parts", &self.parts.to_string());
        }
        put("calibration_hash", &self.calibration_hash);
        put("software", &self.software);
        put("configuration", &self.configuration);
        for (name, value) in &self.conversion {
            put("conversion", &format!("{name}={value}"));
        }
        // Files from before there were other packet formats do not name the columns of SLS detectors, and need not.
        if self.frame_columns[..] != sls_header::COLUMNS {
            column_names::to_text(&self.frame_columns, |value| put("frame_column", value));
        }
        for column in &self.extra_columns {
            put("extra_column", &column.to_text());
        }
        for t in &self.tiles {
            let flip = u8::from(t.flip_rows);
            put("tile", &format!("{} {} {} {} {flip} {} {}", t.rows, t.columns, t.row, t.column, t.packets, t.rotate_deg));
        }
        if self.tiles_per_module > 0 {
            put("tiles_per_module", &self.tiles_per_module.to_string());
        }
        self.metadata.each(|key, value| put(key, &value));
        experiment_text::each(&self.metadata.experiment, |key, value| put(key, &value));
        if let Some(series) = &self.series {
            series.each(&mut put);
        }
        out
    }

    /// The inverse of [`Self::to_text`]; the mask is empty and the directory is the current one.
    ///
    /// # Errors
    /// It is no description of a run, or of one that is impossible; in words.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut spec = Self { tiles: Vec::new(), ..Self::default() };
        let mut lines = text.lines();
        if lines.next() != Some("konkordia_run = 1") {
            return Err("not a run description of version 1".into());
        }
        for line in lines {
            let (key, value) = line.split_once(" = ").ok_or_else(|| format!("line without value: '{line}'"))?;
            let value = unescape(value);
            spec.set(key, &value).map_err(|why| format!("{key} = {value}: {why}"))?;
        }
        // The text comes from a file: it must not make this program allocate more than a real run needs.
        let tiles = spec.tiles.len() <= TILES_MAX && spec.tiles.iter().all(|tile| (1..=65535).contains(&tile.packets));
        let wrong = spec.series.as_ref().is_some_and(|series| series.problem(spec.rows, spec.columns).is_some());
        if wrong || spec.elements() > PIXELS_MAX {
            return Err("the shape of the images is impossible".into());
        }
        if !(1..=PIXELS_MAX).contains(&spec.pixels()) || !(1..=IMAGES_PER_FILE_MAX).contains(&spec.images_per_file) || !tiles {
            return Err("the sizes are impossible for a run".into());
        }
        Ok(spec)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
            value.parse().map_err(|_| "not a number".to_owned())
        }
        match key {
            "prefix" => self.prefix = value.into(),
            "images_per_file" => self.images_per_file = number(value)?,
            "rows" => self.rows = number(value)?,
            "columns" => self.columns = number(value)?,
            "pixel" => self.pixel = value.parse()?,
            "raw_words" => self.raw_words = value == "true",
            "compression" if value == "sz3" => {}
            "compression" => self.compression = Compression::from_name(value).ok_or("not a compression")?,
            "compression_error_bound" => {
                let bound = ErrorBound::new(number(value)?).ok_or("not an error bound")?;
                self.compression = Compression::Sz3 { bound };
            }
            "compression_block_bytes" => {
                let block = BlockSize::new(number(value)?).ok_or("not the size of a block")?;
                self.compression = self.compression.with_block(block).ok_or("a codec without blocks")?;
            }
            "compression_level" => self.compression = self.compression.with_level(number(value)?).ok_or("not a level")?,
            "layout" => self.layout = Layout::from_name(value).ok_or("not a layout")?,
            "images_planned" => self.images_planned = Some(number(value)?),
            "unit" => self.unit = value.into(),
            "scale" => {
                let (step, offset) = value.split_once(' ').ok_or("two numbers expected")?;
                self.scale = Some(Scale { step: number(step)?, offset: number(offset)? });
            }
            "underload" => self.underload = Some(number(value)?),
            "saturation" => self.saturation = Some(number(value)?),
            "xds" => self.xds = Some(value == "true"),
            "pedestal_snapshots" => self.pedestal_snapshots = value == "true",
            "part" => self.part = Some(PartOfImage::from_text(value).ok_or("no part of an image")?),
            "parts" => self.parts = number(value)?,
            "calibration_hash" => self.calibration_hash = value.into(),
            "software" => self.software = value.into(),
            "configuration" => self.configuration = value.into(),
            "conversion" => {
                let (name, value) = value.split_once('=').ok_or("no '='")?;
                self.conversion.push((name.into(), value.into()));
            }
            "frame_column" => column_names::add_from_text(&mut self.frame_columns, value)?,
            "extra_column" => self.extra_columns.push(ExtraColumn::from_text(value)?),
            "tile" => {
                let v = value.split(' ').map(number).collect::<Result<Vec<u32>, _>>()?;
                // Older files have no rotation.
                let ([rows, columns, row, column, flip, packets] | [rows, columns, row, column, flip, packets, _]) = v[..] else {
                    return Err("six or seven numbers expected".into());
                };
                let rotate_deg = v.get(6).copied().unwrap_or(0);
                self.tiles.push(TileInfo { rows, columns, row, column, flip_rows: flip != 0, rotate_deg, packets });
            }
            "tiles_per_module" => self.tiles_per_module = number(value)?,
            _ if SeriesInfo::set(&mut self.series, key, value)? => {}
            _ if experiment_text::set(&mut self.metadata.experiment, key, value)? => {}
            _ => self.metadata.set(key, value)?,
        }
        Ok(())
    }
}

/// Metadata as text in a file.
trait MetadataText {
    /// Calls `put` with the name and the text of each known value.
    fn each(&self, put: impl FnMut(&str, String));

    /// Takes the value that `text` says.
    fn set(&mut self, key: &str, text: &str) -> Result<(), String>;
}

macro_rules! metadata_text {
    (numbers: $($number:ident)*; strings: $($string:ident)*) => {
        impl MetadataText for Metadata {
            fn each(&self, mut put: impl FnMut(&str, String)) {
                // `{:?}` prints the shortest text that reads back to the same number.
                $(if let Some(value) = self.$number { put(stringify!($number), format!("{value:?}")); })*
                $(if let Some(value) = &self.$string { put(stringify!($string), value.clone()); })*
                if let Some(value) = self.bit_depth { put("bit_depth", value.to_string()); }
                // Two names, because the second is rare.
                if let Some([width, height]) = self.pixel_size_m {
                    put("pixel_size_m", format!("{width:?}"));
                    if width != height { put("pixel_height_m", format!("{height:?}")); }
                }
            }
            fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
                match key {
                    $(stringify!($number) => self.$number = Some(value.parse().map_err(|_| "not a number".to_owned())?),)*
                    $(stringify!($string) => self.$string = Some(value.into()),)*
                    "bit_depth" => self.bit_depth = Some(value.parse().map_err(|_| "not a number".to_owned())?),
                    "pixel_size_m" | "pixel_height_m" => {
                        let edge: f64 = value.parse().map_err(|_| "not a number".to_owned())?;
                        let width = self.pixel_size_m.filter(|_| key == "pixel_height_m").map_or(edge, |[width, _]| width);
                        self.pixel_size_m = Some([width, edge]);
                    }
                    // A key of a later version: it is not needed to read the images.
                    _ => {}
                }
                Ok(())
            }
        }
    };
}

metadata_text!(
    numbers: energy_kev detector_distance_m beam_center_x_px beam_center_y_px sensor_thickness_m frame_time_s count_time_s;
    strings: sensor_material detector_description detector_serial source_name instrument_name sample_name start_time end_time_estimated
);

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(other) => out.push(other),
                None => {}
            },
            (c, false) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::frame_header::ColumnType;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_round_trips(config in "[ -~\n\r\\\\=]{0,60}", energy in proptest::option::of(1.0f64..100.0), rows in 1u32..9, flip: bool, turn in 0u32..4,
            scale in proptest::option::of((1e-3f64..8.0, -100.0f64..100.0)), limits in (proptest::option::of(-9.0f64..0.0), proptest::option::of(0.0f64..9.0))) {
            let spec = FileSpec {
                rows,
                columns: 7,
                configuration: config.clone(),
                metadata: Metadata { energy_kev: energy, sample_name: Some(config), bit_depth: Some(16), ..Metadata::default() },
                tiles: vec![TileInfo { rows, columns: 7, row: 0, column: 0, flip_rows: flip, rotate_deg: turn * 90, packets: 128 }; 2],
                conversion: vec![("rounding".into(), "a=b".into())],
                extra_columns: vec![ExtraColumn::count("frames"), ExtraColumn { name: "spots".into(), kind: ColumnType::F64, length: 1 + rows as usize }],
                layout: Layout::Links,
                images_planned: Some(5),
                scale: scale.map(|(step, offset)| Scale { step, offset }),
                underload: limits.0,
                saturation: limits.1,
                xds: scale.map(|_| flip),
                pedestal_snapshots: flip,
                part: flip.then_some(PartOfImage { number: 2, of: 3, row: 4, column: 5, image_rows: 60, image_columns: 70 }),
                parts: rows - 1,
                ..FileSpec::default()
            };
            prop_assert_eq!(FileSpec::from_text(&spec.to_text()).unwrap(), spec);
        }
    }

    #[test]
    fn tiles_of_older_files_are_not_turned() {
        let read = FileSpec::from_text("konkordia_run = 1\nrows = 9\ncolumns = 9\ntile = 2 3 1 4 1 128\n").unwrap();
        let tile = TileInfo { rows: 2, columns: 3, row: 1, column: 4, flip_rows: true, rotate_deg: 0, packets: 128 };
        assert_eq!(read.tiles, [tile]);
    }

    #[test]
    fn contradictions_are_refused() {
        let good = FileSpec { rows: 2, columns: 3, pixel_mask: vec![0; 6], ..FileSpec::default() };
        assert!(good.validate().is_ok());
        let tile = TileInfo { rows: 2, columns: 3, row: 1, column: 0, flip_rows: false, rotate_deg: 0, packets: 1 };
        let bad = [
            FileSpec { prefix: "a/b".into(), ..good.clone() },
            FileSpec { prefix: String::new(), ..good.clone() },
            FileSpec { pixel_mask: vec![0; 5], ..good.clone() },
            FileSpec { rows: 0, ..good.clone() },
            FileSpec { images_per_file: 0, ..good.clone() },
            FileSpec { raw_words: true, ..good.clone() },
            FileSpec { tiles: vec![tile.clone()], ..good.clone() },
            FileSpec { tiles: vec![TileInfo { row: u32::MAX, ..tile }], ..good.clone() },
            FileSpec { extra_columns: vec![ExtraColumn::count("status")], ..good.clone() },
            FileSpec { scale: Some(Scale { step: 0.0, offset: 0.0 }), ..good.clone() },
            FileSpec { scale: Some(Scale { step: 1.0, offset: f64::NAN }), ..good.clone() },
            FileSpec { underload: Some(1.0), saturation: Some(0.0), ..good.clone() },
        ];
        for spec in bad {
            assert_eq!(spec.validate().unwrap_err().kind, ErrorKind::Invalid, "{spec:?}");
        }
    }
}
