//! `konkordia inspect`: what is in a file.

use super::args::InspectArgs;
use super::compression::compression;
use super::index;
use super::others;
use super::picture::draw;
use super::statistics::Statistics;
use crate::console;
use konkordia_analysis::crystfel;
use konkordia_analysis::geometry::Geometry;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_kernels::codec::decode;
use konkordia_sinks::hdf5::others::is_ours;
use konkordia_sinks::hdf5::{FileSpec, ImageStatus, Reader, SplitName, Summary};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// `konkordia inspect FILE`
pub fn command(args: &InspectArgs) -> Result<Exit, Failure> {
    if args.index {
        return index::command(&args.file);
    }
    if let Some(path) = &args.png {
        konkordia_picture::png_path(path)?;
    }
    if is_ours(&args.file) == Some(false) {
        return others::inspect(args);
    }
    let reader = Reader::open(&args.file)?;
    let summary = reader.summary();
    let image = args.image.map(|n| one_image(&reader, n)).transpose()?;
    if let Some(path) = &args.png {
        let pixels = reader.read_image(args.image.unwrap_or(0), &decode)?;
        draw(path, Some(summary.pixel), summary.columns as usize, &pixels)?;
    }
    if let Some(path) = &args.geom {
        write_geometry(&reader, path)?;
    }
    if args.json {
        let mut value = to_json(summary);
        if let (Some(n), Some((status, statistics))) = (args.image, image) {
            let mut one = statistics.to_json();
            one["image"] = json!(n);
            one["status"] = json!(status);
            value["image"] = one;
        }
        console::json(&value, false);
    } else {
        console::to_stdout(&to_text(summary));
        if let (Some(n), Some((status, statistics))) = (args.image, image) {
            let status = status.map_or(String::new(), |s| format!("{s}; "));
            console::to_stdout(&format!("image {n:<6} {status}{}", statistics.to_text()));
        }
    }
    Ok(Exit::Complete)
}

/// Writes what CrystFEL must know of the file.
fn write_geometry(reader: &Reader, path: &Path) -> Result<(), Failure> {
    let (summary, places) = (reader.summary(), reader.places());
    let refused = |why: String, fix: &str| {
        let what = format!("there is no geometry for CrystFEL of {}", summary.path.display());
        Failure::new(Exit::Usage, what, why, fix)
    };
    let Some(spec) = &summary.spec else {
        return Err(refused("it has no description of its run".into(), "give the master file"));
    };
    let Some(images) = &places.images else {
        let why = "a master whose layout is links has no stack of all images".into();
        return Err(refused(why, "give a data file (FILE_data_000001.h5)"));
    };
    let shape = [summary.rows as usize, summary.columns as usize];
    let text = Geometry::of_run(shape, &spec.metadata)
        .and_then(|geometry| crystfel::geometry_text(&geometry, images, [places.mask, places.spots], summary.valid_range()));
    let fix = "give beam centre, distance and energy in the configuration of the next run (docs/configuration.md)";
    let text = text.map_err(|why| refused(why, fix))?;
    let mut file = File::create_new(path).map_err(|error| Failure::io("cannot create", path, &error))?;
    file.write_all(text.as_bytes()).map_err(|error| Failure::io("cannot write", path, &error))
}

fn one_image(reader: &Reader, n: u64) -> Result<(Option<&'static str>, Statistics), Failure> {
    let summary = reader.summary();
    if n >= summary.images {
        let why = format!("it has {} images, counted from 0", summary.images);
        return Err(Failure::new(
            Exit::Usage,
            format!("there is no image {n} in {}", summary.path.display()),
            why,
            "give a lower number",
        ));
    }
    let bytes = reader.read_image(n, &decode)?;
    let status = reader.column("status").and_then(|c| c.get(n as usize).copied());
    let name = status.and_then(|s| ImageStatus::NAMES.get(s as usize).copied());
    let raw_words = summary.spec.as_ref().is_some_and(FileSpec::has_only_missing);
    Ok((name, Statistics::of(&bytes, summary.pixel, raw_words)))
}

fn size(s: &Summary) -> String {
    let names = if s.image_shape.len() == 2 { " (rows x columns)" } else { "" };
    let pieces = if s.pieces == 1 { String::new() } else { format!(", {} chunks each", s.pieces) };
    let shape = s.image_shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
    format!("{shape} pixels{names}{pieces}")
}

/// Rows that only the file of a series has.
fn series(spec: &FileSpec) -> Vec<(&'static str, String)> {
    let Some(series) = &spec.series else { return Vec::new() };
    let id = if series.unique_id.is_empty() { String::new() } else { format!(" ({})", series.unique_id) };
    let mut rows = vec![("series", format!("{}{id}", series.series))];
    rows.extend(series.channels.iter().map(|channel| {
        let threshold = channel.threshold_energy_ev.map_or(String::new(), |ev| format!(": threshold {ev} eV"));
        ("channel", format!("{}{threshold}", channel.name))
    }));
    rows
}

fn to_text(s: &Summary) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("file", s.path.display().to_string()),
        ("state", s.ended.as_ref().map_or(s.state.clone(), |e| format!("{}; the run ended: {e}", s.state))),
        ("images", format!("{} of {}, {}", s.images, size(s), s.pixel)),
        ("compression", compression(s.compression)),
    ];
    let by_status: Vec<String> =
        s.image_counts().into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
    rows.push(("status", if by_status.is_empty() { "not recorded".into() } else { by_status.join(", ") }));
    if let Some(energy) = s.energy_kev {
        rows.push(("energy", format!("{energy} keV")));
    }
    if let Some(distance) = s.detector_distance_m {
        rows.push(("distance", format!("{} mm", distance * 1e3)));
    }
    if let Some((x, y)) = s.beam_center_px {
        rows.push(("beam", format!("column {x}, row {y}")));
    }
    if let Some(size) = s.pixel_size_m {
        rows.push(("pixel", format!("{} um", (size * 1e9).round() / 1e3)));
    }
    rows.extend(s.losses.iter().map(|how| ("lossy", format!("a copy whose pixels were changed: {how}"))));
    rows.push(("calibration", if s.calibration_hash.is_empty() { "none".into() } else { s.calibration_hash.clone() }));
    if let Some(spec) = &s.spec {
        rows.push(("software", spec.software.clone()));
        rows.extend(numbers(spec).into_iter().map(|line| ("numbers", line)));
        rows.extend(spec.conversion.iter().map(|(name, value)| ("conversion", format!("{name}: {value}"))));
        rows.extend(series(spec));
        rows.extend(geometry(spec).into_iter().map(|line| ("tile", line)));
    }
    rows.extend(s.pedestals.iter().map(|p| {
        let after = if p.images.is_empty() { String::new() } else { format!(", after images {}", numbers_text(&p.images)) };
        ("pedestals", format!("{}: {} snapshots{after}", p.path.display(), p.images.len()))
    }));
    rows.extend(s.data_files.iter().map(|f| {
        let unreadable = if f.path.exists() { "cannot be read" } else { "missing" };
        let images = f.images.map_or(unreadable.into(), |n| format!("{n} images from {}", f.first_image));
        ("data file", format!("{}: {images}", f.path.display()))
    }));
    rows.extend(pixels(&s.path).map(|text| ("pixels", text)));
    rows.extend(s.ledger.iter().map(|(name, n)| ("ledger", format!("{name:<26}{:>16}", text::count(*n)))));
    rows.iter().map(|(name, value)| format!("{name:<12} {value}")).collect::<Vec<_>>().join("\n")
}

/// Where the pixels of a split file are; `None` for another one.
fn pixels(path: &Path) -> Option<String> {
    let name = SplitName::of(path)?;
    let pieces = name.pieces();
    Some(match &pieces[..] {
        [] => format!("not here: {}", name.raw(1).display()),
        [one] => one.display().to_string(),
        [first, .., last] => format!("{} to {}, {} bytes each but the last", first.display(), last.display(), name.piece_bytes()),
    })
}

/// Unit, step, offset and valid range of the stored numbers.
fn numbers(spec: &FileSpec) -> Vec<String> {
    let scale = spec.scale.filter(|scale| !scale.is_trivial());
    let mut lines = vec![match scale {
        None => format!("in units of 1 {}", spec.unit),
        Some(s) if s.offset == 0.0 => format!("in steps of {} {}", s.step, spec.unit),
        Some(s) => format!("in steps of {} {}; {} steps were added to each pixel", s.step, spec.unit, s.offset),
    }];
    lines.extend(spec.underload.map(|n| format!("lowest {n}")));
    lines.extend(spec.saturation.map(|n| format!("highest {n}")));
    lines
}

/// A list of numbers, the middle of a long one left out.
fn numbers_text(list: &[u64]) -> String {
    let text = |part: &[u64]| part.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match list {
        [first @ .., last] if list.len() > 8 => format!("{}, ... {last}", text(&first[..6])),
        _ => text(list),
    }
}

fn geometry(spec: &FileSpec) -> Vec<String> {
    let line = |(n, t): (usize, &konkordia_sinks::hdf5::TileInfo)| {
        let flip = if t.flip_rows { ", rows flipped" } else { "" };
        let turn = if t.rotate_deg == 0 { String::new() } else { format!(", turned by {} degrees", t.rotate_deg) };
        format!("{n}: {} x {} pixels at row {}, column {}{flip}{turn}", t.rows, t.columns, t.row, t.column)
    };
    spec.tiles.iter().enumerate().map(line).collect()
}

fn to_json(s: &Summary) -> Value {
    let counters = |list: &[(String, u64)]| list.iter().map(|(n, v)| (n.clone(), json!(v))).collect::<Map<_, _>>();
    let by_status: Map<String, Value> =
        ImageStatus::NAMES.iter().zip(s.images_by_status).map(|(n, v)| ((*n).to_string(), json!(v))).collect();
    let files: Vec<Value> = s
        .data_files
        .iter()
        .map(|f| json!({ "path": f.path, "number": f.number, "first_image": f.first_image, "images": f.images }))
        .collect();
    let spec = s.spec.as_ref().map(|spec| {
        let tile = |t: &konkordia_sinks::hdf5::TileInfo| {
            json!({ "rows": t.rows, "columns": t.columns, "row": t.row, "column": t.column, "flip_rows": t.flip_rows, "rotate_deg": t.rotate_deg, "packets": t.packets })
        };
        json!({
            "unit": spec.unit, "step": spec.scale.map_or(1.0, |s| s.step), "offset": spec.scale.map_or(0.0, |s| s.offset),
            "underload": spec.underload, "saturation": spec.saturation, "extra_columns": spec.extra_columns.iter().map(|column| &column.name).collect::<Vec<_>>(), "raw_words": spec.raw_words, "images_per_file": spec.images_per_file, "software": spec.software,
            "conversion": spec.conversion.iter().cloned().map(|(n, v)| (n, json!(v))).collect::<Map<_, _>>(),
            "tiles": spec.tiles.iter().map(tile).collect::<Vec<_>>(), "configuration": spec.configuration,
        })
    });
    let series = s.spec.as_ref().and_then(|spec| spec.series.as_ref()).map(|series| {
        let channel = |channel: &konkordia_sinks::hdf5::ChannelInfo| json!({ "name": channel.name, "threshold_energy_ev": channel.threshold_energy_ev });
        json!({
            "series": series.series, "unique_id": series.unique_id, "channels": series.channels.iter().map(channel).collect::<Vec<_>>(),
            "fields": series.fields,
        })
    });
    json!({
        "file": s.path, "series": series, "state": s.state, "ended": s.ended, "images": s.images, "rows": s.rows, "columns": s.columns,
        "shape": s.image_shape, "chunks_per_image": s.pieces, "dtype": s.pixel.name(), "compression": s.compression.name(), "compression_level": s.compression.level(),
        "energy_kev": s.energy_kev, "detector_distance_m": s.detector_distance_m, "beam_center_px": s.beam_center_px,
        "pixel_size_m": s.pixel_size_m, "calibration_hash": s.calibration_hash, "losses": s.losses, "images_by_status": by_status, "images_file_missing": s.images_file_missing, "images_not_taken": s.total("images_not_taken"),
        "images_not_received": s.total("images_not_received"),
        "ledger": counters(&s.ledger), "data_files": files, "run": spec,
        "pedestals": s.pedestals.as_ref().map(|p| json!({ "path": p.path, "after_images": p.images })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_sinks::hdf5::Scale;

    #[test]
    fn numbers_are_explained() {
        let spec = FileSpec::default();
        assert_eq!(numbers(&spec), ["in units of 1 photon"]);
        let scale = Some(Scale { step: 0.125, offset: 0.0 });
        let spec = FileSpec { scale, underload: Some(0.0), unit: "keV".into(), ..spec };
        assert_eq!(numbers(&spec), ["in steps of 0.125 keV", "lowest 0"]);
        let scale = Some(Scale { step: 1.0, offset: 40.0 });
        let spec = FileSpec { scale, saturation: Some(12000.0), ..FileSpec::default() };
        assert_eq!(numbers(&spec), ["in steps of 1 photon; 40 steps were added to each pixel", "highest 12000"]);
        assert_eq!(numbers_text(&[1, 2]), "1, 2");
        assert_eq!(numbers_text(&(0..20).collect::<Vec<_>>()), "0, 1, 2, 3, 4, 5, ... 19");
    }
}
