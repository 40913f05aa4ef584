//! Names of channels, kept once: every image of a series has the same.

use std::sync::Arc;

/// Names that are kept, at most. No sender needs more, and they must not fill the memory.
const KEPT_MAX: usize = 64;

/// The names seen so far.
#[derive(Default)]
pub struct Names {
    kept: Vec<Arc<str>>,
}

impl Names {
    /// This name, shared where it was seen before.
    pub fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(kept) = self.kept.iter().find(|kept| &***kept == name) {
            return Arc::clone(kept);
        }
        let new: Arc<str> = name.into();
        if self.kept.len() < KEPT_MAX {
            self.kept.push(Arc::clone(&new));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_not_too_many_are() {
        let mut names = Names::default();
        let first = names.get("a");
        assert!(Arc::ptr_eq(&first, &names.get("a")));
        for n in 0..2 * KEPT_MAX {
            assert_eq!(&*names.get(&n.to_string()), n.to_string());
        }
        assert_eq!(names.kept.len(), KEPT_MAX);
    }
}
