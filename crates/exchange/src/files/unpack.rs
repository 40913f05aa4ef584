//! Pixels of TIFF pages: pieces are unpacked, differences summed, bits spread, bytes turned, tiles put together.

use super::lzw;
use konkordia_core::array::{Element, Packing};
use konkordia_core::ports::PixelUnpacker;
use konkordia_kernels::transform::Unpacker;
use konkordia_wire::blob::Blob;
use konkordia_wire::tiff;

/// Unpacks images, with memory of its own; one for each thread.
pub struct Unpack {
    unpacker: Unpacker,
    piece: Vec<u8>,
}

impl Default for Unpack {
    fn default() -> Self {
        Self { unpacker: Unpacker::new(), piece: Vec::new() }
    }
}

impl Unpack {
    /// The kernels.
    pub fn unpacker(&mut self) -> &mut Unpacker {
        &mut self.unpacker
    }

    /// The pixels of a page, little-endian, row by row.
    ///
    /// # Errors
    /// They cannot be read, or are not packed as the page says; in words.
    pub fn page<B: Blob + ?Sized>(&mut self, page: &tiff::Page, blob: &B) -> Result<Vec<u8>, String> {
        let [rows, columns] = page.edges().map(|edge| edge as usize);
        let each = page.element.bits() as usize / 8;
        let mut out = vec![0; rows * columns * each];
        let [piece_rows, piece_columns] = page.piece_shape.map(|edge| edge as usize);
        let across = columns.div_ceil(piece_columns);
        for (n, piece) in page.pieces.iter().enumerate() {
            if piece.bytes == 0 {
                continue;
            }
            let of_piece = |why: String| format!("strip or tile {n}: {why}");
            let packed = blob.read(piece.at, piece.bytes as usize).map_err(of_piece)?;
            self.piece.clear();
            self.piece.resize(page.piece_bytes(n) as usize, 0);
            unpack(&mut self.unpacker, page.packing, &packed, &mut self.piece).map_err(of_piece)?;
            let pixels = straight(page, &mut self.piece, page.rows_of(n) as usize);
            let (row, column) = (n / across * piece_rows, n % across * piece_columns);
            let here = (columns - column).min(piece_columns) * each;
            for (line, from) in pixels.chunks_exact(piece_columns * each).enumerate().take(rows - row) {
                let at = ((row + line) * columns + column) * each;
                out[at..at + here].copy_from_slice(&from[..here]);
            }
        }
        Ok(out)
    }
}

fn unpack(unpacker: &mut Unpacker, packing: tiff::Packing, packed: &[u8], out: &mut [u8]) -> Result<(), String> {
    match packing {
        tiff::Packing::None if packed.len() == out.len() => {
            out.copy_from_slice(packed);
            Ok(())
        }
        tiff::Packing::None => Err(format!("it has {} bytes, {} were expected", packed.len(), out.len())),
        tiff::Packing::Lzw => lzw::decode(packed, out),
        tiff::Packing::PackBits => pack_bits(packed, out),
        tiff::Packing::Zlib => unpacker.unpack(Packing::Gzip, Element::Uint8, packed, out),
        tiff::Packing::Zstd => unpacker.unpack(Packing::Zstd, Element::Uint8, packed, out),
    }
}

/// Runs of bytes: n from 0 to 127 = n + 1 bytes follow; n from 129 to 255 = one byte, 257 - n times; 128 = nothing.
fn pack_bits(packed: &[u8], out: &mut [u8]) -> Result<(), String> {
    let (mut at, mut written) = (0, 0);
    while written < out.len() {
        let cut = || format!("its PackBits data end after {written} of {} bytes", out.len());
        let n = usize::from(*packed.get(at).ok_or_else(cut)?);
        at += 1;
        let length = if n < 128 { n + 1 } else { 257 - n };
        if n == 128 {
            continue;
        }
        let left = out.len() - written;
        if n < 128 {
            let bytes = packed.get(at..at + length).ok_or_else(cut)?;
            let taken = length.min(left);
            out[written..written + taken].copy_from_slice(&bytes[..taken]);
            at += length;
        } else {
            let byte = *packed.get(at).ok_or_else(cut)?;
            out[written..written + length.min(left)].fill(byte);
            at += 1;
        }
        written += length.min(left);
    }
    Ok(())
}

/// The pixels of a piece of so many rows, little-endian, without predictor, each in bytes of its own.
fn straight(page: &tiff::Page, piece: &mut Vec<u8>, rows: usize) -> Vec<u8> {
    let columns = page.piece_shape[1] as usize;
    let each = page.element.bits() as usize / 8;
    if page.bits != page.element.bits() {
        let line_bytes = (columns * page.bits as usize).div_ceil(8);
        let mut out = Vec::with_capacity(rows * columns * each);
        for line in piece.chunks_exact(line_bytes) {
            spread(line, page.bits, columns, each, &mut out);
        }
        if page.predictor == tiff::Predictor::Difference {
            sum_lines(&mut out, columns, each, page.bits);
        }
        return out;
    }
    if page.predictor == tiff::Predictor::FloatingPoint {
        return floats(piece, columns, each);
    }
    let mut out = little_endian(std::mem::take(piece), page.element, page.is_big_endian);
    if page.predictor == tiff::Predictor::Difference {
        sum_lines(&mut out, columns, each, page.bits);
    }
    out
}

/// Numbers of `bits` bits, the high ones first, in `each` bytes of their own.
fn spread(line: &[u8], bits: u32, columns: usize, each: usize, out: &mut Vec<u8>) {
    let (mut word, mut there, mut bytes) = (0u64, 0, line.iter());
    for _ in 0..columns {
        while there < bits {
            word = word << 8 | u64::from(*bytes.next().unwrap_or(&0));
            there += 8;
        }
        there -= bits;
        let value = (word >> there) & ((1 << bits) - 1);
        out.extend_from_slice(&value.to_le_bytes()[..each]);
    }
}

/// Adds to each pixel the one before it in its row; sums wrap at `bits` bits.
fn sum_lines(pixels: &mut [u8], columns: usize, each: usize, bits: u32) {
    let limit = u64::MAX >> (64 - bits);
    for line in pixels.chunks_exact_mut(columns * each) {
        let mut sum = 0u64;
        for pixel in line.chunks_exact_mut(each) {
            let mut bytes = [0; 8];
            bytes[..each].copy_from_slice(pixel);
            sum = sum.wrapping_add(u64::from_le_bytes(bytes)) & limit;
            pixel.copy_from_slice(&sum.to_le_bytes()[..each]);
        }
    }
}

/// Floating-point numbers whose bytes were sorted by weight, the high ones first, and then subtracted from each other.
fn floats(piece: &mut [u8], columns: usize, each: usize) -> Vec<u8> {
    let mut out = vec![0; piece.len()];
    for (line, out) in piece.chunks_exact_mut(columns * each).zip(out.chunks_exact_mut(columns * each)) {
        for at in 1..line.len() {
            line[at] = line[at].wrapping_add(line[at - 1]);
        }
        for (n, pixel) in out.chunks_exact_mut(each).enumerate() {
            for (weight, byte) in pixel.iter_mut().rev().enumerate() {
                *byte = line[weight * columns + n];
            }
        }
    }
    out
}

/// Turns the bytes of big-endian pixels.
pub fn little_endian(mut pixels: Vec<u8>, element: Element, is_big_endian: bool) -> Vec<u8> {
    if is_big_endian {
        match element.bits() {
            16 => pixels.as_chunks_mut::<2>().0.iter_mut().for_each(|bytes| bytes.reverse()),
            32 => pixels.as_chunks_mut::<4>().0.iter_mut().for_each(|bytes| bytes.reverse()),
            64 => pixels.as_chunks_mut::<8>().0.iter_mut().for_each(|bytes| bytes.reverse()),
            _ => {}
        }
    }
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_bytes() {
        // The example of Apple's technical note 1023.
        let packed = [0xFE, 0xAA, 0x02, 0x80, 0x00, 0x2A, 0xFD, 0xAA, 0x03, 0x80, 0x00, 0x2A, 0x22, 0xF7, 0xAA];
        let mut out = [0; 24];
        pack_bits(&packed, &mut out).unwrap();
        let mut wanted = vec![0xAA, 0xAA, 0xAA, 0x80, 0x00, 0x2A, 0xAA, 0xAA, 0xAA, 0xAA, 0x80, 0x00, 0x2A, 0x22];
        wanted.extend([0xAA; 10]);
        assert_eq!(out[..], wanted);
        assert!(pack_bits(&packed[..5], &mut out).unwrap_err().contains("end after 3 of 24"));
        assert!(pack_bits(&[128, 128], &mut out).is_err());
    }

    #[test]
    fn bits_are_spread() {
        let mut out = Vec::new();
        spread(&[0x12, 0x3A, 0xBC, 0xFF, 0xF0], 12, 3, 2, &mut out);
        assert_eq!(out, [0x23, 0x01, 0xBC, 0x0A, 0xFF, 0x0F]);
        out.clear();
        spread(&[0b1010_0000], 1, 3, 1, &mut out);
        assert_eq!(out, [1, 0, 1]);
    }

    #[test]
    fn differences_are_summed_row_by_row() {
        let mut pixels = vec![1, 0, 255, 255, 2, 0, 1, 0];
        sum_lines(&mut pixels, 2, 2, 16);
        assert_eq!(pixels, [1, 0, 0, 0, 2, 0, 3, 0]);
    }
}
