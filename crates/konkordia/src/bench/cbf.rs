//! `konkordia bench cbf`: CBF files into HDF5 as `konkordia import` does it, beside plain reading of the same files.
//! Every image is read back and compared with its file. A rate per core is that of the processor time that was used, so
//! other programs on the machine change it little.

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
    read: Time,
    unpacked: Time,
    rows: Vec<Row>,
}

/// Seconds by the clock, and of processors.
#[derive(Clone, Copy)]
struct Time {
    clock: f64,
    processor: f64,
}

struct Row {
    workers: usize,
    time: Time,
    chunk_bytes: u64,
    verified: u64,
}

impl Table {
    /// MB/s of pixels, by the clock.
    fn rate(&self, time: Time) -> f64 {
        self.pixel_bytes * self.images / time.clock / 1e6
    }

    /// MB/s of pixels that one core would do.
    fn rate_per_core(&self, time: Time) -> f64 {
        self.pixel_bytes * self.images / time.processor / 1e6
    }

    fn to_json(&self, args: &BenchCbfArgs) -> Value {
        let row = |row: &Row| {
            json!({
                "workers": row.workers, "mb_per_s": self.rate(row.time), "images_per_s": self.images / row.time.clock,
                "mb_per_s_and_core": self.rate_per_core(row.time), "chunk_bytes": row.chunk_bytes,
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
        let head = ["", "MB/s of pixels", "per core", "images/s", "verified"].map(str::to_owned).to_vec();
        let row = |name: String, time: Time, verified: Option<u64>| {
            let numbers = [self.rate(time), self.rate_per_core(time), self.images / time.clock].map(|rate| format!("{rate:.0}"));
            let verified = verified.map_or(String::new(), text::count);
            std::iter::once(name).chain(numbers).chain([verified]).collect::<Vec<String>>()
        };
        let mut rows = vec![head];
        rows.push(row("plain read".into(), self.read, None));
        rows.push(row("read and unpack".into(), self.unpacked, None));
        for one in &self.rows {
            rows.push(row(format!("import to bslz4, {} worker(s)", one.workers), one.time, Some(one.verified)));
        }
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

/// Seconds that the threads of this process have used processors.
fn processor_seconds() -> f64 {
    // See proc_pid_stat(5); Linux counts in hundredths of a second (USER_HZ).
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    fields.split_ascii_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Medians of the repeats.
fn timed(args: &BenchCbfArgs, mut work: impl FnMut() -> Result<(), Failure>) -> Result<Time, Failure> {
    let (mut clock, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..args.repeats {
        let (began, used) = (Instant::now(), processor_seconds());
        work()?;
        clock.push(began.elapsed().as_secs_f64());
        // Shorter times than one tick are not seen.
        processor.push((processor_seconds() - used).max(0.01));
    }
    Ok(Time { clock: median(&mut clock), processor: median(&mut processor) })
}

/// One thread reads all files and looks at nothing.
fn reading(args: &BenchCbfArgs, files: &[PathBuf]) -> Result<Time, Failure> {
    timed(args, || {
        for path in files {
            std::hint::black_box(std::fs::read(path).map_err(|error| Failure::io("cannot read", path, &error))?);
        }
        Ok(())
    })
}

/// One thread reads and unpacks all files.
fn unpacking(args: &BenchCbfArgs, files: &[PathBuf]) -> Result<Time, Failure> {
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
    let time = timed(args, || {
        let import = Import::open(request.clone())?;
        chunk_bytes = import.run(&go, &mut |_| ())?.file.chunk_bytes;
        last = Some(import);
        Ok(())
    })?;
    let compared = last.map(|import| import.verify(&go, &mut |_| ())).transpose()?.unwrap_or_default();
    compared.judge()?;
    Ok(Row { workers, time, chunk_bytes, verified: compared.images })
}
