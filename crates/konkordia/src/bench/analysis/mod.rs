//! `konkordia bench analysis`: nanoseconds per pixel of each part of the analysis, on one thread.
//!
//! All parts and instruction sets take turns on one image, so that they are disturbed alike, and each finds the image
//! and its tables where the others left them: in the third cache, or in memory. Beside them stands what reading alone
//! takes: of words in half of the second cache, and of words in memory. From the second follows how long the memory
//! alone would need for the bytes that a part moves.

mod image;
mod work;

use super::args::{AnalysisWork, BenchAnalysisArgs};
use super::caches;
use super::output::Output;
use super::spread::Spread;
use image::Image;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_core::text;
use konkordia_kernels::Isa;
use serde_json::{Value, json};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use work::{LEVEL, Pixels, Tools, Typed};

/// Memory is read from an array so many times as large as the caches of the last level.
const TIMES_CACHES: usize = 4;
/// Counts and sparse images of a small image in the second cache should take at most so many times what reading it
/// there takes.
const TIMES_READING: f64 = 1.3;

/// A part of the analysis on pixels of one type, and what it took.
struct Row {
    work: AnalysisWork,
    /// Position in the list of images of all types.
    image: usize,
    /// `None` if the work has no code of its own for instruction sets.
    isa: Isa,
    ns_per_pixel: Vec<f64>,
    verified: bool,
}

/// Words that are read, and how long that took.
struct Reading {
    name: &'static str,
    words: Vec<u64>,
    ns_per_byte: Vec<f64>,
}

/// Everything that is measured together.
struct Bench {
    tools: Tools,
    images: [Box<dyn Pixels>; 3],
    rows: Vec<Row>,
    /// From the second cache, and from memory.
    readings: [Reading; 2],
}

/// `konkordia bench analysis`
pub fn command(args: &BenchAnalysisArgs) -> Result<Exit, Failure> {
    if let Some(isa) = args.isa.iter().find(|isa| !isa.is_available()) {
        let names: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
        let (what, why) = (format!("{isa} cannot be measured"), format!("this machine has {}", names.join(", ")));
        return Err(Failure::new(Exit::Usage, what, why, "leave it out of --isa"));
    }
    let output = Output::open(&args.output, "analysis")?;
    let image = match &args.image {
        Some(path) => Image::of_file(path)?,
        None => Image::synthetic(if args.quick { 1 } else { image::MODULES })?,
    };
    let repeats = if args.quick { 1 } else { args.repeats };
    let mut bench = Bench::new(args, &image)?;
    for _ in 0..repeats {
        bench.repeat();
    }
    let verified = bench.rows.iter().all(|row| row.verified);
    let [rows, columns] = image.shape;
    let spots = bench.spots();
    let share_above = bench.images[0].share_above(&bench.tools);
    let report = json!({
        "machine": machine::facts(), "image": image.source, "image_rows": rows, "image_columns": columns, "repeats": repeats,
        "usable_share": bench.tools.usable_share(), "level": LEVEL, "share_above": share_above,
        "spots": { "peakfinder8": spots[0], "dispersion": spots[1] },
        "reading": bench.reading_json(), "rows": bench.rows_json(), "verified": verified,
    });
    let head = format!(
        "{}\nimage of {rows} x {columns} pixels ({}), {:.2} % of them above {LEVEL}, {} spots by peakfinder8, {} by dispersion\n\
         one thread; nanoseconds per pixel, median (lowest .. highest) of {repeats} repeats; bytes: of image and tables for each\n\
         pixel; memory alone: nanoseconds in which memory gives these bytes, at the rate of the first table",
        machine::line(),
        image.source,
        100.0 * share_above,
        spots[0],
        spots[1],
    );
    output.print(report, &format!("{head}\n\n{}\n\n{}", bench.reading_table(), bench.table()));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

impl Bench {
    fn new(args: &BenchAnalysisArgs, image: &Image) -> Result<Self, Failure> {
        let refused = |why: String| {
            let fix = "give an image whose geometry and energy are known";
            Failure::new(Exit::Usage, "the image cannot be analysed", why, fix)
        };
        let mut tools = Tools::new(image).map_err(refused)?;
        let near_bytes = caches::levels_bytes()[1] / 2;
        let mut images: [Box<dyn Pixels>; 3] = [
            Box::new(Typed::<i32>::new(image, near_bytes)),
            Box::new(Typed::<u16>::new(image, near_bytes)),
            Box::new(Typed::<f32>::new(image, near_bytes)),
        ];
        let mut rows = Vec::new();
        for &work in &args.work {
            for (n, pixels) in images.iter_mut().enumerate() {
                for isa in isas(args, pixels.pixel()) {
                    let verified = pixels.verify(&mut tools, work, isa);
                    rows.push(Row { work, image: n, isa, ns_per_pixel: Vec::new(), verified });
                }
            }
        }
        let available = machine::bytes_after(Path::new("/proc/meminfo"), "MemAvailable").unwrap_or(4 << 30) as usize;
        let far_bytes = (TIMES_CACHES * caches::last_level_bytes()).min(available / 4);
        let readings = [Reading::new("second cache", near_bytes), Reading::new("memory", far_bytes)];
        Ok(Self { tools, images, rows, readings })
    }

    fn repeat(&mut self) {
        let [near, far] = &mut self.readings;
        near.repeat(far.words.len() / near.words.len().max(1));
        far.repeat(1);
        for row in &mut self.rows {
            let (pixels, isa) = (&mut self.images[row.image], row.isa);
            if row.work.is_in_cache() {
                pixels.run(&mut self.tools, row.work, isa);
            }
            let start = Instant::now();
            let done = pixels.run(&mut self.tools, row.work, isa);
            row.ns_per_pixel.push(start.elapsed().as_secs_f64() * 1e9 / done.max(1) as f64);
        }
    }

    /// Spots that peakfinder8 and dispersion find.
    fn spots(&mut self) -> [u64; 2] {
        [AnalysisWork::Peakfinder8, AnalysisWork::Dispersion].map(|work| {
            self.images[0].run(&mut self.tools, work, Isa::detect());
            self.tools.spots_found()
        })
    }

    /// Highest time that is wanted.
    fn goal_ns(&self, row: &Row) -> Option<f64> {
        match row.work {
            AnalysisWork::Peakfinder8 => Some(3.0),
            AnalysisWork::Dispersion => Some(4.0),
            AnalysisWork::Azimuthal => Some(1.5),
            AnalysisWork::AzimuthalSplit => Some(2.5),
            work if work.is_in_cache() => Some(TIMES_READING * self.readings[0].ns_per_pixel(self.pixel(row)).median),
            _ => None,
        }
    }

    fn pixel(&self, row: &Row) -> PixelType {
        self.images[row.image].pixel()
    }

    /// Bytes that a row moves for each pixel, and the nanoseconds that memory alone would need for them; `None` if they
    /// stay in the second cache.
    fn traffic(&self, row: &Row) -> (f64, Option<f64>) {
        let bytes = self.images[row.image].bytes_per_pixel(&self.tools, row.work);
        (bytes, (!row.work.is_in_cache()).then(|| bytes * self.readings[1].spread().median))
    }

    fn rows_json(&self) -> Vec<Value> {
        let of = |row: &Row| {
            let (bytes, memory_ns) = self.traffic(row);
            json!({
                "work": row.work.name(), "pixels": self.pixel(row).name(), "instruction_set": row.isa.name(),
                "nanoseconds_per_pixel": row.spread().to_json(), "goal_nanoseconds_per_pixel": self.goal_ns(row),
                "bytes_per_pixel": bytes, "memory_alone_nanoseconds_per_pixel": memory_ns, "verified": row.verified,
            })
        };
        self.rows.iter().map(of).collect()
    }

    fn reading_json(&self) -> Vec<Value> {
        let of = |reading: &Reading, image: &dyn Pixels| {
            json!({
                "from": reading.name, "pixels": image.pixel().name(), "bytes": size_of_val(reading.words.as_slice()),
                "nanoseconds_per_pixel": reading.ns_per_pixel(image.pixel()).to_json(),
                "gigabytes_per_second": 1.0 / reading.spread().median,
            })
        };
        self.readings.iter().flat_map(|reading| self.images.iter().map(|image| of(reading, image.as_ref()))).collect()
    }

    fn reading_table(&self) -> String {
        let mut lines = vec![["reading once, from", "bytes", "GB/s"].map(str::to_string).to_vec()];
        lines[0].extend(self.images.iter().map(|image| format!("ns/pixel, {}", image.pixel())));
        for reading in &self.readings {
            let bytes = text::bytes(size_of_val(reading.words.as_slice()) as u64);
            let mut line = vec![reading.name.into(), bytes, format!("{:.1}", 1.0 / reading.spread().median)];
            line.extend(self.images.iter().map(|image| reading.ns_per_pixel(image.pixel()).to_text(3)));
            lines.push(line);
        }
        text::table(&lines)
    }

    fn table(&self) -> String {
        let head = ["work", "pixels", "instructions", "ns/pixel", "goal", "", "bytes", "memory alone", "output"];
        let line = |row: &Row| {
            let ((bytes, memory_ns), spread, goal) = (self.traffic(row), row.spread(), self.goal_ns(row));
            let judged = goal.map_or("", |goal| if spread.median <= goal { "reached" } else { "not reached" });
            vec![
                row.work.name().into(),
                self.pixel(row).name().into(),
                row.isa.name().into(),
                spread.to_text(3),
                goal.map_or_else(|| "-".into(), |goal| format!("{goal:.3}")),
                judged.into(),
                format!("{bytes:.2}"),
                memory_ns.map_or_else(|| "-".into(), |ns| format!("{ns:.3}")),
                if row.verified { "equal".into() } else { "WRONG".into() },
            ]
        };
        let head = head.map(str::to_string).to_vec();
        text::table(&std::iter::once(head).chain(self.rows.iter().map(line)).collect::<Vec<_>>())
    }
}

/// The instruction sets that are measured on pixels of a type: for floats only the widest.
fn isas(args: &BenchAnalysisArgs, pixel: PixelType) -> Vec<Isa> {
    let isas = if args.isa.is_empty() { Isa::available() } else { &args.isa };
    let all = isas.iter().copied();
    if pixel.is_float() { all.max().into_iter().collect() } else { all.collect() }
}

impl Row {
    fn spread(&self) -> Spread {
        Spread::of(self.ns_per_pixel.iter().copied())
    }
}

impl Reading {
    fn new(name: &'static str, bytes: usize) -> Self {
        Self { name, words: (0..(bytes / 8).max(1) as u64).collect(), ns_per_byte: Vec::new() }
    }

    /// Reads all words so many times, after a first time that does not count.
    fn repeat(&mut self, rounds: usize) {
        let rounds = rounds.max(1);
        black_box(sum(black_box(&self.words)));
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(sum(black_box(&self.words)));
        }
        let bytes = rounds * size_of_val(self.words.as_slice());
        self.ns_per_byte.push(start.elapsed().as_secs_f64() * 1e9 / bytes as f64);
    }

    /// Nanoseconds per byte.
    fn spread(&self) -> Spread {
        Spread::of(self.ns_per_byte.iter().copied())
    }

    fn ns_per_pixel(&self, pixel: PixelType) -> Spread {
        Spread::of(self.ns_per_byte.iter().map(|ns| ns * pixel.bytes() as f64))
    }
}

/// The sum of the words, the cheapest way to read all of them.
fn sum(words: &[u64]) -> u64 {
    let (chunks, rest) = words.as_chunks::<16>();
    let mut sums = [0u64; 16];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    sums.iter().chain(rest).fold(0, |all, word| all.wrapping_add(*word))
}
