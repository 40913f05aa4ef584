//! Which pixels the newest run masks, and why.

use super::drawing::Drawing;
use konkordia_calibration::Loaded;
use konkordia_core::array::{Array, Element, Packing};
use konkordia_core::series::SeriesStart;
use konkordia_core::user_mask::UserMask;
use std::sync::Arc;

/// The mask of a run.
pub struct RunMask {
    /// What people had drawn when it was armed.
    user: Option<Arc<UserMask>>,
    /// What its file says of that.
    note: Option<(String, String)>,
    pixels: Pixels,
}

enum Pixels {
    /// Of packets: bits of NXmx, without those of people, and of the calibration, pixel by pixel; empty: none is set.
    Run { bits: Vec<u16>, reasons: Vec<u8> },
    /// Of a series: what its sender said.
    Series(Arc<SeriesStart>),
}

impl RunMask {
    /// Of a run that is armed: adds what people have drawn to its mask, for images of so many rows and columns.
    pub fn of_run(loaded: &mut Loaded, size: [usize; 2], drawing: Option<&Drawing>, is_analysed: bool) -> Self {
        let is_any = |bits: &u32| *bits != 0;
        // Masks of runs have no bit above that of people.
        let bits =
            if loaded.mask.iter().any(is_any) { loaded.mask.iter().map(|bits| *bits as u16).collect() } else { Vec::new() };
        let reasons = if loaded.reasons.iter().any(|bits| *bits != 0) { std::mem::take(&mut loaded.reasons) } else { Vec::new() };
        let user = drawing.and_then(|drawing| drawing.mask.clone());
        if let Some(user) = &user {
            user.mark(&mut loaded.mask, size);
        }
        Self { user, note: drawing.and_then(|drawing| drawing.note(is_analysed)), pixels: Pixels::Run { bits, reasons } }
    }

    /// Of a series that has begun.
    pub fn of_series(start: &Arc<SeriesStart>) -> Self {
        let note = Drawing::note_among(&start.notes);
        Self { user: start.user_mask.clone(), note, pixels: Pixels::Series(Arc::clone(start)) }
    }

    /// What its file says of drawn shapes.
    pub fn note(&self) -> Option<&(String, String)> {
        self.note.as_ref()
    }

    /// Rows and columns of its images, if it is a series that says so.
    pub fn size(&self) -> Option<[usize; 2]> {
        let Pixels::Series(start) = &self.pixels else { return None };
        start.image_size.map(|size| size.map(|edge| usize::try_from(edge).unwrap_or(usize::MAX)))
    }

    /// True if people had masked the pixel.
    pub fn is_user(&self, column: u64, row: u64) -> bool {
        self.user.as_ref().is_some_and(|user| user.has(column, row))
    }

    /// Its bits of NXmx, without those of people, and those of the calibration, in images of so many rows and columns.
    pub fn bits(&self, column: u64, row: u64, [rows, columns]: [usize; 2]) -> (u32, u8) {
        let at = row as usize * columns + column as usize;
        match &self.pixels {
            Pixels::Run { bits, reasons } => {
                (bits.get(at).copied().unwrap_or_default().into(), reasons.get(at).copied().unwrap_or_default())
            }
            Pixels::Series(start) => {
                let masks = start.channels.iter().filter_map(|channel| channel.pixel_mask.as_ref());
                (masks.filter_map(|mask| word(mask, [rows, columns], at)).fold(0, |all, bits| all | bits), 0)
            }
        }
    }
}

/// A word of a table that came with the start of a series, as files take it.
fn word(table: &Array, [rows, columns]: [usize; 2], at: usize) -> Option<u32> {
    let (shape, size) = (table.shape.dimensions(), [rows as u64, columns as u64]);
    let fits = shape == size || (rows == 1 && shape == [columns as u64]);
    if !fits || table.packing != Packing::None || table.element != Element::Uint32 {
        return None;
    }
    let mut bytes = [0; 4];
    for (n, byte) in bytes.iter_mut().enumerate() {
        let mut at = 4 * at + n;
        // Pieces follow each other.
        *byte = table.pieces.iter().find_map(|piece| {
            let found = piece.get(at).copied();
            at = at.wrapping_sub(piece.len());
            found
        })?;
    }
    Some(u32::from_le_bytes(bytes))
}
