//! Runs to be damaged, and what is left of them.

use std::path::{Path, PathBuf};

use konkordia_sinks::hdf5::{FileReport, Finding, Reader, RepairReport, Severity, Writer, check};

use super::{Sample, decode, ledger, pixels, write_images};

pub fn write_run(sample: &Sample) -> FileReport {
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, sample).unwrap();
    writer.finish(&ledger(sample)).unwrap()
}

pub fn errors(path: &Path) -> Vec<Finding> {
    check(path, &decode).into_iter().filter(|f| f.severity == Severity::Error).collect()
}

/// Where the chunks of the images of a data file lie: file, offset, bytes.
pub fn chunks(data_files: &[PathBuf]) -> Vec<(PathBuf, usize, usize)> {
    let mut found = Vec::new();
    for path in data_files {
        let file = hdf5::File::open(path).unwrap();
        let stack = file.dataset("/entry/data/data").unwrap();
        let info = (0..stack.num_chunks().unwrap()).filter_map(|n| stack.chunk_info(n));
        found.extend(info.map(|info| (path.clone(), info.addr as usize, info.size as usize)));
    }
    found
}

/// Makes the file one of an earlier version, which had no checksums.
pub fn without_checksums(path: &Path) {
    let file = hdf5::File::open_rw(path).unwrap();
    file.group("/entry/konkordia/images").unwrap().unlink("chunk_crc32").unwrap();
}

/// By image: `None` if it is missing throughout or cannot be read, otherwise whether it reads as it was written.
pub fn readable(master: &Path, sample: &Sample) -> Vec<Option<bool>> {
    let reader = Reader::open(master).unwrap();
    let missing = sample.spec.pixel.missing_le_bytes();
    let is_right = |image: u64| {
        let got = reader.read_image(image, &decode).ok()?;
        let is_missing = got.chunks(missing.len()).all(|pixel| pixel == missing);
        (!is_missing).then(|| got == pixels(&sample.spec, image, sample.partial.contains(&image)))
    };
    (0..reader.summary().images).map(is_right).collect()
}

pub fn all_but(lost: &[u64], images: u64) -> Vec<Option<bool>> {
    (0..images).map(|image| (!lost.contains(&image)).then_some(true)).collect()
}

pub fn fixes(report: &RepairReport) -> String {
    report.missing.iter().map(|missing| format!("{}; {}", missing.why, missing.fix)).collect::<Vec<_>>().join("\n")
}
