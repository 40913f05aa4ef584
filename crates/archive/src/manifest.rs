//! Manifests of a bag: one line for each file, with its SHA-256.

use crate::paths;
use konkordia_core::failure::{Exit, Failure};
use std::collections::BTreeMap;
use std::path::Path;

/// Files of the payload.
pub const MANIFEST: &str = "manifest-sha256.txt";
/// All other files, except this one.
pub const TAG_MANIFEST: &str = "tagmanifest-sha256.txt";

/// Digits of SHA-256 by path.
pub type Sums = BTreeMap<String, String>;

/// The lines of a manifest, by path.
pub fn to_text(sums: &Sums) -> String {
    sums.iter().map(|(path, sum)| format!("{sum}  {}\n", paths::encode(path))).collect()
}

/// Reads a manifest.
///
/// # Errors
/// It is not there, is no text, or has a line of another form, or a file twice.
pub fn read(bag: &Path, name: &str) -> Result<Sums, Failure> {
    let path = bag.join(name);
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::io("cannot read", &path, &error))?;
    from_text(&path, &text)
}

/// The sums of the text of a manifest; errors call it `path`.
///
/// # Errors
/// It has a line of another form, or a file twice.
pub fn from_text(path: &Path, text: &str) -> Result<Sums, Failure> {
    let mut sums = Sums::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let wrong = |why: &str| {
            let what = format!("line {} of {} is not an entry of a manifest", n + 1, path.display());
            Failure::new(Exit::Incomplete, what, why, "bring back a copy of this file from another copy of the bag")
        };
        let (sum, file) = line.split_once([' ', '\t']).ok_or_else(|| wrong("it has no file"))?;
        if sum.len() != 64 || !sum.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong("a sum has 64 hexadecimal digits"));
        }
        let mut file = file.trim_start_matches([' ', '\t', '*']);
        while let Some(rest) = file.strip_prefix("./") {
            file = rest;
        }
        if file.is_empty() || file.starts_with([' ', '\t', '*']) {
            return Err(wrong("it has no file"));
        }
        if sums.insert(paths::decode(file), sum.to_ascii_lowercase()).is_some() {
            return Err(wrong("the file is listed twice"));
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let sums = Sums::from(["data/a b", "data/100%", "data/x\ny"].map(|path| (path.to_owned(), sum.to_owned())));
        std::fs::write(folder.path().join(MANIFEST), to_text(&sums)).expect("it is written");
        assert_eq!(read(folder.path(), MANIFEST).expect("it is read"), sums);
        for bad in ["abc data/a\n", &format!("{sum}\n"), &format!("{sum}  ./ a\n"), &format!("{sum}  data/a\n{sum} data/a\n")] {
            std::fs::write(folder.path().join(MANIFEST), bad).expect("it is written");
            assert!(read(folder.path(), MANIFEST).is_err(), "{bad}");
        }
        assert!(read(folder.path(), TAG_MANIFEST).is_err(), "it is not there");
    }
}
