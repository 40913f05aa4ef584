//! `bagit.txt` and `bag-info.txt`: lines of "Label: value".

use konkordia_core::failure::{Exit, Failure};
use std::path::Path;

/// The declaration that makes a folder a bag.
pub const DECLARATION: &str = "bagit.txt";
/// What the bag says of itself.
pub const INFO: &str = "bag-info.txt";
/// The declaration that is written.
pub const DECLARED: &str = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";

/// The lines of some fields. Line ends in a value become spaces.
pub fn to_text(fields: &[(String, String)]) -> String {
    fields.iter().map(|(label, value)| format!("{label}: {}\n", value.replace(['\r', '\n'], " "))).collect()
}

/// The fields of a file of such lines; a line that begins with a space continues the one before.
///
/// # Errors
/// It cannot be read, or has lines without a label.
pub fn read(bag: &Path, name: &str) -> Result<Vec<(String, String)>, Failure> {
    let path = bag.join(name);
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::io("cannot read", &path, &error))?;
    let mut fields: Vec<(String, String)> = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match (line.starts_with([' ', '\t']), fields.last_mut(), line.split_once(':')) {
            (true, Some((_, value)), _) => {
                value.push(' ');
                value.push_str(line.trim());
            }
            (false, _, Some((label, value))) => fields.push((label.trim().into(), value.trim().into())),
            _ => {
                let what = format!("line {} of {} is not of the form 'Label: value'", n + 1, path.display());
                return Err(Failure::new(Exit::Incomplete, what, "", "bring this file back from another copy of the bag"));
            }
        }
    }
    Ok(fields)
}

/// Checks that a folder is a bag of a version that is known.
///
/// # Errors
/// It is not.
pub fn declared(bag: &Path) -> Result<(), Failure> {
    let refuse =
        |why: String, fix: &str| Err(Failure::new(Exit::Configuration, format!("{} is not a bag", bag.display()), why, fix));
    if !bag.join(DECLARATION).is_file() {
        return refuse(format!("it has no {DECLARATION}"), "name the folder in which bagit.txt is");
    }
    let fields = read(bag, DECLARATION)?;
    let value = |label: &str| fields.iter().find(|(found, _)| found == label).map_or("", |(_, value)| value.as_str());
    if !matches!(value("BagIt-Version"), "1.0" | "0.97" | "0.96") {
        return refuse(format!("its version is '{}'", value("BagIt-Version")), "versions 0.96, 0.97 and 1.0 are read");
    }
    if !value("Tag-File-Character-Encoding").eq_ignore_ascii_case("UTF-8") {
        return refuse(format!("its texts are in '{}'", value("Tag-File-Character-Encoding")), "only UTF-8 is read");
    }
    Ok(())
}

/// Bytes and files of the payload, as `Payload-Oxum` says.
pub fn oxum(fields: &[(String, String)]) -> Option<(u64, u64)> {
    let (_, value) = fields.iter().find(|(label, _)| label.eq_ignore_ascii_case("Payload-Oxum"))?;
    let (bytes, files) = value.split_once('.')?;
    Some((bytes.parse().ok()?, files.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it is written");
        let fields =
            [("Payload-Oxum", "17.2"), ("License", "CC-BY-4.0")].map(|(label, value)| (label.to_owned(), value.to_owned()));
        put(INFO, &format!("{}Note: a\n  b\n", to_text(&fields)));
        let found = read(folder.path(), INFO).expect("it is read");
        assert_eq!((&found[..2], found[2].1.as_str(), oxum(&found)), (&fields[..], "a b", Some((17, 2))));
        assert_eq!(to_text(&[("A".into(), "x\ny".into())]), "A: x y\n");
        assert!(declared(folder.path()).is_err());
        put(DECLARATION, DECLARED);
        declared(folder.path()).expect("it is a bag");
        put(DECLARATION, "BagIt-Version: 9.0\nTag-File-Character-Encoding: UTF-8\n");
        assert!(declared(folder.path()).unwrap_err().why.contains("9.0"));
        put(DECLARATION, "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-16\n");
        assert!(declared(folder.path()).unwrap_err().why.contains("UTF-16"));
        put(INFO, "nothing\n");
        assert!(read(folder.path(), INFO).is_err());
    }
}
