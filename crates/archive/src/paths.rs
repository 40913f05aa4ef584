//! Paths in a bag, as manifests have them: relative, with `/`, and three characters escaped.

use konkordia_core::failure::{Exit, Failure};
use std::path::{Component, Path, PathBuf};

/// Where the payload of a bag lies.
pub const PAYLOAD: &str = "data";
/// Where the places and sums of the chunks lie.
pub const CHUNKS: &str = "chunks";

/// A path as it stands in a manifest (RFC 8493, 2.1.3).
pub fn encode(path: &str) -> String {
    path.replace('%', "%25").replace('\n', "%0A").replace('\r', "%0D")
}

/// The path of an entry of a manifest.
pub fn decode(path: &str) -> String {
    let mut text = path.replace("%0A", "\n").replace("%0a", "\n").replace("%0D", "\r").replace("%0d", "\r");
    text = text.replace("%25", "%");
    text
}

/// The path of a file of a bag below `bag`, if it stays in the bag.
///
/// # Errors
/// The path is absolute, leads out of the bag (`..`), or through a symbolic link: nothing of it is read.
pub fn inside(bag: &Path, path: &str) -> Result<PathBuf, Failure> {
    let refuse = |why: &str| {
        let what = format!("{} names the file '{path}'", bag.display());
        Failure::new(
            Exit::Configuration,
            what,
            why,
            "do not use this bag; get another copy of it, and ask where this one comes from",
        )
    };
    if path.is_empty() || path.contains('\0') || !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(refuse("the path leads out of the bag"));
    }
    let mut whole = bag.to_owned();
    for part in Path::new(path).components() {
        whole.push(part);
        if whole.symlink_metadata().is_ok_and(|facts| facts.file_type().is_symlink()) {
            return Err(refuse("there is a symbolic link in its path"));
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_and_do_not_lead_out() {
        for name in ["data/a b.h5", "data/100%.h5", "data/a\nb", "data/%0A", "data/ä/ß"] {
            assert_eq!(decode(&encode(name)), name);
            assert!(!encode(name).contains('\n'));
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/etc", folder.path().join("data")).expect("a link");
        for bad in ["", "/etc/passwd", "data/../../x", "../x", "a/..", "data/passwd", "./data"] {
            assert!(inside(folder.path(), bad).is_err(), "{bad}");
        }
        assert_eq!(inside(folder.path(), "chunks/a").expect("it stays inside"), folder.path().join("chunks/a"));
    }
}
