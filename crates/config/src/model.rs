//! The configuration of a UDP detector as the program uses it, and the checks that need more than one key.

use super::archive_copy::{self, ArchiveCopy};
pub use super::calibration::{CalibrationFiles, CalibrationKind};
use super::diagnostics::Diagnostics;
use super::facts::{check_vectors, facts};
use super::geometry::Preset;
use super::image_metadata::{self, ImageMetadataKeys};
use super::live_analysis::{self, LiveAnalysis};
use super::processing::{self, PixelOptions};
use super::read::{self, Document, Table};
use super::roce;
pub use super::shared_keys::resolve;
use super::shared_keys::{check_prefix, layout, missing, overwrite, quarter_turns, required, start_timeout_ns, sync_interval};
use super::spool::{self, Spool};
use super::writers::{self, WriterSettings};
use super::{excalibur, xfel_train};
use konkordia_core::affinity::{Cpus, Pins, Priority, cpus_text};
use konkordia_core::backend::Receive;
use konkordia_core::experiment::{Experiment, Metadata};
use konkordia_core::geometry::{DoublePixels, GeometryError, ImageGeometry, Placement};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::output::{Layout, Overwrite, PartOfImage};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, FirstFrame, GpuPlan, Recipe, WrongCodec};
use konkordia_core::setup::{Ports, SetupRules};
use konkordia_core::tile::{DetectorKind, TileFormat};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The checked configuration of a UDP detector.
#[derive(Clone, Debug)]
pub struct Config {
    /// Text of the configuration, which is stored in the data file.
    pub text: String,
    /// Size of the image, and place of the tiles in it.
    pub geometry: ImageGeometry,
    /// Number of modules.
    pub modules: u32,
    /// Metadata for the file.
    pub metadata: Metadata,
    /// The metadata that came with the command that armed the run, by key name. `text` does not contain them.
    pub given: serde_json::Map<String, serde_json::Value>,
    /// Address at which packets arrive.
    pub address: IpAddr,
    /// Port of the first stream.
    pub first_port: u16,
    /// Receive buffer to ask of the kernel, per stream.
    pub receive_buffer_bytes: usize,
    /// Through what packets are received.
    pub receive: Receive,
    /// Calibration, if any.
    pub calibration: Option<CalibrationFiles>,
    /// How the words of the detector become pixels.
    pub recipe: Recipe,
    /// Type of the pixels in the file.
    pub pixel: PixelType,
    /// Which frames become images, and what happens to their pixels.
    pub options: PixelOptions,
    /// Raw words are written in addition to the images.
    pub keep_raw: bool,
    /// Writers of its files on other hosts.
    pub writers: Vec<WriterSettings>,
    /// What to do with incomplete images.
    pub missing: MissingPolicy,
    /// Worker threads; `None` = as many as the streams leave processors, at least 1.
    pub workers: Option<usize>,
    /// What a GPU does.
    pub gpu: Option<GpuPlan>,
    /// Number of images that a stream may be ahead of its oldest incomplete one.
    pub window_images: u64,
    /// Time after the first packet of an image, on any stream, at which it is closed although packets are missing.
    pub deadline_ns: u64,
    /// Processors of the stream threads.
    pub pin_streams: Pins,
    /// Processors of the workers.
    pub pin_workers: Pins,
    /// Priority of both.
    pub priority: Priority,
    /// The raw tiles lie in huge pages that are reserved, if there are enough.
    pub reserved_pages: bool,
    /// Output folder, resolved.
    pub directory: PathBuf,
    /// First part of the file names.
    pub prefix: String,
    /// Images in one data file.
    pub images_per_file: u32,
    /// Compression of the chunks as they are written: in the spool, if there is one.
    pub compression: Compression,
    /// Where files are written before they move to the output folder, if not there at once.
    pub spool: Option<Spool>,
    /// How often data of open files are flushed to the disk; `None` = only when a file is closed.
    pub sync_interval: Option<Duration>,
    /// What to do with existing files.
    pub overwrite: Overwrite,
    /// How the master refers to the images.
    pub layout: Layout,
    /// The file has one `NXdetector_module` for each module; false = one for the whole image.
    pub each_module: bool,
    /// Whether XDS is to read the files; `None` = not configured.
    pub xds: Option<bool>,
    /// The part of the image that these images are; `None` = they are whole. Then the names of files have its suffix
    /// behind the prefix of the run.
    pub part: Option<PartOfImage>,
    /// Lossy archive copy, if wanted.
    pub archive_copy: Option<ArchiveCopy>,
    /// Analysis of the images, if wanted.
    pub analysis: Option<LiveAnalysis>,
    /// What each image gets beside its pixels.
    pub image_metadata: ImageMetadataKeys,
    /// Planned number of images; `None` = until stopped.
    pub images: Option<u64>,
    /// Frame number of image 0.
    pub first_frame: FirstFrame,
    /// Time without any packet after which an armed run ends; `u64::MAX` = no limit.
    pub start_timeout_ns: u64,
    /// Time without packets that ends a run in which data have arrived.
    pub stall_timeout_ns: u64,
    /// Memory of the ring.
    pub buffer_bytes: u64,
    /// Expected values of the packet headers, and the senders from which packets are taken.
    pub setup: SetupRules,
}

impl Config {
    /// The port of a stream. Frames that are written by RDMA all come to one, and their queue pair tells them apart.
    pub fn port(&self, stream: usize) -> u16 {
        if self.geometry.format().remote.is_some() { self.first_port } else { self.first_port + stream as u16 }
    }

    /// Address and ports of all streams, for people.
    pub fn listens_at(&self) -> String {
        let last = self.port(self.geometry.placements().len() - 1);
        let to = if last == self.first_port { String::new() } else { format!(" to {last}") };
        format!("{}:{}{to}", self.address, self.first_port)
    }

    /// Checks `text`. `file` names it in messages; relative paths start at its folder.
    ///
    /// # Errors
    /// Everything that is wrong in the text.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Diagnostics> {
        let mut d = Diagnostics::new(&file.display().to_string(), text);
        let document = read::read(text, &mut d);
        let syntax = d.found.iter().any(|f| f.what.starts_with("not TOML"));
        let config = if syntax { None } else { Self::read(&document, &mut d, file, text) };
        d.finish(config)
    }

    /// Checks a parsed document.
    pub(super) fn read(document: &Document, d: &mut Diagnostics, file: &Path, text: &str) -> Option<Self> {
        if document.table("detector").text("type") == Some("stream") {
            let why = "a stream sends whole images and starts its series itself";
            let types = DetectorKind::ALL.map(|kind| format!("\"{}\"", kind.name())).join(", ");
            let fix = format!("run `konkordia serve -c CONFIG.toml`; here the type must be one of {types}");
            d.add(document.table("detector").span("type"), "detector.type: \"stream\" is for `konkordia serve`", why, fix);
            return None;
        }
        super::stream::refuse_in_packets(document, d);
        super::recipe::refuse_in_runs(document, d);
        Reader { document, d, file }.config(text)
    }
}

/// The values of the detector keys.
struct Detector {
    format: TileFormat,
    modules: u32,
    double_pixels: DoublePixels,
}

/// Place and orientation of one `[[detector.tile]]`; reports a turn that is not a quarter turn.
fn placement(tile: &Table, d: &mut Diagnostics) -> Option<Placement> {
    let orientation = quarter_turns(tile, d, "detector.tile")?;
    Some(Placement { row: tile.integer("row")? as u32, column: tile.integer("column")? as u32, orientation })
}

struct Reader<'a> {
    document: &'a Document,
    d: &'a mut Diagnostics,
    file: &'a Path,
}

fn first_frame(run: &Table) -> FirstFrame {
    match (run.integer("first_frame"), run.text("first_frame")) {
        (Some(number), None) => FirstFrame::Number(number as u64),
        _ => FirstFrame::Auto,
    }
}

impl Reader<'_> {
    fn config(&mut self, text: &str) -> Option<Config> {
        let detector = self.detector();
        let geometry = detector.as_ref().and_then(|detector| self.geometry(detector));
        let kind = detector.as_ref().map(|detector| detector.format.kind);
        let pixels = detector.as_ref().and_then(|detector| self.pixels(detector));
        let calibration = self.calibration(kind, pixels.map(|p| p.0));
        let address = self.address();
        let output = self.document.table("output");
        let names = (self.required("output", "directory"), self.required("output", "prefix"));
        check_prefix(output, self.d);
        check_vectors(self.document, self.d);
        let [source, processing, run] = ["source", "processing", "run"].map(|name| self.document.table(name));
        let (recipe, pixel) = pixels?;
        let options = processing::read(self.document, self.d, recipe, pixel);
        let detector = detector?;
        let setup = self.setup(&detector);
        let (modules, geometry, first_port) =
            (detector.modules, geometry?, source.integer("first_port").unwrap_or(roce::default_port(source)) as u16);
        let ports = if geometry.format().remote.is_some() { 1 } else { geometry.placements().len() };
        self.check_ports(first_port, ports);
        let (directory, prefix) = (self.resolve(&names.0?), names.1?);
        let part = super::part::read(self.document, self.d, &geometry);
        let (file, asked, compression) = (self.file, (recipe, pixel), self.compression());
        let spool = spool::read(output, self.d, &|path| resolve(file, path), &directory, Some(compression));
        let archive_copy = archive_copy::read(self.document, self.d, &|path| resolve(file, path), asked, (&directory, &prefix));
        Some(Config {
            image_metadata: image_metadata::read(self.document, self.d, false),
            analysis: live_analysis::read(self.document, self.d, recipe == Recipe::Raw, &|path| resolve(file, path)),
            text: text.to_string(),
            metadata: self.metadata(&geometry, modules),
            given: serde_json::Map::new(),
            geometry,
            modules,
            address: address?,
            first_port,
            receive_buffer_bytes: (source.integer("receive_buffer_mib").unwrap_or(256) as usize) << 20,
            receive: source.text("receive").and_then(Receive::from_name).unwrap_or_default(),
            calibration,
            recipe,
            pixel,
            options,
            keep_raw: output.flag("keep_raw").unwrap_or(false),
            writers: writers::read(self.document, self.d),
            missing: missing(processing),
            workers: processing.integer("workers").map(|n| n as usize),
            gpu: super::gpu::read(self.document, self.d, recipe, pixel, &options.processing),
            window_images: processing.integer("window_images").unwrap_or(16) as u64,
            deadline_ns: processing.integer("deadline_ms").unwrap_or(500) as u64 * 1_000_000,
            pin_streams: self.processors("pin_streams"),
            pin_workers: self.processors("pin_workers"),
            priority: self.priority(),
            reserved_pages: run.text("huge_pages") == Some("reserved"),
            part,
            directory,
            prefix,
            archive_copy,
            images_per_file: output.integer("images_per_file").unwrap_or(1000) as u32,
            compression: spool::codec(output, compression),
            spool,
            sync_interval: sync_interval(output),
            overwrite: overwrite(output),
            layout: layout(output),
            each_module: output.text("modules") != Some("one"),
            xds: super::xds_key::of_run(output, self.d, asked, compression),
            images: run.integer("images").map(|n| n as u64),
            first_frame: first_frame(run),
            start_timeout_ns: start_timeout_ns(run),
            stall_timeout_ns: (run.number("stall_timeout_s").unwrap_or(5.0) * 1e9) as u64,
            buffer_bytes: (run.integer("buffer_mib").unwrap_or(512) as u64) << 20,
            setup,
        })
    }

    fn resolve(&self, path: &str) -> PathBuf {
        resolve(self.file, path)
    }

    /// Compression of the chunks; reports a level that the codec does not have.
    fn compression(&mut self) -> Compression {
        let t = self.document.table("output");
        let text = t.text("compression").unwrap_or(Compression::BSLZ4.name());
        match Compression::parse(text, t.integer("compression_level")) {
            Ok(chosen) => chosen,
            // The reader has checked the text alone.
            Err(WrongCodec { what, fix }) => {
                let fix = format!("{fix}; correct the line, or remove it");
                self.d.add(t.span("compression_level"), format!("output.compression_level: {what}"), "", fix);
                Compression::BSLZ4
            }
        }
    }

    fn required(&mut self, table: &str, name: &str) -> Option<String> {
        required(self.document, self.d, table, name)
    }

    fn setup(&mut self, detector: &Detector) -> SetupRules {
        let mut setup = super::setup::rules(self.document, self.d, detector.format.tiles_per_module);
        if !detector.format.kind.is_sls() || detector.format.remote.is_some() {
            // Packets of other detectors and of RDMA do not say where they come from.
            setup.ports = Ports::Unknown;
        }
        setup
    }

    fn detector(&mut self) -> Option<Detector> {
        let kind = self.required("detector", "type")?;
        let t = self.document.table("detector");
        let modules = t.integer("modules").unwrap_or(1) as u32;
        let interfaces = t.integer("interfaces").unwrap_or(1) as u32;
        let double_pixels = t.text("double_pixels").and_then(DoublePixels::from_name);
        if kind == xfel_train::TYPE {
            roce::refuse(self.document, self.d, kind.as_str());
            let format = xfel_train::read(self.document, self.d)?;
            return Some(Detector { format, modules, double_pixels: DoublePixels::Keep });
        }
        xfel_train::refuse_own(self.document, self.d);
        if kind == excalibur::TYPE {
            roce::refuse(self.document, self.d, kind.as_str());
            let format = excalibur::read(self.document, self.d)?;
            return Some(Detector { format, modules, double_pixels: DoublePixels::Keep });
        }
        if kind == "eiger" {
            let format = self.eiger()?;
            let format = roce::carried(self.document, self.d, format)?;
            // The presets place modules as they are mounted, with the gaps between their chips.
            let placed = t.text("geometry").is_some_and(|name| Preset::find(name).is_some());
            let default = if placed { DoublePixels::Gap } else { DoublePixels::Keep };
            return Some(Detector { format, modules, double_pixels: double_pixels.unwrap_or(default) });
        }
        let bits = t.integer("bits").unwrap_or(16);
        if bits != 16 {
            let what = format!("detector.bits: a JUNGFRAU word has 16 bits, not {bits}");
            self.d.add(t.span("bits"), what, "", "remove the line, or set type = \"eiger\"");
        }
        if t.has("ten_giga") {
            let what = "detector.ten_giga: a JUNGFRAU always sends packets of 8192 bytes";
            self.d.add(t.span("ten_giga"), what, "only an EIGER can send over 1 or 10 Gb Ethernet", "remove the line");
        }
        let format = self.rows(TileFormat::jungfrau(interfaces)?)?;
        let format = roce::carried(self.document, self.d, format)?;
        Some(Detector { format, modules, double_pixels: double_pixels.unwrap_or_default() })
    }

    /// Tile format of an EIGER.
    fn eiger(&mut self) -> Option<TileFormat> {
        let t = self.document.table("detector");
        let bits = t.integer("bits").unwrap_or(16) as u32;
        if t.has("interfaces") {
            let what = "detector.interfaces: an EIGER module always has 4 ports";
            self.d.add(t.span("interfaces"), what, "", "remove the line");
        }
        let format = if t.flag("ten_giga").unwrap_or(true) { TileFormat::eiger(bits) } else { TileFormat::eiger_1gbe(bits) };
        let Some(format) = format else {
            let what = format!("detector.bits: an EIGER has no {bits}-bit mode");
            self.d.add(t.span("bits"), what, "", "give 4, 8, 12, 16 or 32, as set in the detector");
            return None;
        };
        self.rows(format)
    }

    /// Applies partial readout; reports a number of rows that the detector cannot read.
    fn rows(&mut self, format: TileFormat) -> Option<TileFormat> {
        let t = self.document.table("detector");
        let Some(rows) = t.integer("rows") else { return Some(format) };
        if let Some(read) = u32::try_from(rows).ok().and_then(|rows| format.with_rows(rows)) {
            return Some(read);
        }
        let (what, fix) = match format.kind {
            DetectorKind::Eiger => {
                let step = (1..=256).find(|rows| format.with_rows(*rows).is_some()).unwrap_or(256);
                let what = format!("an EIGER with {} bits cannot send {rows} rows of each half module", format.bits);
                (what, format!("give a multiple of {step} from {step} to 256, as `rows` of the detector"))
            }
            _ => (
                format!("a JUNGFRAU cannot read {rows} rows"),
                "give a multiple of 8 from 8 to 512, as `rows` of the detector".to_string(),
            ),
        };
        let why = "rows are read in equal numbers on both sides of the middle of a module, and in whole packets";
        self.d.add(t.span("rows"), format!("detector.rows: {what}"), why, fix);
        None
    }

    fn geometry(&mut self, detector: &Detector) -> Option<ImageGeometry> {
        let t = self.document.table("detector");
        let streams = detector.modules * detector.format.tiles_per_module;
        let tiles = self.document.array("detector.tile");
        if !tiles.is_empty() {
            return self.explicit(detector, streams);
        }
        if let Some(size) = ["image_rows", "image_columns"].into_iter().find(|k| t.has(k)) {
            let what = format!("detector.{size} without [[detector.tile]]");
            self.d.add(
                t.span(size),
                what,
                "the size of the image can be set only with [[detector.tile]]",
                "remove the line, or place every tile",
            );
        }
        let name = t.text("geometry").unwrap_or("stacked");
        let result = match Preset::find(name) {
            None if detector.format.kind == DetectorKind::Excalibur => excalibur::stacked(detector.format, streams),
            None => ImageGeometry::stacked_with(detector.format, streams, detector.double_pixels),
            Some(preset) if preset.kind != detector.format.kind || preset.modules() != detector.modules => {
                let what = format!("detector.geometry: \"{name}\" does not fit this detector");
                let why = format!(
                    "it is for {} with {} module(s), but the configuration has {} with {}",
                    preset.kind.name(),
                    preset.modules(),
                    detector.format.kind.name(),
                    detector.modules
                );
                self.d.add(t.span("geometry"), what, why, "correct type or modules, or place the tiles with [[detector.tile]]");
                return None;
            }
            Some(preset) => {
                let placements = preset.placements(&detector.format, detector.double_pixels);
                ImageGeometry::new(detector.format, placements, Some(preset.size(&detector.format)), detector.double_pixels)
            }
        };
        result
            .map_err(|error| self.d.add(t.span("modules"), format!("impossible geometry: {error}"), "", "use fewer modules"))
            .ok()
    }

    fn explicit(&mut self, detector: &Detector, streams: u32) -> Option<ImageGeometry> {
        let (t, tiles) = (self.document.table("detector"), self.document.array("detector.tile"));
        if t.has("geometry") {
            let fix = "remove geometry, or every [[detector.tile]]";
            self.d.add(
                t.span("geometry"),
                "both detector.geometry and [[detector.tile]] are given",
                "both define the places of the tiles",
                fix,
            );
            return None;
        }
        if tiles.len() != streams as usize {
            let what = format!("{} tiles are placed, but the detector has {streams} streams", tiles.len());
            let fix = format!(
                "give one [[detector.tile]] for each stream, in stream order (ports of module 0 first): {streams} in all"
            );
            self.d.add(tiles.last().and_then(|t| t.span.clone()), what, "a tile is what one UDP port sends of an image", fix);
            return None;
        }
        let placements = tiles.iter().map(|tile| placement(tile, self.d)).collect::<Option<Vec<_>>>()?;
        // Even and odd tiles have the same size.
        let tile_size = detector.double_pixels.tile_size(&detector.format, 0);
        let ends = placements.iter().map(|p| {
            let size = p.orientation.turned(tile_size);
            (p.row + size.0, p.column + size.1)
        });
        let far = ends.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap_or_default();
        let rows = t.integer("image_rows").map_or(far.0, |n| n as u32);
        let columns = t.integer("image_columns").map_or(far.1, |n| n as u32);
        match ImageGeometry::new(detector.format, placements, Some((rows, columns)), detector.double_pixels) {
            Ok(geometry) => Some(geometry),
            Err(error) => {
                let tile = match error {
                    GeometryError::Overlap(_, tile, ..) | GeometryError::Outside { tile, .. } => tile,
                    _ => 0,
                };
                let why = format!(
                    "a tile of this detector takes {} rows and {} columns (turned by 90 or 270 degrees: the other way round); tiles count from 0",
                    tile_size.0, tile_size.1
                );
                self.d.add(
                    tiles[tile].span.clone(),
                    format!("impossible geometry: {error}"),
                    why,
                    "correct row and column of the tile, or the image size",
                );
                None
            }
        }
    }

    /// Recipe and pixel type.
    fn pixels(&mut self, detector: &Detector) -> Option<(Recipe, PixelType)> {
        let t = self.document.table("processing");
        let (format, kind) = (&detector.format, detector.format.kind);
        let is_sum = t.integer("summation").is_some_and(|n| n > 1);
        match (t.text("dtype"), kind) {
            (None | Some("raw"), DetectorKind::XfelTrain) => Some((Recipe::Raw, PixelType::Uint16)),
            (Some(name), DetectorKind::XfelTrain) => {
                let what = format!("processing.dtype: trains cannot be stored as \"{name}\"");
                let fix = "remove the line; the words are uint16";
                self.d.add(t.span("dtype"), what, "the words of trains are stored as they come", fix);
                None
            }
            (Some("raw"), DetectorKind::Jungfrau) if detector.double_pixels == DoublePixels::Split => {
                let why = "a raw word is a gain stage and an ADC value, which cannot be divided";
                let fix = "set double_pixels = \"keep\", \"gap\" or \"mask\", or leave dtype out for photons";
                let span = self.document.table("detector").span("double_pixels");
                self.d.add(span, "detector.double_pixels: \"split\" does not go with dtype = \"raw\"", why, fix);
                None
            }
            (Some("raw"), DetectorKind::Jungfrau) => Some((Recipe::Raw, PixelType::Uint16)),
            (Some("raw"), DetectorKind::Eiger | DetectorKind::Excalibur) => {
                let why = "the words of this detector are counts already";
                let fix = if format.bits == 32 { "write dtype = \"uint32\"" } else { "write dtype = \"uint16\"" };
                self.d.add(t.span("dtype"), "processing.dtype: \"raw\" is for JUNGFRAU", why, fix);
                None
            }
            (None, DetectorKind::Jungfrau) => {
                Some((Recipe::JungfrauPhotons, if is_sum { PixelType::Int32 } else { PixelType::Int16 }))
            }
            (None, DetectorKind::Eiger | DetectorKind::Excalibur) => {
                Some((Recipe::Counts, if format.bits == 32 || is_sum { PixelType::Uint32 } else { PixelType::Uint16 }))
            }
            (Some(name), _) => {
                let recipe = if kind.counts_photons() { Recipe::Counts } else { Recipe::JungfrauPhotons };
                Some((recipe, name.parse().ok()?))
            }
        }
    }

    fn calibration(&mut self, kind: Option<DetectorKind>, recipe: Option<Recipe>) -> Option<CalibrationFiles> {
        let file = self.file;
        super::calibration::read(self.document, self.d, &|path| resolve(file, path), kind, recipe)
    }

    fn address(&mut self) -> Option<IpAddr> {
        let t = self.document.table("source");
        let text = t.text("address").unwrap_or("0.0.0.0");
        let address = text.parse().ok();
        if address.is_none() {
            let fix = "give an address of this machine such as \"10.1.2.3\" (`ip address` lists them), or \"0.0.0.0\" for any";
            self.d.add(t.span("address"), format!("source.address: \"{text}\" is not an IP address"), "", fix);
        }
        address
    }

    /// Processors to pin to; reports those that this process may not use.
    fn processors(&mut self, key: &str) -> Pins {
        let t = self.document.table("run");
        if t.text(key) == Some("auto") {
            return Pins::Auto;
        }
        let wanted: Vec<usize> = t.integers(key).into_iter().map(|n| n as usize).collect();
        let allowed = processors_allowed();
        if let Some(processor) = wanted.iter().find(|p| !allowed.is_empty() && !allowed.contains(*p)) {
            let what = format!("run.{key}: processor {processor} is not one of those that this process may use");
            let why = format!("it may use {}", cpus_text(&allowed));
            self.d.add(t.span(key), what, why, "choose from these, write \"auto\", or remove the line");
        }
        Pins::These(wanted)
    }

    /// Priority of receivers and workers; reports two of them.
    fn priority(&mut self) -> Priority {
        let t = self.document.table("run");
        match (t.integer("nice"), t.integer("realtime_priority")) {
            (None, None) => Priority::Normal,
            (Some(nice), None) => Priority::Nice(nice as i32),
            (None, Some(level)) => Priority::RealTime(level as i32),
            (Some(_), Some(level)) => {
                let why = "threads with a real-time priority run before all others, whatever their nice value";
                self.d.add(t.span("nice"), "run.nice: there is a realtime_priority too", why, "remove one of them");
                Priority::RealTime(level as i32)
            }
        }
    }

    fn check_ports(&mut self, first: u16, streams: usize) {
        if usize::from(first) + streams > 65536 {
            let t = self.document.table("source");
            let what = format!("source.first_port: {streams} streams from port {first} reach beyond port 65535");
            let span = t.span("first_port").or_else(|| t.span.clone());
            self.d.add(span, what, "consecutive streams use consecutive ports", format!("give at most {}", 65536 - streams));
        }
    }

    fn metadata(&self, geometry: &ImageGeometry, modules: u32) -> Metadata {
        let (facts, format) = (facts(self.document), geometry.format());
        let high_gain = self.document.table("calibration").flag("high_gain").unwrap_or(false);
        let model = self.document.table("detector").text("model").unwrap_or(format.kind.name()).to_uppercase();
        let name = format!("{model} {modules} module{}", if modules == 1 { "" } else { "s" });
        // These are facts of the detectors of PSI.
        let is_known = format.kind.is_sls();
        let bits = if format.kind == DetectorKind::Excalibur { excalibur::COUNTER_BITS } else { format.bits };
        Metadata {
            pixel_size_m: facts.pixel_size_m.or(is_known.then_some([75.0 * 1e-6; 2])),
            sensor_material: facts.sensor_material.or(is_known.then(|| "Si".into())),
            sensor_thickness_m: facts.sensor_thickness_m.or(is_known.then_some(320.0 * 1e-6)),
            bit_depth: Some(bits),
            detector_description: facts.detector_description.or(Some(name)),
            experiment: Experiment {
                // Neither these detectors nor this program apply a flat field.
                flatfield_applied: facts.experiment.flatfield_applied.or(Some(false)),
                gain_setting: facts.experiment.gain_setting.or(high_gain.then(|| "high".into())),
                ..facts.experiment
            },
            ..facts
        }
    }
}

/// Processors that this process may use; empty if the system does not say.
fn processors_allowed() -> Cpus {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Cpus::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}
