//! The master file: NXmx for DIALS and similar programs, the DECTRIS paths for XDS, and the ledger of the run. It is
//! built beside the old one and renamed over it, so that a reader always finds a whole one. It links only to data files
//! that exist.

use konkordia_core::output::temporary_path;
use std::path::{Path, PathBuf};

use hdf5::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5::{File, Group, Hyperslab, Result, SliceOrIndex};
use konkordia_core::experiment::KEV_ANGSTROM;
use konkordia_core::latency::{QUANTILES, StageLatency};
use konkordia_core::moment;
use konkordia_core::pixel::{Number, PixelType};

use super::channels;
use super::checksum::CHECKSUM;
use super::columns::{Column, Columns};
use super::datafile::{Closed, remove};
use super::error::{Context, Error};
use super::experiment;
use super::fields;
use super::goniometer::{self, Frames};
use super::image_times;
use super::ledger::LATENCY;
use super::low::{self, Format};
use super::modules;
use super::names::{master_path, pedestal_file_name};
use super::nexus::{attribute_text, group, mask, number, numbers, plain, text, texts, translation};
use super::paths::{COLUMNS, STACK};
use super::pedestals::PEDESTALS;
use super::spec::{FileSpec, Layout, LedgerRecord};

/// Name of a text in `/entry/konkordia` of a running run: during which boot of the machine it was written.
pub(crate) const BOOT: &str = "boot_id";

/// A text that changes with each boot of the machine; `None` if the kernel does not provide it.
pub(crate) fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// State of the run, as stored in `/entry/konkordia/state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Writing,
    Closed,
    Repaired,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Closed => "closed",
            Self::Repaired => "repaired",
        }
    }
}

/// A rectangle of images that a file holds, and where it lies in the whole images.
#[derive(Clone, Debug)]
pub(crate) struct Rectangle {
    /// Name of the file, beside the master.
    pub file: String,
    /// Its first image that is taken, their number, and the position of the first of them.
    pub from: u64,
    pub images: u64,
    pub to: u64,
    /// First row and column in the whole image.
    pub at: [u32; 2],
    /// Rows and columns.
    pub size: [u32; 2],
}

/// What a master shows instead of data files of its own: the files of parts of the image.
pub(crate) struct Parts<'a> {
    pub rectangles: &'a [Rectangle],
    /// Writes what is known of the parts into a group.
    pub write: &'a dyn Fn(&Group) -> Result<()>,
}

/// Builds and publishes the master; returns its path.
pub(crate) fn publish(
    spec: &FileSpec,
    columns: &Columns,
    files: &[Closed],
    ledger: Option<&LedgerRecord>,
    state: State,
) -> std::result::Result<PathBuf, Error> {
    publish_with(spec, columns, files, ledger, state, None)
}

/// Builds and publishes the master of a whole image. `files` have its columns and nothing else.
pub(crate) fn publish_whole(
    spec: &FileSpec,
    columns: &Columns,
    files: &[Closed],
    ledger: &LedgerRecord,
    parts: &Parts<'_>,
) -> std::result::Result<PathBuf, Error> {
    publish_with(spec, columns, files, Some(ledger), State::Closed, Some(parts))
}

fn publish_with(
    spec: &FileSpec,
    columns: &Columns,
    files: &[Closed],
    ledger: Option<&LedgerRecord>,
    state: State,
    parts: Option<&Parts<'_>>,
) -> std::result::Result<PathBuf, Error> {
    let path = master_path(&spec.directory, &spec.prefix);
    // Several programs may make the master of a whole image at a time; the last one to rename its own has the newest.
    let part =
        temporary_path(&if parts.is_some() { path.with_added_extension(std::process::id().to_string()) } else { path.clone() });
    let doing = "write the master file";
    if part.exists() {
        remove(&part)?;
    }
    // Data files may have been moved away while the run went on: never link to an absent file. A repair marks the files
    // of which it knows that they are absent; these keep their links, because they may come back.
    let files: Vec<&Closed> =
        files.iter().filter(|file| file.images > 0 && (!file.is_readable() || file.path.exists())).collect();
    let content = Content { spec, columns, files: &files, ledger, state, parts };
    let built = build(&part, &content).context(doing, &part);
    let published = built.and_then(|()| {
        let file = std::fs::File::open(&part).context(doing, &part)?;
        file.sync_all().context(doing, &part)?;
        std::fs::rename(&part, &path).context(doing, &path)?;
        sync_directory(&spec.directory);
        Ok(())
    });
    if published.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    published.map(|()| path)
}

/// Makes the rename last through a power cut; on a file system that cannot do it, no more is lost than a kill could
/// lose.
fn sync_directory(directory: &Path) {
    let _ = std::fs::File::open(directory).and_then(|d| d.sync_all());
}

/// What a master is made of.
struct Content<'a> {
    spec: &'a FileSpec,
    columns: &'a Columns,
    files: &'a [&'a Closed],
    ledger: Option<&'a LedgerRecord>,
    state: State,
    parts: Option<&'a Parts<'a>>,
}

fn build(path: &Path, content: &Content<'_>) -> Result<()> {
    let &Content { spec, columns, files, ledger, state, parts } = content;
    let file = low::create_file(path, Format::V18WithVirtual)?;
    attribute_text(&file, "NX_class", "NXroot")?;
    attribute_text(&file, "default", "entry")?;
    attribute_text(&file, "creator", &spec.software)?;
    let ipf = u64::from(spec.images_per_file);
    let images = files.last().map_or(0, |last| (last.number - 1) * ipf + last.images);
    let entry = group(&file, "entry", "NXentry")?;
    let frames = Frames::of(spec, files, images, state != State::Writing)?;
    write_entry(&entry, spec, ledger, images)?;
    write_sample(&entry, spec, frames.as_ref(), images)?;
    write_instrument(&entry, spec, frames.as_ref(), images)?;
    match parts {
        None => write_data(&entry, spec, files, images)?,
        Some(parts) => write_whole(&entry, spec, parts.rectangles, images)?,
    }
    let own = group(&entry, "konkordia", "NXcollection")?;
    write_own(&own, spec, state)?;
    if let Some(parts) = parts {
        (parts.write)(&group(&own, "parts", "NXcollection")?)?;
    }
    // While the run goes on its writer must not stop for long, and the columns of all files so far would be copied
    // again and again.
    let copied = if state == State::Writing { &[] } else { files };
    write_columns(&own, columns, copied, spec, images)?;
    image_times::write(&entry.group("instrument/detector")?, spec, copied, images)?;
    if let Some(ledger) = ledger {
        write_ledger(&own, ledger)?;
        write_latency(&own, &ledger.latency)?;
    }
    file.flush()?;
    file.close()
}

fn write_entry(entry: &Group, spec: &FileSpec, ledger: Option<&LedgerRecord>, images: u64) -> Result<()> {
    let m = &spec.metadata;
    attribute_text(entry, "default", "data")?;
    attribute_text(entry, "version", "1.0")?;
    text(entry, "definition", "NXmx")?;
    known_text(entry, "start_time", m.start_time.as_ref())?;
    let end = ledger.and_then(|ledger| ledger.end_time.as_ref());
    known_text(entry, "end_time", end)?;
    let expected = if ledger.is_some() { Some(images) } else { spec.images_planned };
    let length_s = expected.zip(m.frame_time_s).map(|(images, period_s)| images as f64 * period_s);
    let computed = m.start_time.as_ref().zip(length_s).and_then(|(start, length_s)| moment::after(start, length_s));
    known_text(entry, "end_time_estimated", m.end_time_estimated.as_ref().or(end).or(computed.as_ref()))?;
    text(entry, "program_name", &spec.software)?;
    let source = group(entry, "source", "NXsource")?;
    experiment::write_name(&source, m.source_name.as_ref(), m.experiment.source_short_name.as_ref())
}

/// Writes a text, if it is known.
fn known_text(parent: &Group, name: &str, value: Option<&String>) -> Result<()> {
    value.map_or(Ok(()), |value| text(parent, name, value))
}

fn write_sample(entry: &Group, spec: &FileSpec, frames: Option<&Frames>, images: u64) -> Result<()> {
    let sample = group(entry, "sample", "NXsample")?;
    known_text(&sample, "name", spec.metadata.sample_name.as_ref())?;
    experiment::write_sample(&sample, &spec.metadata.experiment)?;
    goniometer::write_sample(&sample, &spec.metadata.experiment, frames, images)
}

fn write_instrument(entry: &Group, spec: &FileSpec, frames: Option<&Frames>, images: u64) -> Result<()> {
    let m = &spec.metadata;
    let instrument = group(entry, "instrument", "NXinstrument")?;
    experiment::write_name(&instrument, m.instrument_name.as_ref(), m.experiment.instrument_short_name.as_ref())?;
    known_text(&instrument, "time_zone", m.start_time.as_deref().and_then(moment::time_zone).as_ref())?;
    let beam = group(&instrument, "beam", "NXbeam")?;
    if let Some(kev) = m.energy_kev {
        number(&beam, "incident_wavelength", KEV_ANGSTROM / kev, "angstrom")?;
        number(&beam, "incident_energy", kev * 1000.0, "eV")?;
    }
    experiment::write_beam(&instrument, &beam, &m.experiment)?;
    let groups = group(&instrument, "detector_group", "NXdetector_group")?;
    texts(&groups, "group_names", &["detector".to_owned()])?;
    numbers(&groups, "group_index", &[1i32])?;
    numbers(&groups, "group_parent", &[-1i32])?;
    let detector = group(&instrument, "detector", "NXdetector")?;
    write_detector(&detector, spec)?;
    write_geometry(&detector, spec, frames, images)?;
    write_specific(&detector, spec, images)?;
    channels::write_detector(&detector, spec)?;
    spec.series.as_ref().map_or(Ok(()), |series| fields::write(&detector, &series.fields))
}

fn write_detector(detector: &Group, spec: &FileSpec) -> Result<()> {
    let m = &spec.metadata;
    known_text(detector, "description", m.detector_description.as_ref())?;
    text(detector, "type", "PIXEL")?;
    known_text(detector, "serial_number", m.detector_serial.as_ref())?;
    if let Some(distance) = m.detector_distance_m {
        number(detector, "distance", distance, "m")?;
        number(detector, "detector_distance", distance, "m")?;
        // The geometry below is calculated from it.
        number(detector, "distance_derived", 0i8, "")?;
    }
    for (name, value) in [("beam_center_x", m.beam_center_x_px), ("beam_center_y", m.beam_center_y_px)] {
        if let Some(value) = value {
            number(detector, name, value, "pixel")?;
        }
    }
    for (name, value) in [("count_time", m.count_time_s), ("frame_time", m.frame_time_s)] {
        if let Some(value) = value {
            number(detector, name, value, "s")?;
        }
    }
    if let Some([width, height]) = spec.metadata.pixel_size_m {
        number(detector, "x_pixel_size", width, "m")?;
        number(detector, "y_pixel_size", height, "m")?;
    }
    known_text(detector, "sensor_material", m.sensor_material.as_ref())?;
    if let Some(thickness) = m.sensor_thickness_m {
        number(detector, "sensor_thickness", thickness, "m")?;
    }
    if let Some(bits) = depth_that_readers_take(spec) {
        number(detector, "bit_depth_readout", bits, "")?;
    }
    number(detector, "bit_depth_image", spec.pixel.bytes() as i32 * 8, "")?;
    // Of detector words only what the run states is known.
    let of_type = (!spec.has_only_missing()).then(|| spec.pixel.special());
    if let Some(value) = spec.saturation.or(of_type.map(|special| special.valid_max)) {
        pixel_value(detector, "saturation_value", spec.pixel, value)?;
    }
    if let Some(value) = spec.underload.or(of_type.map(|special| special.valid_min)) {
        pixel_value(detector, "underload_value", spec.pixel, value)?;
    }
    experiment::write_detector(detector, &m.experiment)
}

/// `bit_depth_readout`, where readers draw the right conclusion from it. In pixels of any type, dxtbx takes the two
/// highest numbers of so many bits for special values, and it accepts 32-bit unsigned images only if 32 bits are said
/// to be read out. If the detector reads fewer bits than a pixel of the file has, those two numbers are counts; then
/// only `detectorSpecific` gives the number of bits.
fn depth_that_readers_take(spec: &FileSpec) -> Option<i32> {
    let bits = spec.pixel.bytes() as i32 * 8;
    let readout = spec.metadata.bit_depth.map_or(bits, |n| n as i32);
    (spec.pixel == PixelType::Uint32 || readout == bits).then_some(bits)
}

/// Writes a pixel value: an integer field for integer pixels, so that no reader has to round.
fn pixel_value(parent: &Group, name: &str, pixel: PixelType, value: f64) -> Result<()> {
    if pixel.is_float() { number(parent, name, value, "") } else { number(parent, name, value as i64, "") }
}

/// Writes the geometry in the McStas frame: z along the beam, y up, x to the left when looking along the beam. Starting
/// at the beam centre, the detector is tilted, moved along the beam, and swung about the sample by its arm.
fn write_geometry(detector: &Group, spec: &FileSpec, frames: Option<&Frames>, images: u64) -> Result<()> {
    let m = &spec.metadata;
    let moves = group(detector, "transformations", "NXtransformations")?;
    let mut chain = goniometer::write_two_theta(&moves, &m.experiment, frames, images)?;
    if let Some(distance) = m.detector_distance_m {
        translation(&moves, "translation", distance, [0.0, 0.0, 1.0], [0.0; 3], &chain)?;
        chain = format!("{}/translation", goniometer::DETECTOR);
    }
    let chain = goniometer::write_tilts(&moves, &m.experiment, modules::directions(spec), chain)?;
    text(detector, "depends_on", &chain)?;
    modules::write(detector, spec, &chain, spec.metadata.pixel_size_m)
}

/// Writes what readers for DECTRIS files look for. `eiger_fw_version` is left out on purpose: with it dxtbx assumes one
/// of a fixed list of EIGER sizes.
fn write_specific(detector: &Group, spec: &FileSpec, images: u64) -> Result<()> {
    let specific = group(detector, "detectorSpecific", "NXcollection")?;
    number(&specific, "nimages", images, "")?;
    number(&specific, "ntrigger", 1u64, "")?;
    number(&specific, "x_pixels_in_detector", spec.columns, "")?;
    number(&specific, "y_pixels_in_detector", spec.rows, "")?;
    if let Some(kev) = spec.metadata.energy_kev {
        number(&specific, "photon_energy", kev * 1000.0, "eV")?;
    }
    if let Some(bits) = spec.metadata.bit_depth {
        number(&specific, "bit_depth_readout", bits, "")?;
    }
    text(&specific, "software_version", &spec.software)?;
    mask(&specific, "pixel_mask", (spec.rows as usize, spec.columns as usize), &spec.pixel_mask)?;
    detector.link_hard("/entry/instrument/detector/detectorSpecific/pixel_mask", "pixel_mask")
}

/// NXmx: value = (number + data_offset) x data_scaling_factor. `nxmx`, and with it DIALS, looks for
/// `data_scale_factor`.
fn write_scale(data: &Group, spec: &FileSpec) -> Result<()> {
    let Some(scale) = spec.scale.filter(|scale| !scale.is_trivial()) else { return Ok(()) };
    number(data, "data_scaling_factor", scale.step, "")?;
    number(data, "data_scale_factor", scale.step, "")?;
    // 0 minus the offset, to avoid a negative zero.
    number(data, "data_offset", 0.0 - scale.offset, "")
}

fn write_data(entry: &Group, spec: &FileSpec, files: &[&Closed], images: u64) -> Result<()> {
    let data = group(entry, "data", "NXdata")?;
    let Some(first) = files.first() else { return write_scale(&data, spec).and_then(|()| channels::write_axes(&data, spec)) };
    if spec.layout != Layout::Virtual {
        for file in files {
            data.link_external(&file_name(file), STACK, &format!("data_{:06}", file.number))?;
        }
    }
    let signal = spec.layout.stack().map_or_else(|| format!("data_{:06}", first.number), str::to_owned);
    if spec.layout != Layout::Links {
        write_virtual(&data, &signal, spec, files, images)?;
    }
    // After the images: fabio takes these numbers for images, in the order in which they were created.
    write_scale(&data, spec)?;
    channels::write_axes(&data, spec)?;
    attribute_text(&data, "signal", &signal)
}

fn file_name(file: &Closed) -> String {
    file.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The images of data files, one after the other.
fn write_virtual(data: &Group, name: &str, spec: &FileSpec, files: &[&Closed], images: u64) -> Result<()> {
    let image = spec.image_shape();
    let mapping = |file: &&Closed| {
        let to = (file.number - 1) * u64::from(spec.images_per_file);
        // Of a shorter copy only what is there; the rest reads as missing.
        let count = if file.is_readable() { file.stored } else { file.images };
        let source = Slab { first: 0, images: count, of: count, image: image.iter().map(|&size| 0..size).collect() };
        Mapping { file: file_name(file), target: Slab { first: to, of: images, ..source.clone() }, source }
    };
    write_mappings(data, name, spec, files.iter().map(mapping).collect(), images)
}

/// Whole images of the files of parts.
fn write_whole(entry: &Group, spec: &FileSpec, rectangles: &[Rectangle], images: u64) -> Result<()> {
    let data = group(entry, "data", "NXdata")?;
    let mapping = |part: &Rectangle| {
        let [rows, columns] = part.size.map(|size| size as usize);
        let [row, column] = part.at.map(|at| at as usize);
        let source =
            Slab { first: part.from, images: part.images, of: part.from + part.images, image: vec![0..rows, 0..columns] };
        let image = vec![row..row + rows, column..column + columns];
        Mapping { file: part.file.clone(), target: Slab { first: part.to, images: part.images, of: images, image }, source }
    };
    if images > 0 {
        write_mappings(&data, "data", spec, rectangles.iter().map(mapping).collect(), images)?;
        attribute_text(&data, "signal", "data")?;
    }
    write_scale(&data, spec)
}

/// Some of the images of a stack, and some of the pixels of each.
#[derive(Clone)]
struct Slab {
    first: u64,
    images: u64,
    /// Images of the stack.
    of: u64,
    image: Vec<std::ops::Range<usize>>,
}

impl Slab {
    fn selection(&self) -> Hyperslab {
        let images = self.first as usize..(self.first + self.images) as usize;
        Hyperslab::new(std::iter::once(images).chain(self.image.iter().cloned()).map(SliceOrIndex::from).collect::<Vec<_>>())
    }

    /// The shape of a stack whose images end where the pixels end.
    fn shape(&self) -> Vec<usize> {
        std::iter::once(self.of as usize).chain(self.image.iter().map(|range| range.end)).collect()
    }
}

/// Where images of a virtual data set are.
struct Mapping {
    file: String,
    source: Slab,
    target: Slab,
}

fn write_mappings(data: &Group, name: &str, spec: &FileSpec, mappings: Vec<Mapping>, images: u64) -> Result<()> {
    let image = spec.image_shape();
    let kind = match spec.pixel {
        PixelType::Int16 => TypeDescriptor::Integer(IntSize::U2),
        PixelType::Int32 => TypeDescriptor::Integer(IntSize::U4),
        PixelType::Uint16 => TypeDescriptor::Unsigned(IntSize::U2),
        PixelType::Uint32 => TypeDescriptor::Unsigned(IntSize::U4),
        PixelType::Float32 => TypeDescriptor::Float(FloatSize::U4),
        PixelType::Int8 => TypeDescriptor::Integer(IntSize::U1),
        PixelType::Int64 => TypeDescriptor::Integer(IntSize::U8),
        PixelType::Uint8 => TypeDescriptor::Unsigned(IntSize::U1),
        PixelType::Uint64 => TypeDescriptor::Unsigned(IntSize::U8),
        PixelType::Float64 => TypeDescriptor::Float(FloatSize::U8),
    };
    let whole = [&[images as usize], &image[..]].concat();
    let builder = data.new_dataset_builder();
    let mut builder = match (spec.pixel, spec.pixel.missing()) {
        (PixelType::Int8, Number::Signed(value)) => builder.fill_value(value as i8),
        (PixelType::Int16, Number::Signed(value)) => builder.fill_value(value as i16),
        (PixelType::Int32, Number::Signed(value)) => builder.fill_value(value as i32),
        (_, Number::Signed(value)) => builder.fill_value(value),
        (PixelType::Uint8, Number::Unsigned(value)) => builder.fill_value(value as u8),
        (PixelType::Uint16, Number::Unsigned(value)) => builder.fill_value(value as u16),
        (PixelType::Uint32, Number::Unsigned(value)) => builder.fill_value(value as u32),
        (_, Number::Unsigned(value)) => builder.fill_value(value),
        (PixelType::Float32, Number::Float(value)) => builder.fill_value(value as f32),
        (_, Number::Float(value)) => builder.fill_value(value),
    };
    for Mapping { file, source, target } in mappings {
        builder = builder.virtual_map(file, STACK, source.shape(), source.selection(), whole.clone(), target.selection());
    }
    let dataset = builder.empty_as(&kind).shape(whole).create(name)?;
    attribute_text(&dataset, "units", &spec.unit)
}

fn write_own(own: &Group, spec: &FileSpec, state: State) -> Result<()> {
    number(own, "version", 1u32, "")?;
    text(own, "state", state.name())?;
    if let (State::Writing, Some(boot)) = (state, boot_id()) {
        text(own, BOOT, &boot)?;
    }
    text(own, "run_description", &spec.to_text())?;
    text(own, "software", &spec.software)?;
    text(own, "configuration", &spec.configuration)?;
    text(own, "calibration_hash", &spec.calibration_hash)?;
    text(own, "unit", &spec.unit)?;
    let special = group(own, "special_values", "NXcollection")?;
    let s = spec.pixel.special();
    match spec.pixel.missing() {
        Number::Signed(value) => number(&special, "missing", value, "")?,
        Number::Unsigned(value) if spec.pixel == PixelType::Uint64 => number(&special, "missing", value, "")?,
        Number::Unsigned(value) => number(&special, "missing", value as i64, "")?,
        Number::Float(value) => number(&special, "missing", value, "")?,
    }
    if !spec.has_only_missing() {
        for (name, value) in [
            ("masked", s.masked),
            ("invalid", s.invalid),
            ("saturated", s.saturated),
            ("valid_min", s.valid_min),
            ("valid_max", s.valid_max),
        ] {
            pixel_value(&special, name, spec.pixel, value)?;
        }
    }
    channels::write_series(own, spec)?;
    let conversion = group(own, "conversion", "NXcollection")?;
    for (name, value) in &spec.conversion {
        text(&conversion, &plain(name), value)?;
    }
    let pedestals = pedestal_file_name(&spec.prefix);
    if spec.pedestal_snapshots && spec.directory.join(&pedestals).exists() {
        own.link_external(&pedestals, "/", PEDESTALS)?;
    }
    let tiles = group(own, "tiles", "NXcollection")?;
    let of = |f: fn(&super::spec::TileInfo) -> u32| spec.tiles.iter().map(f).collect::<Vec<u32>>();
    numbers(&tiles, "rows", &of(|t| t.rows))?;
    numbers(&tiles, "columns", &of(|t| t.columns))?;
    numbers(&tiles, "row", &of(|t| t.row))?;
    numbers(&tiles, "column", &of(|t| t.column))?;
    numbers(&tiles, "flip_rows", &of(|t| u32::from(t.flip_rows)))?;
    numbers(&tiles, "rotate_deg", &of(|t| t.rotate_deg))?;
    numbers(&tiles, "packets", &of(|t| t.packets))
}

/// Copies the per-image columns of all data files, one file at a time, so that memory does not grow with the run.
fn write_columns(own: &Group, columns: &Columns, files: &[&Closed], spec: &FileSpec, images: u64) -> Result<()> {
    let ipf = u64::from(spec.images_per_file);
    let target = group(own, "images", "NXcollection")?;
    if files.is_empty() && images > 0 {
        return Ok(());
    }
    let mut created = Vec::new();
    // Data files of earlier versions have no checksums.
    let mut is_old = false;
    for file in files {
        is_old |= file.columns()?.is_some_and(|columns| !columns.link_exists(CHECKSUM));
    }
    let list: Vec<_> = columns.list.iter().filter(|column| !(is_old && column.name == CHECKSUM)).collect();
    for column in &list {
        let dataset = low::create_column(&target, column, u32::MAX)?;
        low::set_extent(&dataset, images, &column.shape)?;
        attribute_text(&dataset, "description", &column.description)?;
        created.push(dataset);
    }
    let old = master_path(&spec.directory, &spec.prefix);
    let old = low::open_file(&old).and_then(|f: File| f.group(COLUMNS)).ok();
    for file in files {
        let first = (file.number - 1) * ipf;
        let own = file.columns()?;
        for (column, dataset) in list.iter().zip(&created) {
            let mut bytes = match &own {
                Some(own) => low::read_rows(&own.dataset(&column.name)?, column, 0, file.stored)?,
                None => Vec::new(),
            };
            let there = (bytes.len() / column.bytes()) as u64;
            bytes.extend(old_rows(old.as_ref(), column, first + there, file.images - there));
            low::write_rows(dataset, column, first, &bytes)?;
        }
    }
    Ok(())
}

/// Rows of the previous master for images that are in no readable data file; zeros where it had none.
fn old_rows(old: Option<&Group>, column: &Column, first: u64, images: u64) -> Vec<u8> {
    let read = |old: &Group| low::read_rows(&old.dataset(&column.name).ok()?, column, first, images).ok();
    old.and_then(read).unwrap_or_else(|| vec![0; images as usize * column.bytes()])
}

fn write_ledger(own: &Group, record: &LedgerRecord) -> Result<()> {
    let ledger = group(own, "ledger", "NXcollection")?;
    text(&ledger, "ended", &record.ended)?;
    number(&ledger, "images_expected_by_plan", record.images_expected, "")?;
    texts(&ledger, "balances", &record.balances)?;
    let totals = group(&ledger, "totals", "NXcollection")?;
    for (name, value) in &record.totals {
        number(&totals, &plain(name), *value, "")?;
    }
    let streams = group(&ledger, "streams", "NXcollection")?;
    let Some(first) = record.streams.first() else { return Ok(()) };
    texts(&streams, "name", &record.streams.iter().map(|s| s.name.clone()).collect::<Vec<_>>())?;
    for (name, _) in &first.counters {
        let value = |s: &super::spec::StreamRecord| s.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v);
        numbers(&streams, &plain(name), &record.streams.iter().map(value).collect::<Vec<u64>>())?;
    }
    Ok(())
}

/// One row for each stage, if latencies were measured.
fn write_latency(own: &Group, latency: &[StageLatency]) -> Result<()> {
    if latency.is_empty() {
        return Ok(());
    }
    let own = group(own, LATENCY, "NXcollection")?;
    texts(&own, "stage", &latency.iter().map(|row| row.stage.name().to_owned()).collect::<Vec<_>>())?;
    numbers(&own, "images", &latency.iter().map(|row| row.images).collect::<Vec<u64>>())?;
    for (n, (quantile, _)) in QUANTILES.iter().enumerate() {
        let values: Vec<f64> = latency.iter().map(|row| row.quantiles_us()[n]).collect();
        let field = own.new_dataset_builder().with_data(&values[..]).create(format!("{quantile}_us").as_str())?;
        attribute_text(&field, "units", "us")?;
    }
    Ok(())
}
