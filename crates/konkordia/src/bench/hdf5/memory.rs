//! A RAM disk: memory copied, plain `write`, a run, and one data set written by two drivers of libhdf5.

use super::args::BenchHdf5Args;
use super::cells::{cells, table};
use super::files::{BLOCK_BYTES, Frames, PLAIN_NOISE_BITS, PREFIX, Run, Written, by_write, clear, is_right, rate};
use super::target::Target;
use crate::bench::mem::{self, Copied};
use crate::bench::spread::median;
use konkordia_core::failure::Failure;
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_sinks::hdf5::{CORE_GROWTH_BYTES, Driver, DriverFile};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Of the free memory, at most this part is written to a RAM disk: the file, and the same again by `H5FD_CORE`.
const PART_OF_MEMORY: u64 = 4;
/// The ways to write, in the order of the table; plain `write` per frame comes first and is what others are compared
/// with.
const WAYS: [(&str, Way); 6] = [
    ("plain write", Way::Write(0)),
    ("plain write, 8 MiB blocks", Way::Write(BLOCK_BYTES)),
    ("HDF5, a run", Way::Run),
    ("HDF5, one data set, H5FD_SEC2", Way::Driver(Driver::Sec2)),
    ("HDF5, one data set, H5FD_CORE with backing store", Way::Driver(Driver::Core { backing_store: true })),
    ("HDF5, one data set, H5FD_CORE in memory only", Way::Driver(Driver::Core { backing_store: false })),
];

#[derive(Clone, Copy)]
enum Way {
    /// Calls of this many bytes at least; a frame at least.
    Write(usize),
    Run,
    Driver(Driver),
}

/// Rates of one way: GB/s, median of the repeats.
struct Row {
    name: &'static str,
    /// Until the last image.
    images: f64,
    /// With the making and closing of the file.
    whole: f64,
    /// These over plain `write`, median of the ratios of the repeats.
    of_write: [f64; 2],
    verified: bool,
}

/// What was measured on a RAM disk.
pub struct Memory {
    place: String,
    edge: usize,
    bytes: usize,
    copied: Copied,
    rows: Vec<Row>,
}

impl Memory {
    /// Frames of this edge on this RAM disk; the reason if they have no room there.
    pub fn measure(args: &BenchHdf5Args, target: &Target, edge: usize) -> Result<Result<Self, String>, Failure> {
        let frames = Frames::new(edge, PLAIN_NOISE_BITS);
        let most = (target.free_bytes()? / PART_OF_MEMORY) as usize;
        let images = frames.images_in(args.bytes().min(most));
        if let Err(failure) = target.check_room(2 * (images * frames.bytes()) as u64) {
            return Ok(Err(format!("{}: {}", failure.what, failure.why)));
        }
        let copied = mem::copied(args.bytes(), args.rounds());
        // For each way: until the last image, whole, and both over plain `write`.
        let mut rates = vec![<[Vec<f64>; 4]>::default(); WAYS.len()];
        let mut verified = [true; WAYS.len()];
        for repeat in 0..args.rounds() {
            let mut plain = f64::NAN;
            for (number, (_, way)) in WAYS.into_iter().enumerate() {
                let (written, is_right) = way.write(args.sync, &target.folder, &frames, images, repeat == 0)?;
                verified[number] &= is_right;
                if number == 0 {
                    plain = written.whole;
                }
                let once = [written.images, written.whole, written.images / plain, written.whole / plain];
                rates[number].iter_mut().zip(once).for_each(|(rates, rate)| rates.push(rate));
            }
        }
        let mut rows = Vec::new();
        for ((name, _), (rates, verified)) in WAYS.into_iter().zip(rates.into_iter().zip(verified)) {
            let [images, whole, of_write, whole_of_write] = rates.map(|mut rates| median(&mut rates));
            rows.push(Row { name, images, whole, of_write: [of_write, whole_of_write], verified });
        }
        Ok(Ok(Self { place: target.to_text(), edge, bytes: images * frames.bytes(), copied, rows }))
    }

    /// Whether everything was read back as it was written.
    pub fn is_verified(&self) -> bool {
        self.copied.verified && self.rows.iter().all(|row| row.verified)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "name": row.name, "gb_per_s": row.images, "whole_gb_per_s": row.whole, "of_write": row.of_write[0],
                "whole_of_write": row.of_write[1], "verified": row.verified,
            })
        };
        json!({
            "edge_pixels": self.edge, "bytes": self.bytes, "core_growth_bytes": CORE_GROWTH_BYTES,
            "stream_copy": {
                "array_bytes": self.copied.array_bytes, "gb_per_s": self.copied.gb_per_s.to_json(), "verified": self.copied.verified,
            },
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let line =
            |row: &Row| cells(vec![row.name.into()], &[row.images, row.whole, row.of_write[0], row.of_write[1]], row.verified);
        let head = ["on a RAM disk", "GB/s", "with open, close", "of write", "with open, close", "read back"];
        let table = table(&head, self.rows.iter().map(line));
        let copied = self.copied.gb_per_s;
        format!(
            "{}; frames of {edge} x {edge}, {} each time\nmemory: STREAM copies {} GB/s on one thread (arrays of {}); it counts bytes \
             read and bytes written, so each byte once is {:.2} GB/s\n\n{table}\n\nH5FD_CORE keeps the file in this process, which \
             grows by {} at once; with a backing store it is written when it is closed, so its second rate counts",
            self.place,
            text::bytes(self.bytes as u64),
            copied.to_text(1),
            text::bytes(self.copied.array_bytes as u64),
            copied.median / 2.0,
            text::bytes(CORE_GROWTH_BYTES as u64),
            edge = self.edge,
        )
    }
}

impl Way {
    /// Writes the images and removes them; with `looks` they are read back first.
    fn write(self, sync: bool, folder: &Path, frames: &Frames, images: usize, looks: bool) -> Result<(Written, bool), Failure> {
        match self {
            Self::Write(block_bytes) => {
                let rate = by_write(folder, frames, images, sync, block_bytes.max(frames.bytes()))?;
                Ok((Written { images: rate, whole: rate }, true))
            }
            Self::Run => {
                let mut run = Run::new((folder, PREFIX), frames, Compression::None, sync)?;
                (0..images).try_for_each(|n| run.write(n, frames.image(n)))?;
                let written = run.finish(images * frames.bytes())?;
                let is_right = !looks || is_right((folder, PREFIX), frames, images)?;
                clear(folder)?;
                Ok((written, is_right))
            }
            Self::Driver(driver) => by_driver(driver, folder, frames, images, looks),
        }
    }
}

/// Writes one data set by a driver. A file that is in memory only is looked at while it is open, others when they are
/// closed.
fn by_driver(driver: Driver, folder: &Path, frames: &Frames, images: usize, looks: bool) -> Result<(Written, bool), Failure> {
    let (path, bytes) = (folder.join("driver.h5"), images * frames.bytes());
    let made = Instant::now();
    let mut file = DriverFile::create(&path, driver, frames.pixel, frames.edge)?;
    let begin = Instant::now();
    (0..images).try_for_each(|n| file.append(frames.image(n)))?;
    let rate_of_images = rate(bytes, begin);
    let until_last = made.elapsed();
    let is_in_memory = driver == Driver::Core { backing_store: false };
    let mut right = 0;
    if looks && is_in_memory {
        let mut pixels = Vec::new();
        for number in 0..images {
            file.read(number as u64, &mut pixels)?;
            right += usize::from(pixels == frames.image(number));
        }
    }
    let closing = Instant::now();
    file.close()?;
    let whole = bytes as f64 / 1e9 / (until_last + closing.elapsed()).as_secs_f64();
    if looks && !is_in_memory {
        DriverFile::read_all(&path, |number, pixels| right += usize::from(pixels == frames.image(number as usize)))?;
    }
    clear(folder)?;
    Ok((Written { images: rate_of_images, whole }, !looks || right == images))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_drivers_are_compared_with_the_frames() {
        let folder = tempfile::tempdir().unwrap();
        let (frames, others) = (Frames::new(40, 8), Frames::new(40, 4));
        for (name, way) in WAYS {
            let (written, is_right) = way.write(true, folder.path(), &frames, 9, true).unwrap();
            assert!(is_right && written.images > 0.0 && written.whole > 0.0, "{name}");
        }
        // Other frames than those that were written are noticed.
        let path = folder.path().join("driver.h5");
        let mut file = DriverFile::create(&path, Driver::Sec2, frames.pixel, 40).unwrap();
        file.append(others.image(0)).unwrap();
        file.close().unwrap();
        let mut right = 0;
        DriverFile::read_all(&path, |n, pixels| right += usize::from(pixels == frames.image(n as usize))).unwrap();
        assert_eq!(right, 0);
    }
}
