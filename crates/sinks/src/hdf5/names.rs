//! File names of a run: `<prefix>_master.h5`, `<prefix>_data_000001.h5` and so on, with the journal of a growing data
//! file beside it.

use std::path::{Path, PathBuf};

/// Name of the master file of a run.
pub fn master_file_name(prefix: &str) -> String {
    format!("{prefix}_master.h5")
}

/// The master file of a run.
pub fn master_path(directory: &Path, prefix: &str) -> PathBuf {
    directory.join(master_file_name(prefix))
}

/// Name of data file `number` (from 1) of a run.
pub fn data_file_name(prefix: &str, number: u64) -> String {
    format!("{prefix}_data_{number:06}.h5")
}

/// Name of the pedestal file of a run.
pub fn pedestal_file_name(prefix: &str) -> String {
    format!("{prefix}_pedestals.h5")
}

/// The journal of a data file, which exists until the file is closed.
pub fn journal_path(data_file: &Path) -> PathBuf {
    let mut name = data_file.file_name().unwrap_or_default().to_owned();
    name.push(".journal");
    data_file.with_file_name(name)
}

/// The file that reserves space, so that files can still be closed on a full disk.
pub(crate) fn reserve_path(directory: &Path, prefix: &str) -> PathBuf {
    directory.join(format!(".{prefix}_reserve"))
}

/// The prefix and the number of a data file (`None` for the master) that a file name contains.
pub(crate) fn parse(name: &str) -> Option<(&str, Option<u64>)> {
    if let Some(prefix) = name.strip_suffix("_master.h5") {
        return (!prefix.is_empty()).then_some((prefix, None));
    }
    let stem = name.strip_suffix(".h5")?;
    let (prefix, digits) = stem.rsplit_once("_data_")?;
    let valid = !prefix.is_empty() && digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    valid.then(|| digits.parse().ok()).flatten().map(|number| (prefix, Some(number)))
}

/// Data files and journals of a run that exist now, as (number, path of the data file, has data file, has journal), by
/// number.
pub(crate) fn existing(directory: &Path, prefix: &str) -> std::io::Result<Vec<(u64, PathBuf, bool, bool)>> {
    let mut found = std::collections::BTreeMap::<u64, (bool, bool)>::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let (data, journal) = match name.strip_suffix(".journal") {
            Some(data) => (data, true),
            None => (name, false),
        };
        if let Some((found_prefix, Some(number))) = parse(data)
            && found_prefix == prefix
            && data == data_file_name(prefix, number)
        {
            let has = found.entry(number).or_default();
            if journal { has.1 = true } else { has.0 = true }
        }
    }
    Ok(found.into_iter().map(|(n, (data, journal))| (n, directory.join(data_file_name(prefix, n)), data, journal)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(parse(&master_file_name("a_data_000001")), Some(("a_data_000001", None)));
        assert_eq!(parse(&data_file_name("run_7", 12)), Some(("run_7", Some(12))));
        assert_eq!(parse("run_data_12.h5"), None);
        assert_eq!(parse("run_data_00001x.h5"), None);
        assert_eq!(parse("_master.h5"), None);
        assert_eq!(journal_path(Path::new("/d/a_data_000001.h5")), Path::new("/d/a_data_000001.h5.journal"));
    }
}
