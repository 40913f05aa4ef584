//! Files of series: each series has one master and its data files, created when its first image gives the shape and
//! type.

use std::sync::Arc;

use konkordia_core::array::{Array, Element, Packing};
use konkordia_core::image::CommittedImage;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::pixel::PixelType;
use konkordia_core::series::{Ended, SeriesEnd, SeriesStart};

use serde_json::{Map, Value};

use super::columns::SeriesRecord;
use super::error::{Error, ErrorKind};
use super::fields::BYTES_MAX;
use super::ledger::REFUSED;
use super::names::data_file_name;
use super::open_files::OpenFiles;
use super::series_form::{Chunks, Form};
use super::series_info::{ChannelInfo, SeriesInfo};
use super::series_state::SharedState;
use super::spec::{FileSpec, LedgerRecord, Metadata, StreamRecord};
use super::writer::Writer;
use crate::durable::ToDisk;

/// A plan of more images than this reserves no space: the number comes from the sender.
const PLANNED_MAX: u64 = 200_000;
/// At most this many images without pixels, of those before the first one with pixels, keep more than their position.
const EARLY_MAX: usize = 4096;

/// Where and how the files of one series are to be written.
#[derive(Clone, Debug, Default)]
pub struct SeriesFileSpec {
    /// What is known before the first image: folder, names, metadata where the stream says nothing (what the stream
    /// says takes precedence). The images decide their shape, type and packing. The folder is one that the series may
    /// be written to: names that come from the sender have been checked.
    pub file: FileSpec,
    /// When written data are brought to the disk.
    pub to_disk: ToDisk,
    /// Returns the current time as ISO 8601 with offset, if the time of the end is to be written.
    pub clock: Option<fn() -> String>,
}

/// The files of a series, written in the same way as those of runs: a master, data files with a journal each, and the
/// ledger at the end.
pub(super) struct SeriesFiles {
    spec: SeriesFileSpec,
    start: Arc<SeriesStart>,
    /// From the first image with pixels on.
    file: Option<(Form, Box<Writer>)>,
    /// Images without pixels that came before the first one with pixels: number, state, missing parts.
    early: Vec<(u64, ImageStatus, u64)>,
    chunks: Chunks,
    data_file: u64,
}

impl SeriesFiles {
    /// Checks what can be known now: the folder, and older files in the way. No file is made yet.
    pub(super) fn new(spec: SeriesFileSpec, start: &Arc<SeriesStart>) -> Result<Self, Error> {
        Writer::check_way(&file_spec(&spec.file, start, &stand_in(start)))?;
        let (start, early, chunks) = (Arc::clone(start), Vec::new(), Chunks::default());
        Ok(Self { spec, start, file: None, early, chunks, data_file: 0 })
    }

    /// Creates the files for images of this form, and writes the rows of the earlier images without pixels.
    fn create(&mut self, form: Form, times_from: Option<String>, shared: &SharedState) -> Result<(), Error> {
        let mut spec = file_spec(&self.spec.file, &self.start, &form);
        if let Some(series) = &mut spec.series {
            series.times_from = times_from;
        }
        let mut writer = Writer::create(spec)?;
        writer.set_to_disk(self.spec.to_disk)?;
        writer.set_meter(self.start.meter.clone());
        if let Some(durable) = writer.durable() {
            shared.is_durable_to(Some(durable));
        }
        for (index, status, parts_missing) in self.early.drain(..) {
            let record = SeriesRecord { index, status, pieces: &[], times: None, parts_missing, extra: &[] };
            match writer.write_series(&record) {
                Err(error) if error.kind != ErrorKind::Invalid => return Err(error),
                _ => {}
            }
        }
        self.file = Some((form, Box::new(writer)));
        Ok(())
    }
}

impl OpenFiles for SeriesFiles {
    fn image(&mut self, image: &CommittedImage, shared: &SharedState) -> Result<(), Error> {
        let status = if image.status.has_pixels() && !image.store { ImageStatus::Discarded } else { image.status };
        let mut refusal = None;
        if self.file.is_none() && !image.channels.is_empty() {
            match Form::of(image) {
                Ok(form) => self.create(form, times_from(image), shared)?,
                Err(why) => refusal = Some(why),
            }
        }
        let Some((form, writer)) = &mut self.file else {
            if let Some(why) = refusal {
                shared.refuse(format!("image {}: {why}", image.number));
            } else if status != ImageStatus::Lost && self.early.len() < EARLY_MAX {
                self.early.push((image.number, status, image.missing_parts));
            }
            return Ok(());
        };
        let parts_missing = if status == ImageStatus::Lost { 0 } else { image.missing_parts };
        let empty = SeriesRecord {
            index: image.number,
            status,
            pieces: &[],
            times: image.times,
            parts_missing,
            extra: image.results.bits(),
        };
        let written = if !status.has_pixels() {
            writer.write_series(&empty).map(|()| false)
        } else if let Some(why) = form.differs(image) {
            return lose(writer, image.number, why, shared);
        } else {
            let stored = self.chunks.with(form, image, |pieces| writer.write_series(&SeriesRecord { pieces, ..empty }));
            match stored {
                Ok(written) => written.map(|()| true),
                Err(why) => return lose(writer, image.number, why, shared),
            }
        };
        match written {
            Err(error) if error.kind == ErrorKind::Invalid => return lose(writer, image.number, error.cause, shared),
            Err(error) => return Err(error),
            Ok(true) => {
                shared.wrote(1, [image.packed_bytes(), image.unpacked_bytes()]);
                writer.count_latency(image.received_ns);
            }
            Ok(false) => {}
        }
        let FileSpec { directory, prefix, images_per_file, .. } = &self.spec.file;
        let data_file = image.number / u64::from(*images_per_file) + 1;
        if data_file != self.data_file {
            self.data_file = data_file;
            shared.writes_into(directory.join(data_file_name(prefix, data_file)));
        }
        Ok(())
    }

    fn tick(&mut self, now_ns: u64, _: &SharedState) -> Result<(), Error> {
        self.file.as_mut().map_or(Ok(()), |(_, writer)| writer.tick(now_ns))
    }

    fn end(mut self: Box<Self>, end: &SeriesEnd, has_failed: bool, shared: &SharedState) -> Result<(), Error> {
        if self.file.is_none() && !has_failed {
            self.create(stand_in(&self.start), None, shared)?;
        }
        let Some((_, writer)) = self.file.take() else { return Ok(()) };
        let done = writer.finish(&ledger(end, shared, self.spec.clock.map(|now| now())));
        done.map(|report| shared.has_positions(report.images))
    }
}

/// The date from which the times of the images count, as DECTRIS Stream V2 states it with each image.
fn times_from(image: &CommittedImage) -> Option<String> {
    let said: Map<String, Value> = serde_json::from_slice(&image.header_json).ok()?;
    said.get("series_date")?.as_str().map(str::to_owned)
}

/// Writes a lost position for an image that the file cannot take; the series goes on.
fn lose(writer: &mut Writer, index: u64, why: String, shared: &SharedState) -> Result<(), Error> {
    shared.refuse(format!("image {index}: {why}"));
    let lost = SeriesRecord { index, status: ImageStatus::Lost, pieces: &[], times: None, parts_missing: 0, extra: &[] };
    match writer.write_series(&lost) {
        Err(error) if error.kind != ErrorKind::Invalid => Err(error),
        _ => Ok(()),
    }
}

/// The form for a series without any image: as announced, or else one pixel.
fn stand_in(start: &SeriesStart) -> Form {
    let fits = |size: &[u64; 2]| size.iter().all(|n| (1..=65536).contains(n)) && size[0] * size[1] <= 1 << 26;
    Form {
        element: start.element.filter(|element| element.pixel().is_some()).unwrap_or(Element::Uint32),
        packing: Packing::None,
        channel_shape: start.image_size.filter(fits).unwrap_or([1, 1]).to_vec(),
        channels: 1,
        names: vec!["".into()],
        pieces: 1,
    }
}

/// The specification of the files: what is known before the first image, and what the images decide.
fn file_spec(known: &FileSpec, start: &SeriesStart, form: &Form) -> FileSpec {
    let [rows, columns] = form.plane();
    let mut notes = vec![("pixels".to_owned(), "as the sender packed them".to_owned())];
    if start.image_size.is_some_and(|size| size != [rows, columns]) {
        notes.push(("announced_size".into(), format!("{:?}, the images came as {:?}", start.image_size, form.image_shape())));
    }
    notes.extend(start.notes.iter().cloned());
    let channels = channels(start, form, &mut notes);
    let pixel_mask = common_mask(channels.iter().filter_map(|channel| channel.pixel_mask.as_deref()), start, [rows, columns]);
    let series = SeriesInfo {
        series: start.series,
        unique_id: start.unique_id.clone(),
        image_shape: form.image_shape(),
        pieces: form.chunks() as u32,
        channels: channels.into_iter().filter(|channel| form.channels > 1 || !channel.name.is_empty()).collect(),
        fields: fields(start, &mut notes),
        orientation: start.orientation,
        times_from: None,
    };
    FileSpec {
        rows: rows as u32,
        columns: columns as u32,
        pixel: form.pixel(),
        compression: form.compression(),
        images_planned: start.images_planned.filter(|images| *images <= PLANNED_MAX),
        metadata: metadata(&known.metadata, start, form),
        pixel_mask,
        unit: "count".into(),
        underload: underload(start, form.pixel()),
        saturation: saturation(start, form.pixel()),
        conversion: notes,
        extra_columns: start.results.iter().copied().map(Into::into).collect(),
        series: Some(series),
        ..known.clone()
    }
}

/// What the files of a series say whose images have one channel in one piece: for those who write chunks and rows
/// themselves ([`Writer::write_series`]). What `start` says takes precedence over what is `known`, but the compression
/// is that of `known`.
pub fn spec_of_series(known: &FileSpec, start: &SeriesStart, (element, size): (Element, [u64; 2])) -> FileSpec {
    let (packing, names) = (known.compression.packing(), vec!["".into()]);
    let form = Form { element, packing, channel_shape: size.to_vec(), channels: 1, names, pieces: 1 };
    let mut spec = FileSpec { compression: known.compression, ..file_spec(known, start, &form) };
    spec.conversion.retain(|(name, _)| name != "pixels");
    spec
}

/// A pixel that one channel cannot use is marked for all channels; each channel has its own mask as well. What people
/// have masked is masked in all.
fn common_mask<'a>(masks: impl Iterator<Item = &'a [u32]>, start: &SeriesStart, size: [u64; 2]) -> Vec<u32> {
    let mut common: Vec<u32> = Vec::new();
    for mask in masks {
        common.resize(mask.len(), 0);
        common.iter_mut().zip(mask).for_each(|(all, one)| *all |= one);
    }
    mark(start, &mut common, size);
    common
}

/// Adds what people have masked.
fn mark(start: &SeriesStart, mask: &mut Vec<u32>, size: [u64; 2]) {
    if let Some(user) = &start.user_mask {
        user.mark(mask, size.map(|edge| edge as usize));
    }
}

/// What the file of a series would say of its pixels and its geometry, known from its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesFacts {
    /// Facts of the stream, and where it says nothing those of the configuration.
    pub metadata: Metadata,
    /// NXmx mask bits of the image, row by row; empty: no bit is set.
    pub pixel_mask: Vec<u32>,
}

impl SeriesFacts {
    /// Of images of `rows` and `columns`, with `given` from the configuration.
    pub fn new(given: &Metadata, start: &SeriesStart, size: [u64; 2]) -> Self {
        let masks = start.channels.iter().enumerate().filter_map(|(n, channel)| {
            plane(channel.pixel_mask.as_ref(), Element::Uint32, size, ("pixel_mask", n), &mut Vec::new(), u32::from_le_bytes)
        });
        let masks: Vec<Vec<u32>> = masks.collect();
        Self { metadata: facts_of_series(given, start), pixel_mask: common_mask(masks.iter().map(Vec::as_slice), start, size) }
    }
}

/// Facts of the stream, and where it says nothing those of the configuration, `given`.
pub fn facts_of_series(given: &Metadata, start: &SeriesStart) -> Metadata {
    said(start).over(given.clone())
}

/// Lowest and highest number that is a measurement in a series, if the file has to say it.
pub fn limits_of_series(start: &SeriesStart, pixel: PixelType) -> (Option<f64>, Option<f64>) {
    (underload(start, pixel), saturation(start, pixel))
}

/// Lowest number that is a measurement: as the sender says, but always above the value *missing*, so that readers leave
/// that out. Floating-point pixels need no such limit: no reader takes -infinity for a measurement.
fn underload(start: &SeriesStart, pixel: PixelType) -> Option<f64> {
    let said = start.facts.underload_value.map(|value| value as f64);
    let lowest = match pixel {
        PixelType::Float32 | PixelType::Float64 => return said,
        // The next number above it that an `f64` can hold: `special` is rounded.
        PixelType::Int64 => i64::MIN as f64 + 4096.0,
        _ => pixel.special().valid_min,
    };
    Some(said.map_or(lowest, |said| said.max(lowest)))
}

/// Highest number that is a measurement: as the sender says, but below the special values of the type.
fn saturation(start: &SeriesStart, pixel: PixelType) -> Option<f64> {
    let said = start.facts.saturation_value.filter(|value| *value > 0).map(|value| value as f64);
    let highest = pixel.special().valid_max;
    if pixel.is_float() { said } else { Some(said.map_or(highest, |said| said.min(highest))) }
}

/// The channels of the images, with what the start message says of the channel of the same name, or else of the channel
/// in the same place.
fn channels(start: &SeriesStart, form: &Form, notes: &mut Vec<(String, String)>) -> Vec<ChannelInfo> {
    let size = form.plane();
    let info = |(n, name): (usize, &Arc<str>)| {
        let in_order = || start.channels.get(n).filter(|_| start.channels.len() == form.channels);
        let Some(channel) = start.channels.iter().find(|channel| channel.name == name[..]).or_else(in_order) else {
            let name = if name.is_empty() && form.channels > 1 { format!("channel_{n}") } else { name.to_string() };
            return ChannelInfo { name, ..ChannelInfo::default() };
        };
        let (mask, field) = (channel.pixel_mask.as_ref(), channel.flat_field.as_ref());
        let mut mask = plane(mask, Element::Uint32, size, ("pixel_mask", n), notes, u32::from_le_bytes);
        mask.iter_mut().for_each(|mask| mark(start, mask, size));
        ChannelInfo {
            name: channel.name.clone(),
            threshold_energy_ev: channel.threshold_energy_ev,
            pixel_mask: mask,
            flat_field: plane(field, Element::Float32, size, ("flatfield", n), notes, f32::from_le_bytes),
        }
    };
    form.names.iter().enumerate().map(info).collect()
}

/// The metadata of the sender, if they are small enough for a file.
fn fields(start: &SeriesStart, notes: &mut Vec<(String, String)>) -> Map<String, Value> {
    let bytes = serde_json::to_string(&start.metadata).map_or(0, |text| text.len());
    if bytes <= BYTES_MAX {
        return start.metadata.clone();
    }
    notes.push(("metadata".into(), format!("left out: its {bytes} bytes are more than a file takes")));
    Map::new()
}

/// The values of a plane that came with the start message; a plane that cannot be used is named in the notes.
fn plane<T>(
    array: Option<&Array>,
    element: Element,
    shape: [u64; 2],
    (what, channel): (&str, usize),
    notes: &mut Vec<(String, String)>,
    value: fn([u8; 4]) -> T,
) -> Option<Vec<T>> {
    let array = array?;
    let bytes = array.pieces.concat();
    let fits = array.shape.dimensions() == shape || (shape[0] == 1 && array.shape.dimensions() == [shape[1]]);
    if !fits || array.packing != Packing::None || array.element != element || bytes.len() as u64 != array.unpacked_bytes() {
        let found = format!("{:?} of {} ({:?})", array.shape.dimensions(), array.element.name(), array.packing);
        notes.push((format!("{what}_{channel}"), format!("left out: it came as {found}, the images have {shape:?}")));
        return None;
    }
    Some(bytes.chunks_exact(4).map(|four| value(std::array::from_fn(|k| four[k]))).collect())
}

/// Facts of the stream take precedence over those of the configuration.
fn metadata(given: &Metadata, start: &SeriesStart, form: &Form) -> Metadata {
    let mut said = said(start);
    // If there are several channels, each has its own threshold.
    let threshold = start.channels.first().filter(|_| form.channels == 1 && start.channels.len() == 1);
    said.experiment.threshold_energy_ev = finite(threshold.and_then(|channel| channel.threshold_energy_ev));
    said.over(given.clone())
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// The facts of the stream that are numbers.
fn said(start: &SeriesStart) -> Metadata {
    let facts = &start.facts;
    Metadata {
        energy_kev: finite(facts.energy_kev).filter(|kev| *kev > 0.0),
        detector_distance_m: finite(facts.detector_distance_m),
        beam_center_x_px: finite(facts.beam_center_x_px),
        beam_center_y_px: finite(facts.beam_center_y_px),
        pixel_size_m: facts.pixel_size_m.filter(|size| size.iter().all(|edge| edge.is_finite())),
        sensor_thickness_m: finite(facts.sensor_thickness_m),
        frame_time_s: finite(facts.frame_time_s),
        count_time_s: finite(facts.count_time_s),
        ..facts.clone()
    }
}

fn ledger(end: &SeriesEnd, shared: &SharedState, end_time: Option<String>) -> LedgerRecord {
    ledger_of_series(end, shared.images(), shared.refused(), end_time)
}

/// The account of a series, of which so many images were `written` and so many `refused` by the file.
pub fn ledger_of_series(end: &SeriesEnd, written: u64, refused: u64, end_time: Option<String>) -> LedgerRecord {
    let named = |rows: &[(&'static str, u64)]| rows.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
    let (account, total) = (&end.ledger, end.ledger.total());
    let mut totals = named(&account.rows());
    totals.extend(named(&total.rows()));
    totals.push(("written".into(), written));
    totals.push(("unwritten".into(), account.images.to_be_written().saturating_sub(written)));
    totals.push((REFUSED.into(), refused));
    let stream = |(n, upstream): (usize, &konkordia_core::series::UpstreamLedger)| StreamRecord {
        name: format!("upstream {n}"),
        counters: named(&upstream.rows()),
    };
    let mut balances = vec![
        "expected = complete + partial + lost + discarded + vetoed".to_owned(),
        "expected = written + unwritten + not_stored + lost + discarded + vetoed".to_owned(),
        "received = placed + control + duplicate + late + foreign + malformed".to_owned(),
    ];
    if account.has_sums() {
        balances.push("frames = frames_kept + frames_unfinished".into());
    }
    let reason = if end.reason.is_empty() { String::new() } else { format!(": {}", end.reason) };
    LedgerRecord {
        totals,
        streams: account.upstreams.iter().enumerate().map(stream).collect(),
        balances,
        latency: Vec::new(),
        ended: format!("{}{reason}", end.ended.name()),
        end_time,
        // A cancelled series is not extended with files of lost images, of which there may be a million.
        images_expected: if end.ended == Ended::Cancelled { 0 } else { account.images.expected },
    }
}
