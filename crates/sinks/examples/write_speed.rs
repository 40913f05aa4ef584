//! Times the writer alone: `write_speed DIR [CHUNK_BYTES [IMAGES [IMAGES_PER_FILE [NS_PER_IMAGE]]]]`. Writes one image
//! of 512 x 1024 `int16` after the other, each with a chunk of the given size. Prints the time per call in
//! microseconds. The files are removed.

use std::time::Instant;

use konkordia_sinks::hdf5::{FileSpec, ImageRecord, ImageStatus, LedgerRecord, TileInfo, Writer};

fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = arguments.first() else {
        eprintln!("usage: write_speed DIR [CHUNK_BYTES [IMAGES [IMAGES_PER_FILE [NS_PER_IMAGE]]]]");
        std::process::exit(2);
    };
    let number = |i: usize, default: usize| arguments.get(i).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (bytes, images, per_file) = (number(1, 300_000), number(2, 5000), number(3, 1000));
    // The clock given to the writer: the default gives one flush per 250 images, as at 600 images per second.
    let pace_ns = number(4, 1_600_000) as u64;
    let spec = FileSpec {
        directory: directory.into(),
        prefix: "speed".into(),
        images_per_file: per_file as u32,
        rows: 512,
        columns: 1024,
        pixel_mask: vec![0; 512 * 1024],
        tiles: vec![TileInfo { rows: 512, columns: 1024, row: 0, column: 0, flip_rows: false, rotate_deg: 0, packets: 128 }],
        ..FileSpec::default()
    };
    let mut chunk: Vec<u8> = (0..bytes).map(|i| (i * i % 251) as u8).collect();
    chunk[..8].copy_from_slice(&(spec.image_bytes() as u64).to_be_bytes());
    let start = Instant::now();
    let fail = |error: konkordia_sinks::hdf5::Error| -> ! {
        eprintln!("error: {error}");
        std::process::exit(6);
    };
    let mut writer = Writer::create(spec).unwrap_or_else(|error| fail(error));
    println!("create {:.0} us", start.elapsed().as_secs_f64() * 1e6);
    let (mut writes, mut ticks) = (Vec::new(), Vec::new());
    for index in 0..images as u64 {
        let record = ImageRecord {
            index,
            frame_number: index,
            status: ImageStatus::Complete,
            parts: &[&chunk],
            packets_received: &[128],
            packet_bitmap: &[u64::MAX, u64::MAX],
            frame_values: &[0; 4],
            extra: &[],
        };
        let before = Instant::now();
        writer.write(&record).unwrap_or_else(|error| fail(error));
        writes.push(before.elapsed().as_secs_f64() * 1e6);
        let before = Instant::now();
        writer.tick(index * pace_ns).unwrap_or_else(|error| fail(error));
        ticks.push(before.elapsed().as_secs_f64() * 1e6);
    }
    let before = Instant::now();
    let report = writer.finish(&LedgerRecord::default()).unwrap_or_else(|error| fail(error));
    println!("finish {:.0} us", before.elapsed().as_secs_f64() * 1e6);
    for (name, mut times) in [("write", writes), ("tick", ticks)] {
        let sum: f64 = times.iter().sum();
        times.sort_by(f64::total_cmp);
        let (median, high, most) = (percentile(&times, 0.5), percentile(&times, 0.99), percentile(&times, 1.0));
        println!("{name}: mean {:.1} us, median {median:.1}, 99 % {high:.1}, most {most:.0}", sum / times.len() as f64);
    }
    for file in report.data_files.iter().chain([&report.master]) {
        let _ = std::fs::remove_file(file);
    }
}
