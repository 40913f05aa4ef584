//! Groups of neighbouring pixels that stand out of their rings.

use super::bits::Bits;
use super::settings::Panel;

/// Finds groups. The pixels of a group come in the order in which they are reached from its first pixel.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The pixels that stand out; [`Self::each`] takes them.
    pub marked: Bits,
    group: Vec<u32>,
}

impl Groups {
    /// For images of so many pixels.
    pub fn new(pixels: usize) -> Self {
        Self { marked: Bits::new(pixels), group: Vec::with_capacity(pixels) }
    }

    /// Calls `found` with the panel and the pixels of each group, and unmarks them.
    pub fn each(&mut self, columns: usize, panels: &[Panel], mut found: impl FnMut(&Panel, &[u32])) {
        let mut next = 0;
        while let Some(first) = self.marked.next(next) {
            next = first + 1;
            let (x, y) = (first % columns, first / columns);
            if let Some(panel) = panels.iter().find(|panel| panel.has_inside(x, y)) {
                self.fill(columns, panel, first);
                found(panel, &self.group);
            }
        }
    }

    /// Takes all pixels that are connected with the first.
    fn fill(&mut self, columns: usize, panel: &Panel, first: usize) {
        self.group.clear();
        self.marked.take(first);
        self.group.push(first as u32);
        let mut done = 0;
        while done < self.group.len() {
            let pixel = self.group[done] as usize;
            done += 1;
            let (x, y) = (pixel % columns, pixel / columns);
            let (left, right) = (x.saturating_sub(1).max(panel.x_px), (x + 1).min(panel.x_px + panel.columns - 1));
            let (top, bottom) = (y.saturating_sub(1).max(panel.y_px), (y + 1).min(panel.y_px + panel.rows - 1));
            for neighbour in (top..=bottom).flat_map(|y| (left..=right).map(move |x| y * columns + x)) {
                if self.marked.take(neighbour) {
                    self.group.push(neighbour as u32);
                }
            }
        }
    }
}
