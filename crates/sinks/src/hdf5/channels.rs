//! Masks and flat fields of the channels of a series. They are written into the first data file, so that a lost master
//! can be rebuilt, and into the master in the form of NXmx.

use std::path::Path;

use hdf5::{Group, Result};

use super::bounded::ReadAll;
use super::low;
use super::nexus::{attribute_text, attribute_texts, group, number, plain, text, texts};
use super::series_info::ChannelInfo;
use super::spec::FileSpec;

const KEPT: &str = "/entry/konkordia/channels";

/// Stores them in the first data file.
pub(crate) fn keep(own: &Group, spec: &FileSpec) -> Result<()> {
    let Some(series) = spec.series.as_ref().filter(|series| !series.channels.is_empty()) else { return Ok(()) };
    let channels = group(own, "channels", "NXcollection")?;
    for (n, channel) in series.channels.iter().enumerate() {
        let one = group(&channels, &format!("channel_{n}"), "NXcollection")?;
        text(&one, "name", &channel.name)?;
        planes(&one, spec, channel)?;
    }
    Ok(())
}

fn planes(group: &Group, spec: &FileSpec, channel: &ChannelInfo) -> Result<()> {
    let shape = (spec.rows as usize, spec.columns as usize);
    if let Some(mask) = &channel.pixel_mask {
        group.new_dataset::<u32>().shape(shape).create("pixel_mask")?.write_raw(mask)?;
    }
    if let Some(field) = &channel.flat_field {
        group.new_dataset::<f32>().shape(shape).create("flatfield")?.write_raw(field)?;
    }
    Ok(())
}

/// Puts masks and flat fields into a specification that was read from text. They are taken from the first of these
/// files that has them.
pub(crate) fn take_back(spec: &mut FileSpec, files: &[&Path]) {
    let pixels = spec.pixels();
    let Some(series) = &mut spec.series else { return };
    for (n, channel) in series.channels.iter_mut().enumerate() {
        let own = [format!("/entry/instrument/detector/{}_channel", plain(&channel.name)), format!("{KEPT}/channel_{n}")];
        for file in files.iter().filter_map(|path| low::open_file(path).ok()) {
            for group in own.iter().filter_map(|name| file.group(name).ok()) {
                let mask = group.dataset("pixel_mask").and_then(|mask| mask.read_all::<u32>()).ok();
                let field = group.dataset("flatfield").and_then(|field| field.read_all::<f32>()).ok();
                channel.pixel_mask = channel.pixel_mask.take().or(mask.filter(|mask| mask.len() == pixels));
                channel.flat_field = channel.flat_field.take().or(field.filter(|field| field.len() == pixels));
            }
        }
    }
}

/// Writes the groups `<channel>_channel` of the detector.
pub(crate) fn write_detector(detector: &Group, spec: &FileSpec) -> Result<()> {
    let Some(series) = &spec.series else { return Ok(()) };
    for channel in &series.channels {
        let name = format!("{}_channel", plain(&channel.name));
        if channel.name.is_empty() || detector.link_exists(&name) {
            continue;
        }
        let one = group(detector, &name, "NXdetector_channel")?;
        if let Some(threshold) = channel.threshold_energy_ev {
            number(&one, "threshold_energy", threshold, "eV")?;
        }
        planes(&one, spec, channel)?;
    }
    Ok(())
}

/// Writes names and axes of a stack of images by channel, in the form of the DECTRIS FileWriter 2024.2.
pub(crate) fn write_axes(data: &Group, spec: &FileSpec) -> Result<()> {
    let Some(series) = spec.series.as_ref().filter(|series| series.channels.len() > 1) else { return Ok(()) };
    let names: Vec<String> = series.channels.iter().map(|channel| channel.name.clone()).collect();
    texts(data, "channel", &names)?;
    let axes: Vec<String> = ["image_id", "channel"]
        .into_iter()
        .map(str::to_owned)
        .chain(series.image_shape.iter().skip(1).map(|_| ".".to_owned()))
        .collect();
    attribute_texts(data, "axes", &axes)?;
    let first = std::iter::once(".".to_owned()).chain(names.first().cloned());
    let slice: Vec<String> = first.chain(series.image_shape.iter().skip(1).map(|_| ".".to_owned())).collect();
    attribute_texts(data, "default_slice", &slice)?;
    data.new_attr::<i64>().create("channel_indices")?.write_scalar(&1)?;
    data.new_attr::<i64>().create("image_id_indices")?.write_scalar(&0)
}

/// Writes number and unique id of the series into `/entry/konkordia`.
pub(crate) fn write_series(own: &Group, spec: &FileSpec) -> Result<()> {
    let Some(series) = &spec.series else { return Ok(()) };
    number(own, "series", series.series, "")?;
    text(own, "series_unique_id", &series.unique_id)?;
    attribute_text(own, "kind", "series")
}
