//! Frames and the two ways to write them: as a run writes them, and by plain `write`.

use konkordia_core::failure::Failure;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Compression;
use konkordia_kernels::codec;
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{
    ChunkWrites, FileSpec, LedgerRecord, Overwrite, Reader, SeriesInfo, SeriesRecord, Writer, master_path,
};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// The block size that is mostly used with `dd`.
pub const BLOCK_BYTES: usize = 8 << 20;
/// Prefix of the runs that are written alone.
pub const PREFIX: &str = "bench";
/// Bits of noise of the frames that are written uncompressed.
pub const PLAIN_NOISE_BITS: u32 = 8;
/// Number of different frames; they are written in turn.
pub const FRAMES: usize = 8;

/// Square frames of noise.
pub struct Frames {
    /// Pixels of an edge.
    pub edge: usize,
    /// Type of a pixel.
    pub pixel: PixelType,
    list: Vec<Vec<u8>>,
}

impl Frames {
    /// Frames of `uint16` with this many bits of noise, the same in every call.
    pub fn new(edge: usize, noise_bits: u32) -> Self {
        Self::of(PixelType::Uint16, edge, noise_bits, FRAMES)
    }

    /// The same, of another integer type and another number of frames.
    pub fn of(pixel: PixelType, edge: usize, noise_bits: u32, count: usize) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mask = (1u64 << noise_bits) - 1;
        let mut frame = || {
            let mut bytes = Vec::with_capacity(pixel.bytes() * edge * edge);
            for _ in 0..edge * edge {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.extend_from_slice(&((state >> 32) & mask).to_le_bytes()[..pixel.bytes()]);
            }
            bytes
        };
        Self { edge, pixel, list: (0..count).map(|_| frame()).collect() }
    }

    /// Bytes of a frame.
    pub fn bytes(&self) -> usize {
        self.list[0].len()
    }

    /// The frame that is written as image `number`.
    pub fn image(&self, number: usize) -> &[u8] {
        &self.list[number % self.list.len()]
    }

    /// Images that together have so many bytes, but each frame once.
    pub fn images_in(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.bytes()).max(self.list.len())
    }
}

/// GB/s of a run.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// From the first image to the last one.
    pub images: f64,
    /// From making the first file to closing the last one, with `--sync` until they are on the disk.
    pub whole: f64,
}

impl Written {
    /// What is compared with plain `write`: with `--sync` the whole, because that waits for the disk too.
    pub const fn compared(self, sync: bool) -> f64 {
        if sync { self.whole } else { self.images }
    }
}

/// A run that is being written.
pub struct Run {
    writer: Writer,
    made: Instant,
    begin: Instant,
}

impl Run {
    /// A run of such frames with this prefix in `folder`.
    pub fn new((folder, prefix): (&Path, &str), frames: &Frames, compression: Compression, sync: bool) -> Result<Self, Failure> {
        let made = Instant::now();
        let size = frames.edge as u32;
        let spec = FileSpec {
            directory: folder.to_owned(),
            prefix: prefix.into(),
            overwrite: Overwrite::Replace,
            rows: size,
            columns: size,
            pixel: frames.pixel,
            compression,
            pixel_mask: Vec::new(),
            series: Some(SeriesInfo { image_shape: vec![frames.edge as u64; 2], ..SeriesInfo::default() }),
            ..FileSpec::default()
        };
        let mut writer = Writer::create(spec)?;
        // With --sync the files are synced as in a run, otherwise the kernel decides.
        writer.set_to_disk(if sync { ToDisk::Beside(Some(Duration::from_secs(2))) } else { ToDisk::Never })?;
        Ok(Self { writer, made, begin: Instant::now() })
    }

    /// Who writes the chunks.
    pub fn set_chunk_writes(&mut self, writes: ChunkWrites) {
        self.writer.set_chunk_writes(writes);
    }

    /// Writes the next chunk.
    pub fn write(&mut self, index: usize, chunk: &[u8]) -> Result<(), Failure> {
        let record = SeriesRecord {
            index: index as u64,
            status: ImageStatus::Complete,
            pieces: &[chunk],
            times: None,
            parts_missing: 0,
            extra: &[],
        };
        self.writer.write_series(&record)?;
        Ok(self.writer.tick(self.made.elapsed().as_nanos() as u64)?)
    }

    /// Closes the files; the rates of `bytes` bytes of pixels.
    pub fn finish(self, bytes: usize) -> Result<Written, Failure> {
        let images = rate(bytes, self.begin);
        self.writer.finish(&LedgerRecord::default())?;
        Ok(Written { images, whole: rate(bytes, self.made) })
    }
}

/// GB/s of the frames, written one after the other by calls of `write` of `block_bytes` each (of a frame each, if that
/// is larger). The file is removed.
pub fn by_write(folder: &Path, frames: &Frames, images: usize, sync: bool, block_bytes: usize) -> Result<f64, Failure> {
    let path = &folder.join("plain");
    let failed = |error: std::io::Error| Failure::io("cannot write", path, &error);
    let joined = if block_bytes > frames.bytes() { frames.list.concat() } else { Vec::new() };
    let mut file = File::create(path).map_err(failed)?;
    let begin = Instant::now();
    let mut left = images * frames.bytes();
    let mut turn = 0;
    while left > 0 {
        let one = if joined.is_empty() { frames.image(turn) } else { &joined[..block_bytes.min(joined.len())] };
        let now = one.len().min(left);
        file.write_all(&one[..now]).map_err(failed)?;
        (left, turn) = (left - now, turn + 1);
    }
    if sync {
        file.sync_data().map_err(failed)?;
    }
    let rate = rate(images * frames.bytes(), begin);
    drop(file);
    std::fs::remove_file(path).map_err(failed)?;
    Ok(rate)
}

/// Reads the run back; true if its images are right.
pub fn is_right((folder, prefix): (&Path, &str), frames: &Frames, images: usize) -> Result<bool, Failure> {
    let reader = Reader::open(&master_path(folder, prefix))?;
    for number in 0..images {
        if reader.read_image(number as u64, &codec::decode)? != frames.image(number) {
            return Ok(false);
        }
    }
    Ok(reader.summary().images == images as u64)
}

/// Removes what was written, so that no more than one measurement lies on the disk.
pub fn clear(folder: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io("cannot remove the files in", folder, &error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        std::fs::remove_file(entry.map_err(failed)?.path()).map_err(failed)?;
    }
    Ok(())
}

/// GB/s since `begin`.
pub fn rate(bytes: usize, begin: Instant) -> f64 {
    bytes as f64 / 1e9 / begin.elapsed().as_secs_f64().max(1e-9)
}
