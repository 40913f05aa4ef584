//! Shapes as somebody left them.

use super::form::DrawnShapes;
use konkordia_config::recipe::RegionKeys;
use konkordia_core::user_mask::UserMask;
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// Under this name a file says what was drawn.
const NAME: &str = "drawn_shapes";

/// Checked shapes, and who drew them. It does not change: another one takes its place.
#[derive(Debug, Default)]
pub struct Drawing {
    /// The shapes.
    pub shapes: DrawnShapes,
    /// Who changed them last; `None` if nobody has.
    pub changed_by: Option<String>,
    /// When; ISO 8601.
    pub changed_at: Option<String>,
    /// It is in a file, or nothing was drawn yet and it could be.
    pub is_kept: bool,
    /// The mask; `None` without shapes.
    pub mask: Option<Arc<UserMask>>,
    /// The regions.
    pub regions: Vec<RegionKeys>,
    /// Masked pixels of images of this size, once somebody has asked.
    counted: Mutex<Option<([usize; 2], u64)>>,
}

impl Drawing {
    /// Checks shapes.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn new(shapes: DrawnShapes, changed_by: Option<String>, changed_at: Option<String>) -> Result<Self, String> {
        let (mask, regions) = shapes.parts()?;
        let mask = UserMask::new(mask).map(Arc::new);
        Ok(Self { shapes, changed_by, changed_at, is_kept: false, mask, regions, counted: Mutex::default() })
    }

    /// Says whether it is in a file, or could be.
    #[must_use]
    pub fn kept(self, is_kept: bool) -> Self {
        Self { is_kept, ..self }
    }

    /// What distinguishes it from others.
    pub fn tag(&self) -> String {
        let text = json!([self.shapes, self.changed_by, self.changed_at]).to_string();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// Masked pixels of images of so many rows and columns.
    pub fn masked_pixels(&self, size: [usize; 2]) -> u64 {
        let Some(mask) = &self.mask else { return 0 };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        match *counted {
            Some((of, pixels)) if of == size => pixels,
            _ => counted.insert((size, mask.pixels(size))).1,
        }
    }

    /// What the file of a run says of it, if anything of it was used; regions are only where images are analysed.
    pub fn note(&self, is_analysed: bool) -> Option<(String, String)> {
        let regions = if is_analysed { &self.shapes.regions[..] } else { &[] };
        if self.shapes.mask.is_empty() && regions.is_empty() {
            return None;
        }
        let text = json!({
            "mask": self.shapes.mask, "regions": regions, "changed_by": self.changed_by, "changed_at": self.changed_at
        });
        Some((NAME.into(), text.to_string()))
    }

    /// The note of this kind among others.
    pub(super) fn note_among(notes: &[(String, String)]) -> Option<(String, String)> {
        notes.iter().find(|(name, _)| name == NAME).cloned()
    }
}
