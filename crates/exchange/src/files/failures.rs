//! What to say of files that cannot be used.

use konkordia_core::array::Element;
use konkordia_core::failure::{Exit, Failure};
use std::path::Path;

/// Rows, columns and type of an image.
pub type Form = ([u64; 2], Element);

/// The failure for a file that is not what it should be.
pub fn wrong(path: &Path, why: impl Into<String>) -> Failure {
    let fix = "bring back a whole copy of the file, or leave it out (--skip-unreadable makes its image a lost one)";
    Failure::new(Exit::Configuration, format!("cannot read the images of {}", path.display()), why, fix)
}

/// The failure for a file that does not belong to the others.
pub fn mixed(path: &Path, why: &str) -> Failure {
    let fix = "import files of one detector and one series at a time";
    Failure::new(Exit::Configuration, format!("{} does not belong to the other files", path.display()), why, fix)
}

/// The failure for an image of another size or type than the first one.
pub fn other_form(path: &Path, nth: u64, form: Form, first: Form) -> Failure {
    let words = |([rows, columns], element): Form| format!("{rows} x {columns} {}", element.name());
    mixed(path, &format!("its image {nth} is {}, the first image of the series is {}", words(form), words(first)))
}
