//! What the tests of the architecture share: reading manifests, the import table of ARCHITECTURE.md, the
//! lists of CONTRIBUTING.md, and the sources.
//! It never changes a file and never runs cargo; all it knows comes from the text in the repository.
//! Read [`imports::allowed`] first, then [`house::findings`].
#![forbid(unsafe_code)]

pub mod circles;
pub mod house;
pub mod imports;
pub mod seams;
pub mod text;

use std::path::{Path, PathBuf};

/// The root of the repository in which cargo runs the tests. A build folder that was copied from another checkout does
/// not lead there.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&manifest).ancestors().nth(2).expect("tests/architecture lies two folders deep").to_path_buf()
}

/// The content of a text file; panics with its path, because a test can do nothing better.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("cannot read {}: {why}", path.display()))
}

/// The Rust files of the repository with their paths relative to its root, sorted; build results are left out.
pub fn rust_files() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    for folder in ["crates", "tests", "fuzz", "benches"] {
        collect(&root.join(folder), &mut files);
    }
    let mut files: Vec<_> = files
        .into_iter()
        .map(|path| (path.strip_prefix(&root).expect("found under the root").to_string_lossy().replace('\\', "/"), read(&path)))
        .collect();
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
