//! Writes small runs of known content, for the reader tests (tests/readers) and the crash tests.
//!
//! - `write_sample samples DIR`: one run per pixel type, layout and kind of fault
//! - `write_sample endless DIR PREFIX`: a run without end; prints "<image> <milliseconds since start>" after each image

use std::path::Path;

use konkordia_core::array::{Element, Packing};
use konkordia_core::experiment::{Axis, Experiment};
use konkordia_core::pixel::PixelType;
use konkordia_core::ports::Sink;
use konkordia_core::series::{ChannelStart, SeriesStart};
use konkordia_sinks::hdf5::{AppendSpec, Compression, Error, FileSink, Layout, Metadata, Scale, TileInfo, Writer, repair};

#[path = "../tests/common/mod.rs"]
mod common;
use common::series::{Kind, file_sink, images, start, write};
use common::{Sample, edge_pixels, endless, ledger, sample, write_images, write_pixels};

fn write_run(sample: &Sample) -> Result<(), Error> {
    let mut writer = Writer::create(sample.spec.clone())?;
    write_images(&mut writer, sample)?;
    if sample.spec.pedestal_snapshots {
        for image in [3, 7] {
            let plane: Vec<f32> = (0..sample.spec.pixels()).map(|i| 2500.0 + image as f32 + (i % 64) as f32 / 64.0).collect();
            writer.write_pedestals(image, &[&plane])?;
        }
    }
    let report = writer.finish(&ledger(sample))?;
    println!("{}", report.master.display());
    Ok(())
}

fn samples(directory: &Path) -> Result<(), Error> {
    for pixel in PixelType::CONVERTED {
        write_run(&sample(directory, pixel.name(), pixel))?;
    }
    let base = |prefix: &str| sample(directory, prefix, PixelType::Uint16);
    let with = |prefix: &str, change: fn(&mut Sample)| {
        let mut sample = base(prefix);
        change(&mut sample);
        write_run(&sample)
    };
    with("virtual", |s| s.spec.layout = Layout::Virtual)?;
    with("links", |s| s.spec.layout = Layout::Links)?;
    with("plain", |s| s.spec.compression = Compression::None)?;
    with("raw", |s| (s.spec.raw_words, s.spec.unit) = (true, "detector word".into()))?;
    with("short", |s| s.expected = 15)?;
    // So many links that the group leaves its compact form.
    with("many", |s| (s.spec.images_per_file, s.images, s.expected, s.lost, s.partial) = (1, 24, 24, vec![], vec![3]))?;
    with("scaled", |s| {
        s.spec.pixel = PixelType::Int16;
        s.spec.scale = Some(Scale { step: 0.125, offset: 40.0 });
        (s.spec.underload, s.spec.saturation, s.spec.pedestal_snapshots) = (Some(0.0), Some(12_000.0), true);
    })?;
    with("whole", |s| (s.lost, s.partial) = (vec![], vec![]))?;
    with("bare", |s| s.spec.metadata = Metadata::default())?;
    with("undistanced", |s| s.spec.metadata.detector_distance_m = None)?;
    turned(directory)?;
    // A run that ends without being finished, as after a kill, and is then repaired.
    let given_up = sample(directory, "repaired", PixelType::Int16);
    let mut writer = Writer::create(given_up.spec.clone())?;
    write_images(&mut writer, &given_up)?;
    drop(writer);
    repair(&directory.join("repaired_master.h5"))?;
    PixelType::CONVERTED.into_iter().try_for_each(|pixel| edges(directory, pixel))?;
    (0..12).try_for_each(|length| named(directory, length))?;
    with("empty", |s| (s.images, s.expected, s.lost, s.partial) = (0, 0, vec![], vec![]))?;
    with("odd", |s| {
        (s.spec.rows, s.spec.columns) = (67, 131);
        s.spec.pixel_mask = vec![0; 67 * 131];
        s.spec.tiles.truncate(1);
        s.spec.tiles[0] = TileInfo { rows: 67, columns: 131, row: 0, column: 0, flip_rows: false, rotate_deg: 0, packets: 16 };
        s.spec.tiles.push(s.spec.tiles[0].clone());
    })
}

/// Runs in which an axis turns: a sweep in omega, one in phi on a kappa goniometer, and a detector of two modules that
/// is swung and tilted.
fn turned(directory: &Path) -> Result<(), Error> {
    let with = |prefix: &str, change: &dyn Fn(&mut Sample, &mut Experiment)| {
        let (mut sample, mut experiment) = (sample(directory, prefix, PixelType::Int32), Experiment::default());
        change(&mut sample, &mut experiment);
        sample.spec.metadata.experiment = experiment;
        write_run(&sample)
    };
    with("sweep", &|sample, e| {
        e.goniometer.omega = Axis::turning(90.0, 0.1);
        e.total_flux_ph_per_s = Some(1.5e12);
        e.attenuator_transmission = Some(0.25);
        e.polarization_fraction = Some(0.99);
        e.sample_temperature_k = Some(100.0);
        e.unit_cell = Some([79.1, 79.1, 38.2, 90.0, 90.0, 90.0]);
        e.space_group = Some("P 43 21 2".into());
        (e.flatfield_applied, e.countrate_correction_applied) = (Some(true), Some(false));
        e.gain_setting = Some("auto".into());
        e.threshold_energy_ev = Some(6400.0);
        sample.expected = 15;
    })?;
    with("kappa", &|_, e| {
        e.goniometer.omega = Axis::turning(30.0, 0.0);
        e.goniometer.kappa = Axis { vector: Some([0.0, 3.0, -4.0]), ..Axis::turning(45.0, 0.0) };
        e.goniometer.phi = Axis::turning(-10.0, 0.5);
    })?;
    with("swung", &|sample, e| {
        sample.spec.tiles_per_module = 1;
        e.goniometer.omega = Axis::turning(5.0, -0.25);
        e.goniometer.two_theta.start_deg = Some(20.0);
        (e.tilt_fast_deg, e.tilt_slow_deg) = (Some(1.0), Some(-2.0));
    })
}

/// A run with texts of this length: lengths decide how the headers of objects are laid out.
fn named(directory: &Path, length: usize) -> Result<(), Error> {
    let mut sample = sample(directory, &format!("named_{length}"), PixelType::Uint32);
    let text = "x".repeat(length);
    sample.spec.software += &text;
    sample.spec.unit += &text;
    (sample.spec.metadata.sample_name, sample.spec.metadata.detector_serial) = (Some(text.clone()), Some(text));
    sample.spec.scale = length.is_multiple_of(3).then_some(Scale { step: 0.125, offset: 40.0 });
    sample.spec.images_per_file = 2 + length as u32;
    write_run(&sample)
}

/// A run of one pixel type with every number that readers interpret in different ways, and with every bit of the mask.
fn edges(directory: &Path, pixel: PixelType) -> Result<(), Error> {
    let mut sample = sample(directory, &format!("edges_{}", pixel.name()), pixel);
    (sample.images, sample.expected, sample.lost, sample.partial) = (3, 3, vec![], vec![]);
    sample.spec.pixel_mask.fill(0);
    (0..32).for_each(|bit| sample.spec.pixel_mask[200 + bit] = 1 << bit);
    let mut writer = Writer::create(sample.spec.clone())?;
    for image in 0..3 {
        let pixels = edge_pixels(&sample.spec, image);
        write_pixels(&mut writer, image, false, pixels)?;
    }
    writer.finish(&ledger(&sample)).map(drop)
}

/// Series of every kind of shape and packing, in both layouts; tests/readers/content.py has the same table.
fn series(directory: &Path) -> Result<(), Error> {
    let (none, bslz4, lz4) = (Packing::None, Packing::BitshuffleLz4, Packing::Lz4Block);
    type Row<'a> = (&'a str, Element, &'a [u64], u64, usize, Packing);
    let kinds: [Row<'_>; 7] = [
        ("strip", Element::Float64, &[300], 1, 1, bslz4),
        ("rows", Element::Uint16, &[24, 33], 1, 24, bslz4),
        ("block", Element::Uint32, &[24, 33], 1, 1, lz4),
        ("cube", Element::Int64, &[3, 8, 17], 1, 3, none),
        ("deep", Element::Int8, &[2, 3, 4, 8], 1, 2, bslz4),
        ("channels", Element::Uint8, &[12, 16], 3, 1, bslz4),
        ("cut", Element::Uint16, &[12, 16], 3, 4, none),
    ];
    for (name, element, shape, channels, pieces, packing) in kinds {
        let kind = Kind { element, shape: shape.to_vec(), channels, pieces, packing };
        let channel = |n: u64| ChannelStart {
            name: format!("threshold_{n}"),
            threshold_energy_ev: Some(4000.0 * n as f64),
            ..ChannelStart::default()
        };
        let fields = serde_json::json!({ "exptime": 0.5, "nest": { "down": [1, 2] }, "names": ["a", "b"], "on": true });
        let begin = SeriesStart {
            channels: (1..=channels).filter(|_| channels > 1).map(channel).collect(),
            metadata: fields.as_object().cloned().unwrap_or_default(),
            facts: Metadata { energy_kev: Some(12.4), start_time: Some("2026-11-21T12:00:00Z".into()), ..Metadata::default() },
            ..start()
        };
        write(&mut file_sink(directory, &format!("series_{name}"), 4), begin.clone(), &images(&kind));
        let spec = AppendSpec {
            path: directory.join(format!("append_{name}.h5")),
            dataset: "/entry/instrument/zyla/data".into(),
            to_disk: konkordia_sinks::durable::ToDisk::Never,
        };
        write(&mut FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into())))), begin.clone(), &images(&kind));
        let mut given_up = file_sink(directory, &format!("series_{name}_repaired"), 4);
        given_up.start(&begin.into()).expect("a series begins");
        images(&kind).iter().for_each(|image| given_up.image(image).expect("an image is written"));
        drop(given_up);
        repair(&directory.join(format!("series_{name}_repaired_master.h5")))?;
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["samples", directory] => {
            std::fs::create_dir_all(directory).expect("the directory can be created");
            samples(Path::new(directory)).and_then(|()| series(Path::new(directory)))
        }
        ["endless", directory, prefix] => endless(Path::new(directory), prefix),
        _ => {
            eprintln!("usage: write_sample samples DIR | write_sample endless DIR PREFIX");
            std::process::exit(2);
        }
    };
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(6);
    }
}
