//! `konkordia bench hdf5`: the cost of HDF5, as figures 4 to 7 of Wintersberger 2011 ask for it, beside what the note
//! says of them. Frames by size on several file systems, a RAM disk, compression by noise and threads; and two
//! questions of our own: one chunk by several threads, and several runs at once. All files of the first repeat are read
//! back and compared.

pub mod args;
mod cells;
mod chunk;
mod files;
mod memory;
mod noise;
mod parallel;
mod plain;
mod report;
mod target;

use super::frames::{in_folders, usual_parent};
use super::output::Output;
use args::BenchHdf5Args;
use chunk::Chunk;
use files::FRAMES;
use konkordia_core::failure::{Exit, Failure};
use memory::Memory;
use noise::Packed;
use parallel::Parallel;
use plain::OfTarget;
use report::Report;
use std::path::{Path, PathBuf};
use target::Target;

/// Frames of the tables that have one size are no larger.
const EDGE_MAX: usize = 2048;

/// `konkordia bench hdf5`
pub fn command(args: &BenchHdf5Args) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    let output = Output::open(&args.output, "hdf5")?;
    let mut directories = if args.dir.is_empty() { vec![usual_parent()] } else { args.dir.clone() };
    let count = directories.len();
    // A RAM disk, if none of these is one.
    let shared = Path::new("/dev/shm");
    directories.extend(shared.is_dir().then(|| PathBuf::from(shared)));
    in_folders(&directories, |folders| {
        let mut targets = Target::all(&directories, folders)?;
        let spare = targets.split_off(count).pop();
        let report = measure(args, targets, spare)?;
        output.print(report.to_json(args), &report.to_text(args));
        if let Some(png) = &args.png {
            report.draw().write(png)?;
        }
        Ok(if report.is_verified() { Exit::Complete } else { Exit::Bug })
    })
}

/// All tables. `spare` is a RAM disk for the case that no target is one.
fn measure(args: &BenchHdf5Args, targets: Vec<Target>, spare: Option<Target>) -> Result<Report, Failure> {
    let edge = args.sizes.iter().copied().max().unwrap_or(EDGE_MAX).min(EDGE_MAX);
    for (number, target) in targets.iter().enumerate() {
        target.check_room(most_bytes(args, edge, number == 0) as u64)?;
    }
    let memory = match targets.iter().chain(&spare).find(|target| target.is_in_memory()) {
        Some(target) => Memory::measure(args, target, edge)?,
        None => Err("none of the folders is in memory, and there is no /dev/shm".into()),
    };
    let first = targets[0].folder.clone();
    let targets = targets.into_iter().map(|target| OfTarget::measure(args, target)).collect::<Result<Vec<_>, _>>()?;
    let mut packed = Vec::new();
    for &noise_bits in &args.noise_bits {
        packed.extend(Packed::measure(args, &first, edge, noise_bits)?);
    }
    let chunks = Chunk::measure_all(args, &first, chunk::EDGE)?;
    let parallel = args.writers.iter().map(|&writers| Parallel::measure(args, &first, edge, writers));
    Ok(Report { targets, memory, packed, chunks, parallel: parallel.collect::<Result<Vec<_>, _>>()? })
}

/// What lies on a target at once, at most: the first has the other tables too.
fn most_bytes(args: &BenchHdf5Args, edge: usize, is_first: bool) -> usize {
    let frames = |edge: usize, writers: usize| {
        let frame = 2 * edge * edge;
        writers * args.bytes().div_ceil(writers).next_multiple_of(frame).max(FRAMES * frame)
    };
    let plain = args.sizes.iter().map(|&size| frames(size, 1)).max().unwrap_or(0);
    if !is_first {
        return plain;
    }
    let parallel = args.writers.iter().map(|&writers| frames(edge, writers as usize)).max().unwrap_or(0);
    plain.max(parallel).max(chunk::FILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::files::{Frames, PREFIX, Run, is_right};
    use super::*;
    use clap::Parser;
    use konkordia_core::plan::Compression;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchHdf5Args,
    }

    fn args(line: &str) -> BenchHdf5Args {
        Line::parse_from(std::iter::once("hdf5").chain(line.split_whitespace())).args
    }

    #[test]
    fn everything_is_written_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let args = args("--sizes 64 100 --noise-bits 0 3 --threads 2 --writers 3 --mib 1 --repeats 2 --sync");
        let folders = [folder.path().to_path_buf()];
        let target = || Target::all(&folders, &folders).unwrap().remove(0);
        let of = OfTarget::measure(&args, target()).unwrap();
        assert!(of.plain.iter().all(|line| line.verified && line.write > 0.0 && line.compared > 0.0));
        let packed: Vec<_> = [0, 3].iter().flat_map(|bits| Packed::measure(&args, folder.path(), 64, *bits).unwrap()).collect();
        assert!(Packed::is_verified(&packed));
        let bits = |noise_bits| {
            let row = packed.iter().find(|row| row.codec == Compression::BSLZ4 && row.noise_bits == noise_bits);
            row.map(|row| row.bits_per_pixel).unwrap()
        };
        assert!(bits(0) < 1.0 && (3.0..5.0).contains(&bits(3)), "{} {}", bits(0), bits(3));
        let chunks = Chunk::measure_all(&args, folder.path(), 313).unwrap();
        assert!(chunks.iter().all(|row| row.verified && row.speed_up > 0.0));
        let parallel = vec![Parallel::measure(&args, folder.path(), 64, 3).unwrap()];
        assert!(parallel[0].verified && parallel[0].inside > 0.0 && parallel[0].outside > 0.0);
        let memory = Memory::measure(&args, &target(), 64).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "all files are removed");
        let report = Report { targets: vec![of], memory, packed, chunks, parallel };
        let json = report.to_json(&args);
        assert!(report.is_verified() && json["plain"] == json["targets"][0]["plain"], "{json}");
        assert!(json["memory"]["rows"].as_array().is_some_and(|rows| rows.len() == 6), "{json}");
        assert!(report.to_text(&args).contains("the frame size matters only on network storage"));
        assert!(report.draw().png().starts_with(b"\x89PNG"));
    }

    #[test]
    fn other_frames_than_those_that_were_written_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let frames = Frames::new(64, 4);
        let mut run = Run::new((folder.path(), PREFIX), &frames, Compression::None, false).unwrap();
        (0..8).for_each(|n| run.write(n, frames.image(n)).unwrap());
        run.finish(1).unwrap();
        assert!(is_right((folder.path(), PREFIX), &frames, 8).unwrap());
        assert!(!is_right((folder.path(), PREFIX), &frames, 7).unwrap(), "one more than expected");
        assert!(!is_right((folder.path(), PREFIX), &Frames::new(64, 5), 8).unwrap());
    }

    #[test]
    fn the_space_that_is_asked_for_covers_every_table() {
        let few = args("--sizes 64 --mib 100 --writers 1");
        assert_eq!(most_bytes(&few, 64, false), 100 << 20);
        assert_eq!(most_bytes(&few, 64, true), chunk::FILE_BYTES_MAX);
        // Each of many runs has every frame.
        let many = args("--sizes 2048 --mib 1 --writers 64");
        assert_eq!(most_bytes(&many, 2048, true), 64 * 8 * (8 << 20));
    }
}
