//! Decodes chunks of files of others: by the filters that every libhdf5 has (deflate, shuffle, Fletcher-32), by our
//! own bitshuffle, and by the plug-ins that lie in the folders of plug-ins. A plug-in may crash, hang or take all
//! memory: only a process made for that calls [`decode`].

use crate::bitshuffle;
use crate::sys::load::{self, Filter};
use crate::sys::output::Output;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The environment variable with the folders of plug-ins, separated by colons, as libhdf5 reads it.
pub const VARIABLE: &str = "HDF5_PLUGIN_PATH";
/// Where libhdf5 looks without that variable.
pub const DEFAULT_FOLDER: &str = "/usr/local/hdf5/lib/plugin";

const DEFLATE: i32 = 1;
const SHUFFLE: i32 = 2;
const FLETCHER32: i32 = 3;
const BITSHUFFLE: i32 = 32008;

/// Filters that a pipeline has at most (`H5Z_MAX_NFILTERS`).
pub const FILTERS_MAX: usize = 32;
/// What a filter in the middle of a pipeline may return more than the image has: headers of the next one.
const MORE_BYTES_MAX: usize = 1 << 20;

/// One filter of a data set: its number and parameters.
pub type Step = (i32, Vec<u32>);

/// The plug-ins that were found so far.
pub struct Plugins {
    folders: Vec<PathBuf>,
    /// Libraries that were not looked at yet, the next one last; `None` before the folders were read.
    left: Option<Vec<PathBuf>>,
    found: HashMap<i32, Filter>,
    /// Libraries that could not be used, and why.
    refused: Vec<String>,
}

impl Plugins {
    /// Those in these folders.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, left: None, found: HashMap::new(), refused: Vec::new() }
    }

    /// The filter with this number. As libhdf5 does, it takes the first plug-in that has it.
    fn get(&mut self, id: i32) -> Result<&Filter, String> {
        let left = self.left.get_or_insert_with(|| libraries(&self.folders));
        while !self.found.contains_key(&id) {
            let Some(path) = left.pop() else {
                let folders: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
                let refused = self.refused.iter().map(|why| format!("; {why}")).collect::<String>();
                return Err(format!("no plug-in for filter {id} lies in {}{refused}", folders.join(", ")));
            };
            match load::filter(&path) {
                Ok(Some(filter)) => drop(self.found.entry(filter.id).or_insert(filter)),
                Ok(None) => {}
                Err(why) => self.refused.push(format!("{}: {why}", path.display())),
            }
        }
        Ok(&self.found[&id])
    }
}

/// The libraries in the folders, the first one last. A folder that cannot be read has none.
fn libraries(folders: &[PathBuf]) -> Vec<PathBuf> {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("lib") && name.contains(".so")
    };
    let of = |folder: &PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_library).collect();
        paths.sort();
        paths
    };
    let mut all: Vec<PathBuf> = folders.iter().flat_map(of).collect();
    all.reverse();
    all
}

/// The folders that the text of [`VARIABLE`] names; without a text [`DEFAULT_FOLDER`].
pub fn folders(text: Option<&Path>) -> Vec<PathBuf> {
    match text {
        None => vec![DEFAULT_FOLDER.into()],
        Some(text) => std::env::split_paths(text).filter(|folder| !folder.as_os_str().is_empty()).collect(),
    }
}

/// Decodes a chunk that was packed by `steps`, in this order, into the `bytes` bytes of an image.
///
/// # Errors
/// A filter fails or is not there, or the result has another size; in words.
pub fn decode(plugins: &mut Plugins, steps: &[Step], chunk: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    let mut data = chunk.to_vec();
    for (id, values) in steps.iter().rev() {
        data = one(plugins, *id, values, data, bytes).map_err(|why| format!("filter {id}: {why}"))?;
    }
    if data.len() != bytes {
        return Err(format!("the filters gave {} bytes, an image has {bytes}", data.len()));
    }
    Ok(data)
}

fn one(plugins: &mut Plugins, id: i32, values: &[u32], data: Vec<u8>, bytes: usize) -> Result<Vec<u8>, String> {
    let most = bytes.saturating_add(MORE_BYTES_MAX);
    match id {
        DEFLATE => inflate(&data, most),
        SHUFFLE => unshuffle(values, &data),
        FLETCHER32 => checked(data),
        BITSHUFFLE => Ok(bitshuffle::apply(values, true, &data)?.written().to_vec()),
        _ => {
            let filter = plugins.get(id)?;
            let mut input = Output::new(data.len()).ok_or("no memory for its input")?;
            input.append(&data);
            drop(data);
            let output = filter.unpack(values, input).ok_or("the plug-in reports a failure")?;
            match output.written() {
                written if written.len() <= most => Ok(written.to_vec()),
                written => Err(format!("it gave {} bytes for an image of {bytes}", written.len())),
            }
        }
    }
}

fn inflate(data: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let read = flate2::read::ZlibDecoder::new(data).take(most as u64 + 1).read_to_end(&mut out);
    match read {
        Ok(count) if count <= most => Ok(out),
        Ok(_) => Err("it gives more bytes than an image has".into()),
        Err(why) => Err(format!("this is no zlib stream: {why}")),
    }
}

/// The bytes of each element together again; bytes behind the last whole element stay.
fn unshuffle(values: &[u32], data: &[u8]) -> Result<Vec<u8>, String> {
    let size = values.first().map(|size| *size as usize).filter(|size| *size > 0).ok_or("it has no size of elements")?;
    let elements = data.len() / size;
    let mut out = data.to_vec();
    for (byte, plane) in data.chunks_exact(elements.max(1)).take(size).enumerate().take_while(|_| elements > 0) {
        for (element, value) in plane.iter().enumerate() {
            out[element * size + byte] = *value;
        }
    }
    Ok(out)
}

/// The data before a checksum that fits, which is cut off.
fn checked(mut data: Vec<u8>) -> Result<Vec<u8>, String> {
    let at = data.len().checked_sub(4).ok_or("it has no checksum")?;
    let stored = u32::from_le_bytes(data[at..].try_into().expect("4 bytes"));
    data.truncate(at);
    let sum = fletcher32(&data);
    // Versions of HDF5 before 1.6.3 swapped the bytes of each half.
    let swapped = sum.rotate_left(16).swap_bytes();
    if stored != sum && stored != swapped {
        return Err(format!("its checksum is {stored:08x}, that of the data {sum:08x}"));
    }
    Ok(data)
}

/// `H5_checksum_fletcher32`: sums of words of two bytes, the high one first.
fn fletcher32(data: &[u8]) -> u32 {
    let (mut low, mut high) = (0u32, 0u32);
    let (words, odd) = data.as_chunks::<2>();
    let odd = odd.first().map(|byte| [*byte, 0]);
    for word in words.iter().copied().chain(odd) {
        low = (low + u32::from(u16::from_be_bytes(word))) % 65_535;
        high = (high + low) % 65_535;
    }
    // The library folds its sums instead of dividing: there 65535 stands for 0 unless all words are 0.
    let any = data.iter().any(|byte| *byte != 0);
    let folded = |sum: u32| if sum == 0 && any { 65_535 } else { sum };
    folded(high) << 16 | folded(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn none() -> Plugins {
        Plugins::new(vec!["/there/are/none".into()])
    }

    #[test]
    fn a_filter_without_a_plug_in_is_named_with_the_folders() {
        let why = decode(&mut none(), &[(32_001, vec![])], &[1, 2, 3], 8).unwrap_err();
        assert_eq!(why, "filter 32001: no plug-in for filter 32001 lies in /there/are/none");
        assert_eq!(folders(Some(Path::new("/a::/b"))), [PathBuf::from("/a"), "/b".into()]);
        assert_eq!(folders(None), [PathBuf::from(DEFAULT_FOLDER)]);
    }

    /// The sums of the library over the same bytes (h5py, a data set with fletcher32).
    #[test]
    fn checksums_are_those_of_the_library() {
        for (data, sum) in [
            (&[1u8, 2, 3, 4, 5, 6, 7, 8][..], [0x14, 0x10, 0x28, 0x1e]),
            (&[0; 8], [0; 4]),
            (&[255; 8], [255; 4]),
            (&[255; 9], [0, 255, 0, 255]),
        ] {
            assert_eq!(fletcher32(data).to_le_bytes(), sum, "{data:?}");
            assert_eq!(checked([data, &sum].concat()).unwrap(), data);
        }
        assert!(checked(vec![1, 2, 3, 4, 0, 0, 0, 0]).is_err() && checked(vec![1]).is_err());
    }

    #[test]
    fn shuffled_bytes_come_together_again() {
        assert_eq!(unshuffle(&[2], &[1, 3, 5, 2, 4, 6, 7]).unwrap(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(unshuffle(&[9], &[1, 2]).unwrap(), [1, 2]);
        assert!(unshuffle(&[], &[1]).is_err() && unshuffle(&[0], &[1]).is_err());
    }

    proptest! {
        #[test]
        fn no_chunk_panics_in_the_filters_that_are_built_in(
            steps in prop::collection::vec((prop_oneof![1i32..4, Just(32_008)], prop::collection::vec(0u32..5, 0..6)), 0..4),
            chunk in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = decode(&mut none(), &steps, &chunk, 64);
        }
    }
}
