//! Runs of known content, for the tests of this crate and for `examples/write_sample.rs`.
// Each user needs only some of it.
#![allow(dead_code)]

pub mod damage;
pub mod series;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use konkordia_core::frame_header::ColumnType;
use konkordia_core::pixel::PixelType;
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{
    Compression, Error, ExtraColumn, FileSpec, ImageRecord, ImageStatus, LedgerRecord, Metadata, Overwrite,
};
use konkordia_sinks::hdf5::{StreamRecord, TileInfo, Writer};

/// The pixel value of every sample run, except where a packet is missing: small, and different in each image, row and
/// column.
pub fn value(image: u64, row: usize, column: usize) -> i64 {
    ((image as usize * 7 + row * 3 + column) % 1000) as i64
}

/// One LZ4 block that holds its data as literals.
pub fn literals(data: &[u8], out: &mut Vec<u8>) {
    let mut block = vec![(data.len().min(15) << 4) as u8];
    if data.len() >= 15 {
        let mut rest = data.len() - 15;
        while rest >= 255 {
            block.push(255);
            rest -= 255;
        }
        block.push(rest as u8);
    }
    block.extend(data);
    out.extend((block.len() as u32).to_be_bytes());
    out.extend(block);
}

/// A bslz4 chunk, written slowly and plainly: the layout of docs/formats.md, blocks of 8192 bytes.
pub fn bslz4(pixels: &[u8], element: usize) -> Vec<u8> {
    let mut out = (pixels.len() as u64).to_be_bytes().to_vec();
    out.extend(8192u32.to_be_bytes());
    let whole = pixels.len() / (8 * element) * (8 * element);
    for block in pixels[..whole].chunks(8192) {
        let n = block.len() / element;
        let mut planes = vec![0u8; block.len()];
        for (i, pixel) in block.chunks(element).enumerate() {
            for (b, byte) in pixel.iter().enumerate() {
                for bit in 0..8 {
                    planes[(8 * b + bit) * (n / 8) + i / 8] |= (byte >> bit & 1) << (i % 8);
                }
            }
        }
        literals(&planes, &mut out);
    }
    out.extend(&pixels[whole..]);
    out
}

/// A run to write.
pub struct Sample {
    pub spec: FileSpec,
    /// Images written, lost ones among them.
    pub images: u64,
    /// Images never given to the writer.
    pub lost: Vec<u64>,
    /// Images whose packet 1 of tile 0 did not come.
    pub partial: Vec<u64>,
    /// Images that the run was to take.
    pub expected: u64,
}

pub fn sample(directory: &Path, prefix: &str, pixel: PixelType) -> Sample {
    let (rows, columns) = (64u32, 200u32);
    let tile = |row| TileInfo { rows: 32, columns: 200, row, column: 0, flip_rows: row > 0, rotate_deg: 0, packets: 8 };
    let mut mask = vec![0u32; (rows * columns) as usize];
    mask[5] = 1;
    mask[7] = 1 << 4;
    let metadata = Metadata {
        energy_kev: Some(12.4),
        detector_distance_m: Some(0.15),
        beam_center_x_px: Some(100.5),
        beam_center_y_px: Some(30.25),
        pixel_size_m: Some([75e-6; 2]),
        sensor_material: Some("Si".into()),
        sensor_thickness_m: Some(320e-6),
        frame_time_s: Some(0.001),
        count_time_s: Some(0.00084),
        bit_depth: Some(16),
        detector_description: Some("JUNGFRAU 0.5M (sample)".into()),
        detector_serial: Some("JF-test".into()),
        source_name: Some("Konkordia test source".into()),
        instrument_name: Some("test beamline".into()),
        sample_name: Some("lysozyme".into()),
        start_time: Some("2026-11-21T12:00:00Z".into()),
        end_time_estimated: Some("2026-11-21T12:00:10Z".into()),
        ..Metadata::default()
    };
    let spec = FileSpec {
        directory: directory.into(),
        prefix: prefix.into(),
        images_per_file: 4,
        overwrite: Overwrite::Replace,
        rows,
        columns,
        pixel,
        metadata,
        pixel_mask: mask,
        tiles: vec![tile(0), tile(32)],
        calibration_hash: "sha256:0123".into(),
        configuration: "[detector]\ntype = \"jungfrau\"\n".into(),
        conversion: vec![("rounding".into(), "half to even".into())],
        extra_columns: vec![
            ExtraColumn::count("bright_pixels"),
            ExtraColumn { name: "lowest".into(), kind: ColumnType::I64, length: 1 },
            ExtraColumn { name: "center".into(), kind: ColumnType::F64, length: 2 },
        ],
        ..FileSpec::default()
    };
    Sample { spec, images: 10, lost: vec![5], partial: vec![2, 9], expected: 10 }
}

/// Pixels of one image; in a partial image packet 1 of tile 0 (its rows 4 to 7) did not come.
pub fn pixels(spec: &FileSpec, image: u64, partial: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(spec.image_bytes());
    for row in 0..spec.rows as usize {
        for column in 0..spec.columns as usize {
            let gone = partial && (4..8).contains(&row);
            let number = || spec.pixel.le_bytes(value(image, row, column) as f64);
            out.extend(if gone { spec.pixel.missing_le_bytes() } else { number() });
        }
    }
    out
}

pub fn write_image(writer: &mut Writer, image: u64, partial: bool) -> Result<(), Error> {
    let raw = pixels(writer.spec(), image, partial);
    write_pixels(writer, image, partial, raw)
}

/// Numbers that a pixel of a type can hold and that readers interpret in different ways: all special values, both ends
/// of the valid range, the ends of the signed types. tests/peers/test_xds_plugins.py has the same rule.
pub fn edge_values(pixel: PixelType) -> Vec<f64> {
    let s = pixel.special();
    let numbers = [-70000.0, -5.0, -1.0, 0.0, 1.0, 5.0, 254.0, 32767.0, 32768.0, 40000.0, 65531.0, 70000.0, 2147480000.0];
    let special = [s.missing, s.masked, s.invalid, s.saturated, s.valid_min, s.valid_max];
    numbers.into_iter().filter(|v| (s.valid_min..=s.valid_max).contains(v)).chain(special).collect()
}

/// An image made of [`edge_values`], repeated; each image starts with the next one.
pub fn edge_pixels(spec: &FileSpec, image: u64) -> Vec<u8> {
    let values = edge_values(spec.pixel);
    let of = |at: usize| spec.pixel.le_bytes(values[(at + image as usize) % values.len()]);
    (0..spec.pixels()).flat_map(of).collect()
}

pub fn write_pixels(writer: &mut Writer, image: u64, partial: bool, raw: Vec<u8>) -> Result<(), Error> {
    let spec = writer.spec();
    let chunk = if spec.compression == Compression::BSLZ4 { bslz4(&raw, spec.pixel.bytes()) } else { raw };
    let (head, tail) = chunk.split_at(chunk.len() / 2);
    let all: u64 = 0xFF;
    let (bitmap, received) = if partial { ([all & !2, all], [7, 8]) } else { ([all, all], [8, 8]) };
    writer.write(&ImageRecord {
        index: image,
        frame_number: 1000 + image,
        status: if partial { ImageStatus::Partial } else { ImageStatus::Complete },
        parts: &[head, tail],
        packets_received: &received,
        packet_bitmap: &bitmap,
        frame_values: &[10_000 * image, 5 * image, 8400, 1],
        extra: &[image * image, (-1 - image as i64).cast_unsigned(), 0.5f64.to_bits(), (image as f64 / 4.0).to_bits()],
    })
}

pub fn ledger(sample: &Sample) -> LedgerRecord {
    let (partial, lost) = (sample.partial.len() as u64, sample.expected - sample.images + sample.lost.len() as u64);
    let complete = sample.expected - partial - lost;
    let received = 16 * complete + 15 * partial;
    let named = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, v)| ((*name).to_owned(), *v)).collect::<Vec<_>>();
    LedgerRecord {
        totals: named(&[
            ("packets_received", received + 3),
            ("packets_placed", received),
            ("packets_duplicate", 3),
            ("images_expected", sample.expected),
            ("images_complete", complete),
            ("images_partial", partial),
            ("images_lost", lost),
        ]),
        streams: (0..2)
            .map(|i| StreamRecord {
                name: format!("udp://127.0.0.1:{}", 50010 + i),
                counters: named(&[("packets_received", received / 2 + 3 * i), ("packets_placed", received / 2)]),
            })
            .collect(),
        latency: Vec::new(),
        balances: vec![
            "packets_received = packets_placed + packets_duplicate".into(),
            "images_expected = images_complete + images_partial + images_lost".into(),
        ],
        ended: "complete".into(),
        end_time: Some("2026-11-21T12:00:09Z".into()),
        images_expected: sample.expected,
    }
}

/// Writes the run up to its end; the caller finishes it.
pub fn write_images(writer: &mut Writer, sample: &Sample) -> Result<(), Error> {
    (0..sample.images)
        .filter(|image| !sample.lost.contains(image))
        .try_for_each(|image| write_image(writer, image, sample.partial.contains(&image)))
}

/// Writes until it is killed; prints "<image> <milliseconds since start>" after each image.
pub fn endless(directory: &Path, prefix: &str) -> Result<(), Error> {
    let start = Instant::now();
    let mut spec = sample(directory, prefix, PixelType::Int16).spec;
    spec.images_per_file = 50;
    let mut writer = Writer::create(spec)?;
    writer.set_to_disk(ToDisk::Beside(Some(std::time::Duration::from_millis(100))))?;
    let mut out = std::io::stdout().lock();
    for image in (0..).filter(|image| image % 23 != 7) {
        write_image(&mut writer, image, image % 5 == 2)?;
        writer.tick(start.elapsed().as_nanos() as u64)?;
        let line = writeln!(out, "{image} {}", start.elapsed().as_millis()).and_then(|()| out.flush());
        if line.is_err() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
    Ok(())
}

/// The inverse of [`bslz4`] for any LZ4 block, slow and plain; also checks that the chunk ends where it should.
pub fn decode(compression: Compression, chunk: &[u8], element: usize, out: &mut [u8]) -> Result<(), String> {
    assert_eq!(compression, Compression::BSLZ4, "these tests write no other");
    let take = |at: usize, n: usize| chunk.get(at..at + n).ok_or("the chunk ends early");
    let size = take(0, 8)?.iter().fold(0, |v, &b| v << 8 | u64::from(b)) as usize;
    let block = take(8, 4)?.iter().fold(0, |v, &b| v << 8 | u64::from(b)) as usize;
    if size != out.len() || block == 0 || !block.is_multiple_of(8 * element) {
        return Err(format!("{size} bytes in blocks of {block}"));
    }
    let whole = size / (8 * element) * (8 * element);
    let mut at = 12;
    for part in out[..whole].chunks_mut(block) {
        let n = take(at, 4)?.iter().fold(0, |v, &b| v << 8 | usize::from(b));
        let planes = lz4(take(at + 4, n)?, part.len())?;
        at += 4 + n;
        let elements = part.len() / element;
        part.fill(0);
        for (p, plane) in planes.chunks(elements / 8).enumerate() {
            for i in 0..elements {
                part[i * element + p / 8] |= (plane[i / 8] >> (i % 8) & 1) << (p % 8);
            }
        }
    }
    out[whole..].copy_from_slice(take(at, size - whole)?);
    if at + size - whole == chunk.len() { Ok(()) } else { Err("bytes after the end".into()) }
}

fn lz4(data: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(size);
    let mut bytes = data.iter().copied();
    let length = |bytes: &mut dyn Iterator<Item = u8>, nibble: u8| {
        let mut total = usize::from(nibble);
        let mut last = if nibble == 15 { 255 } else { 0 };
        while last == 255 {
            last = bytes.next().unwrap_or(0);
            total += usize::from(last);
        }
        total
    };
    while let Some(token) = bytes.next() {
        let literals = length(&mut bytes, token >> 4);
        out.extend(bytes.by_ref().take(literals));
        let Some(low) = bytes.next() else { break };
        let distance = usize::from(low) | usize::from(bytes.next().unwrap_or(0)) << 8;
        let run = length(&mut bytes, token & 15) + 4;
        for _ in 0..run {
            let from = out.len().checked_sub(distance).filter(|_| distance > 0).ok_or("a match before the start")?;
            out.push(out[from]);
        }
    }
    if out.len() == size { Ok(out) } else { Err(format!("a block of {} bytes, {size} expected", out.len())) }
}

/// A directory of its own for one test, removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("konkordia-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
