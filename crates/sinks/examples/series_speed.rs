//! Times the file sink of series: `series_speed DIR [IMAGES_PER_FILE [ROUNDS]]`. Writes images of 20 KB, 200 KB, 2 MB
//! and 20 MB (uint16, uncompressed) through [`FileSink`] and, in turn, the same bytes with plain `write` into one
//! file. Prints microseconds per image. The files are removed.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::{ImageLedger, ImageStatus};
use konkordia_core::ports::Sink;
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart};
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{AppendSpec, FileSink, FileSpec, Overwrite, SeriesFileSpec};

/// Rows and columns, images.
const SIZES: [(u64, u64, u64); 4] = [(100, 100, 20_000), (250, 400, 3000), (1000, 1000, 300), (2500, 4000, 30)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = arguments.first() else {
        eprintln!("usage: series_speed DIR [IMAGES_PER_FILE [ROUNDS]]");
        std::process::exit(2);
    };
    let number = |i: usize, default: u32| arguments.get(i).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (per_file, rounds) = (number(1, 1000), number(2, 3));
    println!("us per image: plain write | images of the master layout, with begin and end | the same of the append layout");
    for (rows, columns, images) in SIZES {
        let pixels: Vec<u8> = (0..2 * rows * columns).map(|i| (i * i % 251) as u8).collect();
        let make = |number: u64| {
            let array = Array {
                shape: Shape::new(&[rows, columns]).expect("a shape"),
                element: Element::Uint16,
                packing: Packing::None,
                pieces: vec![Bytes::from(pixels.clone())],
            };
            let channels = vec![Channel { name: "".into(), array }];
            Arc::new(CommittedImage { status: ImageStatus::Complete, channels, ..CommittedImage::lost(number) })
        };
        let few: Vec<Arc<CommittedImage>> = (0..4).map(make).collect();
        for _ in 0..rounds {
            let plain = plain(&Path::new(directory).join("plain"), &pixels, images);
            let file = FileSpec {
                directory: directory.into(),
                prefix: "speed".into(),
                images_per_file: per_file,
                overwrite: Overwrite::Replace,
                ..FileSpec::default()
            };
            let spec = SeriesFileSpec { file, to_disk: ToDisk::Never, ..SeriesFileSpec::default() };
            let file = series(&mut FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into())))), &few, images);
            clear(Path::new(directory));
            let path = Path::new(directory).join("append.h5");
            let spec = AppendSpec { path: path.clone(), dataset: "/entry/d/data".into(), to_disk: ToDisk::Never };
            let append = series(&mut FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into())))), &few, images);
            let _ = std::fs::remove_file(path);
            println!(
                "{:>9} bytes: {plain:8.1} | {:8.1} {:8.1} | {:8.1} {:8.1}",
                pixels.len(),
                file[0],
                file[1],
                append[0],
                append[1]
            );
        }
    }
}

/// Old files are removed outside the measured times, because freeing much space takes long.
fn clear(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("speed_") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn plain(path: &Path, pixels: &[u8], images: u64) -> f64 {
    let mut file = std::fs::File::create(path).expect("the folder can be written to");
    let begin = Instant::now();
    (0..images).for_each(|_| file.write_all(pixels).expect("there is space"));
    let time = begin.elapsed();
    drop(file);
    let _ = std::fs::remove_file(path);
    time.as_secs_f64() * 1e6 / images as f64
}

/// Times of the images alone, and with start and end of the series.
fn series(sink: &mut dyn Sink, few: &[Arc<CommittedImage>], images: u64) -> [f64; 2] {
    let whole = Instant::now();
    sink.start(&Arc::new(SeriesStart { store: true, ..SeriesStart::default() })).expect("the series begins");
    let mut in_images = 0.0;
    for number in 0..images {
        let image = Arc::new(CommittedImage { number, ..(*few[number as usize % few.len()]).clone() });
        let begin = Instant::now();
        sink.image(&image).expect("the image is written");
        sink.tick(whole.elapsed().as_nanos() as u64).expect("the file is flushed");
        in_images += begin.elapsed().as_secs_f64();
    }
    let account = ImageLedger { expected: images, complete: images, ..ImageLedger::default() };
    let ledger = SeriesLedger { images: account, ..SeriesLedger::default() };
    sink.end(&Arc::new(SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger })).expect("the series ends");
    [in_images, whole.elapsed().as_secs_f64()].map(|seconds| seconds * 1e6 / images as f64)
}
