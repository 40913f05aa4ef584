//! What was measured, for people, for programs, and as a picture; and what Wintersberger 2011 says of each part.

use super::args::BenchHdf5Args;
use super::chunk::{self, Chunk};
use super::memory::Memory;
use super::noise::{self, Packed, threads};
use super::parallel::{self, Parallel};
use super::plain::{OfTarget, Plain};
use konkordia_acquire::machine;
use konkordia_core::plan::Compression;
use konkordia_picture::{Axis, Picture, Series};
use serde_json::{Value, json};

/// What the note says of its figures 4 to 7. They have no numbers in the text.
const NOTE: &str = "Wintersberger 2011, figures 4 to 7, has no numbers in its text";
const NOTE_OF_SIZES: &str = "the note: HDF5 writes about as fast as the device; the frame size matters only on network storage";
const NOTE_OF_MEMORY: &str = "the note: on a RAM disk HDF5 is as fast as dd; H5FD_CORE is no better";
const NOTE_OF_NOISE: &str =
    "the note (deflate level 3, one thread): without noise compression beats the device, with any noise the rate collapses";

/// A rate that is drawn.
type Rate = fn(&Plain) -> f64;

/// All tables.
pub struct Report {
    pub targets: Vec<OfTarget>,
    /// Or why there is none.
    pub memory: Result<Memory, String>,
    pub packed: Vec<Packed>,
    pub chunks: Vec<Chunk>,
    pub parallel: Vec<Parallel>,
}

impl Report {
    /// Whether everything was read back as it was written.
    pub fn is_verified(&self) -> bool {
        self.targets.iter().flat_map(|of| &of.plain).all(|line| line.verified)
            && self.memory.as_ref().map_or(true, Memory::is_verified)
            && Packed::is_verified(&self.packed)
            && self.chunks.iter().all(|line| line.verified)
            && self.parallel.iter().all(|line| line.verified)
    }

    /// For programs. `plain` is that of the first target.
    pub fn to_json(&self, args: &BenchHdf5Args) -> Value {
        json!({
            "bench": "hdf5", "machine": machine::facts(), "sync": args.sync, "repeats": args.repeats, "mib": args.mib,
            "plain": self.targets.first().map(OfTarget::rows).unwrap_or_default(),
            "targets": self.targets.iter().map(OfTarget::to_json).collect::<Vec<_>>(),
            "memory": self.memory.as_ref().map_or_else(|why| json!({ "left_out": why }), Memory::to_json),
            "compressed": self.packed.iter().map(Packed::to_json).collect::<Vec<_>>(),
            "one_chunk": self.chunks.iter().map(Chunk::to_json).collect::<Vec<_>>(),
            "parallel": self.parallel.iter().map(Parallel::to_json).collect::<Vec<_>>(),
            "note": { "sizes": NOTE_OF_SIZES, "memory": NOTE_OF_MEMORY, "noise": NOTE_OF_NOISE },
            "verified": self.is_verified(),
        })
    }

    /// For people.
    pub fn to_text(&self, args: &BenchHdf5Args) -> String {
        let (mib, repeats, sync) = (args.mib, args.rounds(), if args.sync { ", synced to the disk" } else { "" });
        let compared = if args.sync { "HDF5 with open and close" } else { "HDF5 from the first image to the last one" };
        let mut parts = vec![format!(
            "frames uncompressed, {mib} MiB each time, median of {repeats}{sync}; {}\n\"HDF5 / write\": {compared} over one write per \
             frame; \"note's\": frames of this size in a file of 20 GB ({NOTE}; --mib 20000 writes as many)",
            machine::line()
        )];
        parts.extend(self.targets.iter().map(OfTarget::to_text));
        let lines: Vec<String> = self.targets.iter().map(OfTarget::size_line).collect();
        parts.push(format!("{NOTE_OF_SIZES}\nhere:\n{}", lines.join("\n")));
        match &self.memory {
            Ok(memory) => parts.push(format!("{}\n\n{NOTE_OF_MEMORY}", memory.to_text())),
            Err(why) => parts.push(format!("the RAM disk was left out: {why}")),
        }
        if !self.packed.is_empty() {
            let place = self.targets.first().map_or_else(String::new, |of| of.target.to_text());
            parts.push(format!("{}\n\n{NOTE_OF_NOISE}", noise::to_text(&self.packed, &place)));
        }
        parts.push(chunk::to_text(&self.chunks));
        if !self.parallel.is_empty() {
            parts.push(parallel::to_text(&self.parallel));
        }
        parts.join("\n\n")
    }

    /// GB/s by frame size, and below it by noise.
    pub fn draw(&self) -> Picture {
        let sizes = self.by_size();
        match self.by_noise() {
            Some(noise) => konkordia_picture::stacked(&[sizes, noise]),
            None => sizes,
        }
    }

    fn by_size(&self) -> Picture {
        let rates: [(&str, Rate); 2] = [("HDF5", |plain| plain.compared), ("plain write", |plain| plain.write)];
        let mut lines = Vec::new();
        for of in &self.targets {
            for (what, rate) in rates {
                let points: Vec<_> = of.plain.iter().map(|plain| (plain.edge as f64, rate(plain))).collect();
                lines.push((format!("{}, {what}", of.target.name), points));
            }
        }
        chart("Frames uncompressed (uint16)", &Axis { label: "edge of a frame, pixels", log: true }, &lines)
    }

    /// With the most threads; `None` if nothing was compressed.
    fn by_noise(&self) -> Option<Picture> {
        let most = self.packed.iter().map(|row| row.threads).max()?;
        let mut codecs: Vec<Compression> = Vec::new();
        for row in &self.packed {
            if !codecs.contains(&row.codec) {
                codecs.push(row.codec);
            }
        }
        let points = |codec: Compression, rate: fn(&Packed) -> f64| {
            let rows = self.packed.iter().filter(|row| row.codec == codec && row.threads == most);
            rows.map(|row| (f64::from(row.noise_bits), rate(row))).collect::<Vec<_>>()
        };
        let mut lines: Vec<_> = codecs.iter().map(|codec| (codec.text(), points(*codec, |row| row.hdf5))).collect();
        lines.push(("plain write".into(), points(codecs[0], |row| row.write)));
        let title = format!("Compressed by {} and written, GB/s of pixels", threads(most));
        Some(chart(&title, &Axis { label: "bits of noise", log: false }, &lines))
    }
}

/// GB/s on a logarithmic axis. Of one point there is no line.
fn chart(title: &str, x: &Axis<'_>, lines: &[(String, Vec<(f64, f64)>)]) -> Picture {
    let series: Vec<Series<'_>> =
        lines.iter().map(|(name, points)| Series { name, points: points.clone(), line: points.len() > 1 }).collect();
    konkordia_picture::chart(title, x, &Axis { label: "GB/s", log: true }, &series)
}
