//! Frames uncompressed, by size: as a run writes them, and by plain `write`, one call for each frame and in large
//! blocks as `dd` writes them.

use super::args::BenchHdf5Args;
use super::cells::{cells, table};
use super::files::{BLOCK_BYTES, Frames, PLAIN_NOISE_BITS, PREFIX, Run, Written, by_write, clear, is_right};
use super::target::Target;
use crate::bench::spread::median;
use konkordia_core::failure::Failure;
use konkordia_core::plan::Compression;
use serde_json::{Value, json};
use std::path::Path;

/// Edge lengths and numbers of frames of Wintersberger 2011: 20 GB each, `uint16`.
const NOTE_FRAMES: [(usize, usize); 3] = [(1024, 10_000), (2048, 2500), (4096, 625)];

/// Rates of one frame size: GB/s, median of the repeats.
pub struct Plain {
    pub edge: usize,
    images: usize,
    /// One `write` per frame.
    pub write: f64,
    /// Large blocks.
    blocks: f64,
    /// HDF5: from the first image to the last one.
    hdf5: f64,
    /// HDF5: from making the first file to closing the last one.
    hdf5_whole: f64,
    /// The one of them that is compared with plain `write`.
    pub compared: f64,
    /// HDF5 over plain `write`, median of the ratios of the repeats.
    ratio: f64,
    pub verified: bool,
}

impl Plain {
    /// Frames with this edge.
    pub fn measure(args: &BenchHdf5Args, folder: &Path, edge: usize) -> Result<Self, Failure> {
        let frames = Frames::new(edge, PLAIN_NOISE_BITS);
        let images = frames.images_in(args.bytes());
        let mut rates: [Vec<f64>; 5] = Default::default();
        let mut verified = true;
        for repeat in 0..args.rounds() {
            let write = by_write(folder, &frames, images, args.sync, frames.bytes())?;
            let blocks = by_write(folder, &frames, images, args.sync, BLOCK_BYTES)?;
            let mut run = Run::new((folder, PREFIX), &frames, Compression::None, args.sync)?;
            (0..images).try_for_each(|n| run.write(n, frames.image(n)))?;
            let hdf5 = run.finish(images * frames.bytes())?;
            if repeat == 0 {
                verified = is_right((folder, PREFIX), &frames, images)?;
            }
            clear(folder)?;
            let once = [write, blocks, hdf5.images, hdf5.whole, hdf5.compared(args.sync) / write];
            rates.iter_mut().zip(once).for_each(|(rates, rate)| rates.push(rate));
        }
        let [write, blocks, hdf5, hdf5_whole, ratio] = rates.map(|mut rates| median(&mut rates));
        let compared = Written { images: hdf5, whole: hdf5_whole }.compared(args.sync);
        Ok(Self { edge, images, write, blocks, hdf5, hdf5_whole, compared, ratio, verified })
    }

    /// Frames of this edge in a file of Wintersberger 2011.
    fn note_frames(&self) -> Option<usize> {
        NOTE_FRAMES.iter().find(|(edge, _)| *edge == self.edge).map(|(_, frames)| *frames)
    }

    fn to_json(&self) -> Value {
        json!({
            "edge_pixels": self.edge, "images": self.images, "note_images": self.note_frames(), "write_gb_per_s": self.write,
            "blocks_gb_per_s": self.blocks, "hdf5_gb_per_s": self.hdf5, "hdf5_whole_gb_per_s": self.hdf5_whole,
            "hdf5_of_write": self.ratio, "hdf5_images_per_second": self.hdf5 * 1e9 / (2 * self.edge * self.edge) as f64,
            "verified": self.verified,
        })
    }

    fn cells(&self) -> Vec<String> {
        let frames = self.note_frames().map_or_else(|| "-".into(), |frames| frames.to_string());
        let first = vec![format!("{0} x {0}", self.edge), self.images.to_string(), frames];
        let rates = [self.write, self.blocks, self.hdf5, self.hdf5_whole, self.ratio];
        cells(first, &rates, self.verified)
    }
}

/// All frame sizes of one target.
pub struct OfTarget {
    pub target: Target,
    pub plain: Vec<Plain>,
}

impl OfTarget {
    /// Measures all sizes.
    pub fn measure(args: &BenchHdf5Args, target: Target) -> Result<Self, Failure> {
        let plain = args.sizes.iter().map(|&edge| Plain::measure(args, &target.folder, edge));
        Ok(Self { plain: plain.collect::<Result<Vec<_>, _>>()?, target })
    }

    /// The fastest frame size over the slowest one: HDF5, and plain `write`.
    fn fastest_of_slowest(&self) -> [f64; 2] {
        let rates: [fn(&Plain) -> f64; 2] = [|plain| plain.compared, |plain| plain.write];
        rates.map(|rate| {
            let (low, high) =
                self.plain.iter().map(rate).fold((f64::INFINITY, 0.0f64), |(low, high), rate| (rate.min(low), rate.max(high)));
            high / low
        })
    }

    /// The rows of all sizes, for programs.
    pub fn rows(&self) -> Vec<Value> {
        self.plain.iter().map(Plain::to_json).collect()
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let [hdf5, write] = self.fastest_of_slowest();
        json!({
            "name": self.target.name, "place": self.target.to_json(), "plain": self.rows(),
            "fastest_size_of_slowest": { "hdf5": hdf5, "write": write },
        })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let head = [
            "uint16 frame",
            "images",
            "note's",
            "write GB/s",
            "8 MiB blocks",
            "HDF5 GB/s",
            "with open, close",
            "HDF5 / write",
            "read back",
        ];
        let table = table(&head, self.plain.iter().map(Plain::cells));
        format!("{}\n{table}", self.target.to_text())
    }

    /// What the frame size changes, for people.
    pub fn size_line(&self) -> String {
        let [hdf5, write] = self.fastest_of_slowest();
        let place = if self.target.is_network() { "network" } else { "local" };
        format!("  {} ({place}): fastest frame size / slowest: HDF5 {hdf5:.2}, plain write {write:.2}", self.target.name)
    }
}
