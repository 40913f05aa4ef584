//! What `inspect` and `check` say of files that other programs wrote.

use super::args::InspectArgs;
use super::compression::compression;
use super::looked::Looked;
use super::picture::draw;
use super::statistics::Statistics;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_kernels::codec::decode;
use konkordia_sinks::hdf5::Finding;
use konkordia_sinks::hdf5::others::{OthersFile, Placed};
use serde_json::{Value, json};
use std::path::Path;

const WRITER: &str = "another program: no ledger, no checksums";

/// `konkordia inspect FILE`
pub fn inspect(args: &InspectArgs) -> Result<Exit, Failure> {
    if args.geom.is_some() {
        let what = format!("there is no geometry for CrystFEL of {}", args.file.display());
        let fix = "docs/analysis.md says how CrystFEL takes the spots of `konkordia analyse --output`";
        return Err(Failure::new(Exit::Usage, what, "only files of Konkordia hold the spots beside the images", fix));
    }
    let file = OthersFile::open(&args.file)?;
    let shown = args.image.or(args.png.as_ref().map(|_| 0));
    let image = shown.map(|n| one_image(&file, n)).transpose()?;
    let statistics = image.as_ref().and_then(|image| image.statistics);
    if let (Some(path), Some(image)) = (&args.png, &image) {
        draw(path, image.dtype, image.columns, &image.pixels)?;
    }
    if args.json {
        let mut value = to_json(&args.file, &file);
        if let (Some(n), Some(statistics)) = (args.image, statistics) {
            value["image"] = statistics.to_json();
            value["image"]["image"] = json!(n);
        }
        console::json(&value, false);
    } else {
        console::to_stdout(&to_text(&args.file, &file));
        if let (Some(n), Some(statistics)) = (args.image, statistics) {
            console::to_stdout(&format!("image {n:<6} {}", statistics.to_text()));
        }
    }
    Ok(Exit::Complete)
}

/// For `konkordia check FILE`.
pub fn check(path: &Path, structure: bool) -> Result<(Vec<Finding>, Looked), Failure> {
    let file = OthersFile::open(path)?;
    let (findings, not_there) = file.findings((!structure).then_some(&decode));
    Ok((findings, Looked { images: Some(file.images()), is_complete: not_there == 0, by_status: None }))
}

struct Image {
    statistics: Option<Statistics>,
    dtype: Option<PixelType>,
    columns: usize,
    pixels: Vec<u8>,
}

fn one_image(file: &OthersFile, n: u64) -> Result<Image, Failure> {
    let (placed, pixels) = file.image(n, &decode)?;
    let pixels = pixels.ok_or_else(|| {
        let what = format!("image {n} of {} was never written", placed.path.display());
        Failure::new(Exit::Incomplete, what, "its data set has no chunk for it", "ask for another image")
    })?;
    let (dtype, columns) = (placed.layout.dtype, placed.layout.columns);
    let statistics = dtype.map(|dtype| Statistics::within(&pixels, dtype, file.metadata().valid_range(dtype)));
    Ok(Image { statistics, dtype, columns, pixels })
}

fn dtype(placed: &Placed) -> String {
    placed.layout.dtype.map_or(format!("{} bytes a pixel", placed.layout.element_bytes), |dtype| dtype.to_string())
}

fn to_text(path: &Path, file: &OthersFile) -> String {
    let mut rows = vec![("file", path.display().to_string()), ("written by", WRITER.into())];
    rows.push(("images", file.images().to_string()));
    rows.extend(file.losses().iter().map(|how| ("lossy", format!("a copy whose pixels were changed: {how}"))));
    let metadata = file.metadata();
    rows.extend(metadata.energy_kev.map(|energy| ("energy", format!("{energy:.4} keV"))));
    rows.extend(metadata.detector_distance_m.map(|distance| ("distance", format!("{} mm", distance * 1e3))));
    rows.extend(metadata.beam_center_px.map(|(x, y)| ("beam", format!("column {x}, row {y}"))));
    rows.extend(metadata.pixel_size_m.map(|size| ("pixel", format!("{} um", (size * 1e9).round() / 1e3))));
    rows.extend(file.stacks().iter().map(|placed| {
        let from = placed.first_image.map_or(", of another shape than the first".into(), |n| format!(", from image {n}"));
        let l = &placed.layout;
        let text = format!(
            "{} {}: {} images of {} x {} pixels (rows x columns), {}, {}{from}",
            placed.path.display(),
            l.name,
            l.images,
            l.rows,
            l.columns,
            dtype(placed),
            compression(l.compression)
        );
        ("stack", text)
    }));
    rows.extend(file.unreadable().map(|(path, why)| ("data file", format!("{}: {why}", path.display()))));
    rows.iter().map(|(name, value)| format!("{name:<12} {value}")).collect::<Vec<_>>().join("\n")
}

fn to_json(path: &Path, file: &OthersFile) -> Value {
    let stack = |placed: &Placed| {
        let l = &placed.layout;
        json!({
            "file": placed.path, "name": l.name, "images": l.images, "rows": l.rows, "columns": l.columns, "dtype": l.dtype.map(PixelType::name),
            "compression": l.compression.name(), "compression_level": l.compression.level(), "first_image": placed.first_image,
        })
    };
    let metadata = file.metadata();
    json!({
        "file": path, "written_by": "another program", "images": file.images(), "stacks": file.stacks().iter().map(stack).collect::<Vec<_>>(),
        "unreadable_files": file.unreadable().map(|(path, why)| json!({ "path": path, "why": why })).collect::<Vec<_>>(),
        "energy_kev": metadata.energy_kev, "detector_distance_m": metadata.detector_distance_m, "beam_center_px": metadata.beam_center_px,
        "pixel_size_m": metadata.pixel_size_m, "saturation_value": metadata.saturation_value, "underload_value": metadata.underload_value,
        "images_announced": metadata.images_announced, "losses": file.losses(),
    })
}
