//! `konkordia bench cbf`: CBF files into HDF5 as `konkordia import` does it, beside plain reading of the same files. Every
//! image is read back and compared with its file.

use super::args::BenchCbfArgs;
use super::frames::in_folder;
use super::output::Output;
use super::spread::median;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_exchange::files::{Opened, Reading, Unpack};
use konkordia_exchange::import::{Import, Request};
use konkordia_kernels::byte_offset;
use konkordia_wire::cbf;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Different images; they are written in turn.
const DIFFERENT: usize = 8;
/// What the transcoder of PSI did (Leonarski and others): images of 2M per second, with 8 processes.
const SEED_IMAGES_PER_S: f64 = 250.0;
const SEED_WORKERS: usize = 8;

/// `konkordia bench cbf`
pub fn command(args: &BenchCbfArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "cbf")?;
    in_folder(args.dir.as_deref(), |folder| {
        let files = make(args, folder)?;
        let read = reading(args, &files)?;
        let unpacked = unpacking(args, &files)?;
        let mut rows = Vec::new();
        for &workers in &args.workers {
            rows.push(importing(args, folder, usize::from(workers))?);
        }
        let table =
            Table { pixel_bytes: (args.rows * args.columns * 4) as f64, images: args.images as f64, read, unpacked, rows };
        output.print(table.to_json(args), &table.to_text(args));
        Ok(Exit::Complete)
    })
}

/// Seconds of each way.
struct Table {
    pixel_bytes: f64,
    images: f64,
    read: f64,
    unpacked: f64,
    rows: Vec<Row>,
}

struct Row {
    workers: usize,
    seconds: f64,
    chunk_bytes: u64,
    verified: u64,
}

impl Table {
    /// MB/s of pixels.
    fn rate(&self, seconds: f64) -> f64 {
        self.pixel_bytes * self.images / seconds / 1e6
    }

    fn to_json(&self, args: &BenchCbfArgs) -> Value {
        let row = |row: &Row| {
            json!({
                "workers": row.workers, "mb_per_s": self.rate(row.seconds), "images_per_s": self.images / row.seconds,
                "mb_per_s_and_worker": self.rate(row.seconds) / row.workers as f64, "chunk_bytes": row.chunk_bytes,
                "verified_images": row.verified,
            })
        };
        json!({
            "bench": "cbf", "rows": args.rows, "columns": args.columns, "images": args.images, "repeats": args.repeats,
            "processors": std::thread::available_parallelism().map_or(1, usize::from),
            "plain_read_mb_per_s": self.rate(self.read), "read_and_unpack_mb_per_s": self.rate(self.unpacked),
            "import": self.rows.iter().map(row).collect::<Vec<_>>(), "seed_images_per_s": SEED_IMAGES_PER_S,
        })
    }

    fn to_text(&self, args: &BenchCbfArgs) -> String {
        let head = ["", "MB/s of pixels", "per worker", "images/s", "verified"].map(str::to_owned).to_vec();
        let alone = |name: &str, seconds: f64| {
            let rate = self.rate(seconds);
            vec![
                name.to_owned(),
                format!("{rate:.0}"),
                format!("{rate:.0}"),
                format!("{:.0}", self.images / seconds),
                String::new(),
            ]
        };
        let mut rows = vec![head, alone("plain read", self.read), alone("read and unpack", self.unpacked)];
        rows.extend(self.rows.iter().map(|row| {
            let rate = self.rate(row.seconds);
            vec![
                format!("import to bslz4, {} worker(s)", row.workers),
                format!("{rate:.0}"),
                format!("{:.0}", rate / row.workers as f64),
                format!("{:.0}", self.images / row.seconds),
                text::count(row.verified),
            ]
        }));
        format!(
            "{} images of {} x {} pixels, int32, byte offset; median of {}\n{}\nThe paper: {SEED_IMAGES_PER_S:.0} images/s of \
             PILATUS 2M with {SEED_WORKERS} workers.",
            args.images,
            args.rows,
            args.columns,
            args.repeats,
            text::table(&rows)
        )
    }
}

/// Files with a background of few counts, gaps between modules, and some strong pixels.
fn make(args: &BenchCbfArgs, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let contents: Vec<Vec<u8>> = (0..DIFFERENT.min(args.images)).map(|n| file(args.rows, args.columns, n as u64)).collect();
    let source = folder.join("cbf");
    std::fs::create_dir_all(&source).map_err(|error| Failure::io("cannot make the folder", &source, &error))?;
    let write = |n: usize| {
        let path = source.join(format!("bench_{:05}.cbf", n + 1));
        std::fs::write(&path, &contents[n % contents.len()]).map_err(|error| Failure::io("cannot write", &path, &error))?;
        Ok(path)
    };
    (0..args.images).map(write).collect()
}

fn file(rows: usize, columns: usize, seed: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1);
    let mut pixels = Vec::with_capacity(rows * columns * 4);
    for row in 0..rows {
        for column in 0..columns {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let count = match (row % 212, column % 494, state >> 48) {
                (195.., ..) | (_, 487.., _) => -1,
                (_, _, 0..8) => (state & 0x3FFF) as i32,
                _ => (state.count_ones() as i32 - 28).max(0) / 2,
            };
            pixels.extend_from_slice(&count.to_le_bytes());
        }
    }
    let mut packed = Vec::new();
    byte_offset::encode(&pixels, &mut packed);
    let lines = ["Detector: bench".to_owned(), "Exposure_period 0.0040000 s".into(), "Count_cutoff 1048575 counts".into()];
    [cbf::head("bench", &lines, [rows as u64, columns as u64], &packed), packed, cbf::tail()].concat()
}

fn timed(args: &BenchCbfArgs, mut work: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut seconds = Vec::new();
    for _ in 0..args.repeats {
        let began = Instant::now();
        work()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    Ok(median(&mut seconds))
}

/// One thread reads all files and looks at nothing.
fn reading(args: &BenchCbfArgs, files: &[PathBuf]) -> Result<f64, Failure> {
    timed(args, || {
        for path in files {
            std::hint::black_box(std::fs::read(path).map_err(|error| Failure::io("cannot read", path, &error))?);
        }
        Ok(())
    })
}

/// One thread reads and unpacks all files.
fn unpacking(args: &BenchCbfArgs, files: &[PathBuf]) -> Result<f64, Failure> {
    let mut unpack = Unpack::default();
    timed(args, || {
        for path in files {
            std::hint::black_box(Opened::open(path, &Reading::default())?.read(0, &mut unpack)?);
        }
        Ok(())
    })
}

/// Imports the files, and compares the images of the last time.
fn importing(args: &BenchCbfArgs, folder: &Path, workers: usize) -> Result<Row, Failure> {
    let request = Request {
        input: vec![folder.join("cbf")],
        output: folder.join(format!("import_{workers}")),
        overwrite: true,
        workers: Some(workers),
        ..Request::default()
    };
    let go = AtomicBool::new(false);
    let (mut last, mut chunk_bytes) = (None, 0);
    let seconds = timed(args, || {
        let import = Import::open(request.clone())?;
        chunk_bytes = import.run(&go, &mut |_| ())?.file.chunk_bytes;
        last = Some(import);
        Ok(())
    })?;
    let compared = last.map(|import| import.verify(&go, &mut |_| ())).transpose()?.unwrap_or_default();
    compared.judge()?;
    Ok(Row { workers, seconds, chunk_bytes, verified: compared.images })
}
