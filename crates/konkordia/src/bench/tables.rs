//! `konkordia bench table2` and `table4`: bits per pixel against rounding, and writing rates of the codecs, beside the
//! figures of Leonarski et al. 2020 (their Tables II and IV, lysozyme on a JUNGFRAU 4M).

use super::args::BenchKernelsArgs;
use super::frames::{self, Frames};
use super::output::Output;
use super::packer::ImagePacker;
use super::rows::harness::{Row, measure};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_kernels::codec;
use konkordia_kernels::convert::{self, Constants};
use konkordia_kernels::{ElementSize, Isa};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Rounding in photons, and the paper's bits per pixel with bitshuffle and LZ4.
const ROUNDING: [(f64, &str, f64); 7] = [
    (0.125, "1/8", 5.0),
    (0.25, "1/4", 4.1),
    (0.5, "1/2", 3.1),
    (1.0, "1", 2.3),
    (2.0, "2", 1.5),
    (4.0, "4", 0.90),
    (8.0, "8", 0.39),
];
/// Codecs, and the paper's writing rate in Hz and bits per pixel.
const CODECS: [(Compression, f64, f64); 6] = [
    (Compression::None, 158.0, 16.0),
    (Compression::LZ4, 320.0, 6.8),
    (Compression::BSLZ4, 550.0, 2.3),
    (Compression::Zstd { level: 1 }, 324.0, 2.8),
    (Compression::BSZSTD, 351.0, 1.8),
    (Compression::Gzip { level: 1 }, 31.0, 2.4),
];
/// Modules of the image of Table IV.
const MODULES: usize = 8;
/// Images that the file of Table IV holds before it is written again from the start.
const IMAGES_IN_FILE: usize = 8;
/// Bytes of a strip.
const STRIP_BYTES: usize = 128 * 1024;

/// `konkordia bench table2`
pub fn rounding(args: &BenchKernelsArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "table2")?;
    frames::with_folder(|folder| {
        let frames = frames::load(&args.frames, folder)?;
        let lines: Vec<Line2> = ROUNDING.iter().map(|line| Line2::of(&frames, *line)).collect();
        let verified = lines.iter().all(|l| l.verified);
        let row = |l: &Line2| json!({ "rounding_photons": l.photons, "bslz4": l.bits[0], "bszstd": l.bits[1], "paper_bslz4": l.paper, "verified": l.verified });
        let report = report("bits_per_pixel", &frames, lines.iter().map(row).collect(), verified);
        let head = ["photons", "bslz4", "bszstd", "paper, bslz4", "output"].map(str::to_string).to_vec();
        let line = |l: &Line2| {
            let number = |value: f64| format!("{value:.2}");
            let output = if l.verified { "equal" } else { "WRONG" };
            vec![l.name.into(), number(l.bits[0]), number(l.bits[1]), number(l.paper), output.into()]
        };
        let table = text::table(&std::iter::once(head).chain(lines.iter().map(line)).collect::<Vec<_>>());
        let step = (lines[0].bits[0] - lines[3].bits[0]) / 3.0;
        let end = format!("{step:.2} bits per pixel for each bit of precision from 1 to 1/8 photon (paper: about 0.9)");
        output.print(report, &format!("bits per pixel, int16, against rounding; {}\n\n{table}\n\n{end}", of(&frames)));
        Ok(if verified { Exit::Complete } else { Exit::Bug })
    })
}

/// A line of Table II.
struct Line2 {
    photons: f64,
    name: &'static str,
    paper: f64,
    /// `bslz4` and `bszstd`.
    bits: [f64; 2],
    verified: bool,
}

impl Line2 {
    fn of(frames: &Frames, (photons, name, paper): (f64, &'static str, f64)) -> Self {
        let images = converted(frames, photons);
        let (mut bits, mut verified) = ([0.0; 2], true);
        for (codec, bits) in [Compression::BSLZ4, Compression::BSZSTD].into_iter().zip(&mut bits) {
            for image in &images {
                let chunk = codec::compress(codec, Isa::detect(), ElementSize::Two, image, STRIP_BYTES);
                verified &= decodes(codec, &chunk, image);
                *bits += chunk.len() as f64 * 8.0 / (image.len() / 2 * images.len()) as f64;
            }
        }
        Self { photons, name, paper, bits, verified }
    }
}

/// The frames in units of so many photons, as the bytes of `int16` images.
pub fn converted(frames: &Frames, photons: f64) -> Vec<Vec<u8>> {
    let view = frames.constants.view();
    let scaled = view.factor.map(|plane| plane.iter().map(|f| (f64::from(*f) / photons) as f32).collect::<Vec<f32>>());
    let constants = Constants { pedestal: view.pedestal, factor: [&scaled[0], &scaled[1], &scaled[2]] };
    let image = |raw: &Vec<u16>| {
        let mut pixels = vec![0i16; raw.len()];
        convert::jungfrau(Isa::detect(), raw, &constants, &mut pixels);
        pixels.iter().flat_map(|p| p.to_le_bytes()).collect()
    };
    frames.raw.iter().map(image).collect()
}

/// Does a chunk hold this image?
pub fn decodes(codec: Compression, chunk: &[u8], image: &[u8]) -> bool {
    let mut back = vec![0xA5; image.len()];
    codec::decompress(codec, Isa::detect(), chunk, ElementSize::Two, &mut back).is_ok() && back == image
}

/// `konkordia bench table4`
pub fn writing(args: &BenchKernelsArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "table4")?;
    frames::with_folder(|folder| {
        let frames = frames::load(&args.frames, folder)?;
        let modules = converted(&frames, 1.0);
        let image = |first: usize| (0..MODULES).flat_map(|m| modules[(first + m) % modules.len()].iter().copied()).collect();
        let images: Vec<Vec<u8>> = (0..modules.len().min(4)).map(image).collect();
        let budget = Duration::from_secs_f64((args.seconds * CODECS.len() as f64).clamp(0.01, 3600.0));
        let lines = write_all(&images, folder, budget)?;
        let verified = lines.iter().all(|l| l.verified);
        let row = |l: &Line4| {
            json!({
                "codec": l.codec.name(), "images_per_second": l.hz, "bits_per_pixel": l.bits, "paper_images_per_second": l.paper.0,
                "paper_bits_per_pixel": l.paper.1, "verified": l.verified,
            })
        };
        let report = report("writing", &frames, lines.iter().map(row).collect(), verified);
        let head = ["codec", "Hz", "bit/pixel", "paper, Hz", "paper, bit/pixel", "output"].map(str::to_string).to_vec();
        let line = |l: &Line4| {
            let output = if l.verified { "equal" } else { "WRONG" };
            let (hz, bits) = (format!("{:.0}", l.hz), format!("{:.2}", l.bits));
            vec![l.codec.name().into(), hz, bits, format!("{:.0}", l.paper.0), format!("{:.2}", l.paper.1), output.into()]
        };
        let table = text::table(&std::iter::once(head).chain(lines.iter().map(line)).collect::<Vec<_>>());
        let what = "images of 4M (8 modules, int16, photons) compressed and written to a file in memory by one core, levels 1 (paper: a server \
                        of 48 cores)";
        output.print(report, &format!("{what}; {}\n\n{table}", of(&frames)));
        Ok(if verified { Exit::Complete } else { Exit::Bug })
    })
}

/// A line of Table IV.
struct Line4 {
    codec: Compression,
    hz: f64,
    bits: f64,
    paper: (f64, f64),
    verified: bool,
}

fn write_all(images: &[Vec<u8>], folder: &Path, budget: Duration) -> Result<Vec<Line4>, Failure> {
    let mut rows = Vec::new();
    for (codec, ..) in CODECS {
        let path = folder.join(codec.name());
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
        let file = file.map_err(|error| Failure::io("cannot write", &path, &error))?;
        let mut writer = Writer::new(codec, file, images[0].len());
        let (mut bytes, mut verified) = (0, true);
        for (index, image) in images.iter().enumerate() {
            let length = writer.write(index, image).map_err(|error| Failure::io("cannot write", &path, &error))?;
            let chunk = writer.read(index, length).map_err(|error| Failure::io("cannot read", &path, &error))?;
            verified &= decodes(codec, &chunk, image);
            bytes += length;
        }
        // A full disk was noticed above, as far as these images reach. The file grows further only to `IMAGES_IN_FILE`
        // images.
        let work = Box::new(move |round: usize| {
            let written = writer.write(round % IMAGES_IN_FILE, &images[round % images.len()]);
            written.unwrap_or_else(|error| panic!("the file of the bench cannot be written: {error}"));
        });
        let every = if matches!(codec, Compression::Gzip { .. }) { 4 } else { 1 };
        let bits_per_pixel = Some(bytes as f64 * 8.0 / (images.len() * images[0].len() / 2) as f64);
        // The harness reports its rate in 1e9 bytes per second. With 1e9 "bytes" per image that is images per second.
        rows.push(Row {
            name: codec.name(),
            isa: Isa::detect(),
            plain: 0,
            raw_bytes: 1e9,
            bits_per_pixel,
            verified,
            every,
            work,
        });
    }
    let line = |((codec, hz, bits), row): (&(Compression, f64, f64), super::rows::KernelRow)| Line4 {
        codec: *codec,
        hz: row.gb_per_s_raw,
        bits: row.bits_per_pixel.unwrap_or(f64::NAN),
        paper: (*hz, *bits),
        verified: row.verified,
    };
    Ok(CODECS.iter().zip(measure(rows, budget)).map(line).collect())
}

/// Packs images as the workers do and writes their chunks as the sink does.
struct Writer {
    file: File,
    packer: ImagePacker,
    room: u64,
}

impl Writer {
    fn new(codec: Compression, file: File, image_bytes: usize) -> Self {
        let packer = ImagePacker::new(codec, ElementSize::Two, image_bytes);
        Self { file, packer, room: (2 * image_bytes + 65536) as u64 }
    }

    /// Writes an image to place `place` of the file and returns the length of its chunk.
    fn write(&mut self, place: usize, image: &[u8]) -> std::io::Result<usize> {
        let chunk = self.packer.pack(image);
        self.file.write_all_at(&chunk, place as u64 * self.room)?;
        Ok(chunk.len())
    }

    fn read(&self, place: usize, length: usize) -> std::io::Result<Vec<u8>> {
        let mut chunk = vec![0; length];
        self.file.read_exact_at(&mut chunk, place as u64 * self.room)?;
        Ok(chunk)
    }
}

fn report(what: &str, frames: &Frames, rows: Vec<Value>, verified: bool) -> Value {
    let facts = machine::facts();
    json!({ "machine": facts, "frames": frames.source, "frame_count": frames.raw.len(), what: rows, "verified": verified })
}

fn of(frames: &Frames) -> String {
    format!("{} frames ({})", frames.raw.len(), frames.source)
}
