//! SPE files of Princeton Instruments (WinView, WinSpec 2.x; LightField 3.0): a header of 4100 bytes, then frames, then
//! in version 3 a footer of XML. Source: the table of the header in the WinSpec manual, fabio's reader.
//!
//! Facts relied on (little-endian): u16 columns at 42, i16 type at 108 (0 f32, 1 i32, 2 i16, 3 u16, 5 f64, 6 u8, 8
//! u32), u16 rows at 656, u64 place of the footer at 678 (0 before version 3), i32 frames at 1446, f32 version at 1992.
//! Text of 10 bytes at 20: the date (`29Nov2026`), of 7 bytes at 172: the time (`142415`); f32 exposure in seconds at
//! 10.

use crate::blob::Blob;
use crate::stream::{Bounds, Element, Shape, unpacked_bytes};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4100;

mod at {
    pub const EXPOSURE: usize = 10;
    pub const DATE: usize = 20;
    pub const COLUMNS: usize = 42;
    pub const KIND: usize = 108;
    pub const TIME: usize = 172;
    pub const ROWS: usize = 656;
    pub const FOOTER: usize = 678;
    pub const FRAMES: usize = 1446;
    pub const VERSION: usize = 1992;
}

/// The frames of a file, checked: all of them are in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Rows, columns of a frame.
    pub shape: Shape,
    /// Type of one pixel, little-endian.
    pub element: Element,
    /// Number of frames, one behind the other from [`HEADER_BYTES`] on.
    pub frames: u64,
    /// Bytes of a frame.
    pub frame_bytes: u64,
    /// Exposure of one frame, seconds, if the header has one.
    pub exposure_s: Option<f64>,
    /// Date and time as they stand there; may be empty.
    pub date: String,
}

impl Stack {
    /// True if the file can be an SPE file: it has a header with a version, a size and a type.
    pub fn is_spe<B: Blob + ?Sized>(blob: &B) -> bool {
        let Ok(head) = blob.read(0, HEADER_BYTES) else { return false };
        let version = f32::from_le_bytes(bytes_at(&head, at::VERSION));
        let frames = i32::from_le_bytes(bytes_at(&head, at::FRAMES));
        (1.0..4.0).contains(&version) && frames > 0 && element(&head).is_some() && edges(&head).iter().all(|edge| *edge > 0)
    }

    /// Checks a file.
    ///
    /// # Errors
    /// What is wrong: no SPE file, an unknown type, sizes that disagree or are beyond `bounds`.
    pub fn parse<B: Blob + ?Sized>(blob: &B, bounds: &Bounds) -> Result<Self, String> {
        let head = blob.read(0, HEADER_BYTES).map_err(|_| "it ends in the header of an SPE file (4100 bytes)".to_owned())?;
        let kind = i16::from_le_bytes(bytes_at(&head, at::KIND));
        let element = element(&head).ok_or_else(|| format!("pixels of type {kind} of SPE are not supported"))?;
        let [rows, columns] = edges(&head);
        let shape = Shape::new(&[rows, columns]);
        let shape = shape.ok_or_else(|| format!("an image cannot have {rows} x {columns} pixels"))?;
        let frame_bytes = unpacked_bytes(shape, element, bounds.image_bytes_max)?;
        let said = i32::from_le_bytes(bytes_at(&head, at::FRAMES));
        let frames = u64::try_from(said).ok().filter(|frames| *frames > 0);
        let frames = frames.ok_or_else(|| format!("its header says {said} frames"))?;
        let end = (HEADER_BYTES as u64).saturating_add(frames.saturating_mul(frame_bytes));
        let footer = u64::from_le_bytes(bytes_at(&head, at::FOOTER));
        let there = if f32::from_le_bytes(bytes_at(&head, at::VERSION)) >= 3.0 && footer > 0 { footer } else { blob.bytes() };
        let is = format!("{frames} frames of {} of shape {:?}", element.name(), shape.dimensions());
        if end > there.min(blob.bytes()) {
            return Err(format!("{is} end at byte {end}, but it has pixels up to byte {}", there.min(blob.bytes())));
        }
        if end < there {
            let more = there - end;
            return Err(format!("{is} leave {more} bytes over: several regions, or numbers with each frame, are not supported"));
        }
        let exposure = f64::from(f32::from_le_bytes(bytes_at(&head, at::EXPOSURE)));
        let text = |from: usize, bytes: usize| {
            let text = &head[from..from + bytes];
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(bytes);
            String::from_utf8_lossy(&text[..end]).trim().to_owned()
        };
        let date = format!("{} {}", text(at::DATE, 10), text(at::TIME, 7)).trim().to_owned();
        let exposure_s = (exposure > 0.0 && exposure.is_finite()).then_some(exposure);
        Ok(Self { shape, element, frames, frame_bytes, exposure_s, date })
    }
}

fn bytes_at<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|n| head[at + n])
}

fn edges(head: &[u8]) -> [u64; 2] {
    [at::ROWS, at::COLUMNS].map(|place| u16::from_le_bytes(bytes_at(head, place)).into())
}

fn element(head: &[u8]) -> Option<Element> {
    Some(match i16::from_le_bytes(bytes_at(head, at::KIND)) {
        0 => Element::Float32,
        1 => Element::Int32,
        2 => Element::Int16,
        3 => Element::Uint16,
        5 => Element::Float64,
        6 => Element::Uint8,
        8 => Element::Uint32,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut file = vec![0; HEADER_BYTES];
        file[at::COLUMNS] = 3;
        file[at::ROWS] = 2;
        file[at::KIND] = 3;
        file[at::FRAMES] = 2;
        file[at::VERSION..at::VERSION + 4].copy_from_slice(&2.5f32.to_le_bytes());
        file[at::EXPOSURE..at::EXPOSURE + 4].copy_from_slice(&0.25f32.to_le_bytes());
        file[at::DATE..at::DATE + 9].copy_from_slice(b"29Nov2026");
        file.extend((0..12u16).flat_map(u16::to_le_bytes));
        change(&mut file);
        file
    }

    #[test]
    fn frames_and_what_is_wrong_with_them() {
        let read = |file: &[u8]| Stack::parse(file, &Bounds::default());
        let stack = read(&file(|_| ())).unwrap();
        assert_eq!((stack.shape.dimensions(), stack.element, stack.frames), ([2, 3].as_slice(), Element::Uint16, 2));
        assert_eq!((stack.exposure_s, &stack.date[..], stack.frame_bytes), (Some(0.25), "29Nov2026", 12));
        assert!(Stack::is_spe(&file(|_| ())[..]) && !Stack::is_spe(&[0u8; 5000][..]) && !Stack::is_spe(&[1u8; 9][..]));
        let why = |change: fn(&mut Vec<u8>)| read(&file(change)).unwrap_err();
        assert!(why(|f| f.truncate(100)).contains("ends in the header"));
        assert!(why(|f| f.truncate(4120)).contains("end at byte 4124, but it has pixels up to byte 4120"));
        assert!(why(|f| f.push(0)).contains("leave 1 bytes over"));
        assert!(why(|f| f[at::KIND] = 99).contains("type 99"));
        assert!(why(|f| f[at::ROWS] = 0).contains("0 x 3"));
        assert!(why(|f| f[at::FRAMES + 3] = 0x80).contains("frames"));
        assert!(why(|f| f[at::FRAMES + 2] = 0x7F).contains("end at byte"));
        let small = Bounds { image_bytes_max: 5, ..Bounds::default() };
        assert!(Stack::parse(&file(|_| ())[..], &small).unwrap_err().contains("more than the 5 bytes"));
    }
}
