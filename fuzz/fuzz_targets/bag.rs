//! Any text as a manifest of a bag, and as the sums of the chunks of a file: refused, or the same after it was written
//! and read again.
#![no_main]

use konkordia_archive::{manifest, sums};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|text: &str| {
    if let Ok(found) = manifest::from_text(Path::new("manifest"), text) {
        let again = manifest::from_text(Path::new("manifest"), &manifest::to_text(&found));
        assert_eq!(again.expect("what was written is read"), found);
    }
    if let Some(found) = sums::from_text(text) {
        assert!(found.iter().all(|chunk| chunk.end() >= chunk.offset));
        assert_eq!(sums::from_text(&sums::to_text(&found)).expect("what was written is read"), found);
    }
});
