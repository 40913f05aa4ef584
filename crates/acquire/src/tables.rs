//! Reads tables of numbers from NumPy files: `.npy`, and `.npz`, which is a zip archive of them, stored or deflated.
//! Takes only what NumPy itself writes: little-endian `float64`, `float32` and `uint16` in C order, up to a limited
//! size.

use flate2::bufread::DeflateDecoder;
use std::io::Read;

/// A table in an archive must be smaller than this when unpacked, in bytes.
const TABLE_BYTES_MAX: u64 = 1 << 32;
/// Longest text in front of the numbers, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 16;
const NPY: &[u8] = b"\x93NUMPY";
const ZIP: &[u8] = b"PK\x03\x04";
const END_OF_DIRECTORY: &[u8] = b"PK\x05\x06";
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";

/// Numbers of a file, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// Length of each dimension, slowest first.
    pub shape: Vec<usize>,
    /// The numbers, as many as the shape says.
    pub values: Vec<f32>,
}

/// True if the bytes begin as a NumPy file does.
pub fn is_numpy(bytes: &[u8]) -> bool {
    bytes.starts_with(NPY) || bytes.starts_with(ZIP)
}

/// Reads a file. In an archive it takes the table `name`, or the only one.
///
/// # Errors
/// What is wrong with the file, in words.
pub fn read(bytes: &[u8], name: &str) -> Result<Numbers, String> {
    if bytes.starts_with(ZIP) { npy(&entry(bytes, name)?) } else { npy(bytes) }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(usize::from(u16::from_le_bytes(two.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u64::from(u32::from_le_bytes(four.try_into().ok()?)))
}

/// One entry of the directory of an archive.
struct Entry<'a> {
    name: &'a [u8],
    method: usize,
    checksum: u32,
    packed: u64,
    unpacked: u64,
    at: u64,
    /// Offset of the next entry.
    next: usize,
}

impl<'a> Entry<'a> {
    fn read(bytes: &'a [u8], at: usize) -> Option<Self> {
        let head = bytes.get(at..at.checked_add(46)?)?;
        if !head.starts_with(DIRECTORY_ENTRY) {
            return None;
        }
        let name_at = at + 46;
        let name = bytes.get(name_at..name_at + u16_at(head, 28)?)?;
        let next = name_at + name.len() + u16_at(head, 30)? + u16_at(head, 32)?;
        Some(Self {
            name,
            method: u16_at(head, 10)?,
            checksum: u32_at(head, 16)? as u32,
            packed: u32_at(head, 20)?,
            unpacked: u32_at(head, 24)?,
            at: u32_at(head, 42)?,
            next,
        })
    }
}

/// The table of this name in an archive, or the only one, unpacked.
fn entry(bytes: &[u8], name: &str) -> Result<Vec<u8>, String> {
    const NO_ARCHIVE: &str = "it is not an archive as numpy.savez writes it";
    // The end record of the directory has 22 bytes; a comment may follow.
    let tail = bytes.len().saturating_sub(22 + 65_535);
    let end = bytes[tail..].windows(4).rposition(|four| four == END_OF_DIRECTORY).map(|at| tail + at).ok_or(NO_ARCHIVE)?;
    if bytes.len() < end + 22 {
        return Err(NO_ARCHIVE.into());
    }
    let count = u16_at(bytes, end + 10).ok_or(NO_ARCHIVE)?;
    let mut at = u32_at(bytes, end + 16).ok_or(NO_ARCHIVE)? as usize;
    let wanted = format!("{name}.npy");
    let (mut found, mut names) = (None, Vec::new());
    for _ in 0..count {
        let entry = Entry::read(bytes, at).ok_or(NO_ARCHIVE)?;
        at = entry.next;
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        if entry.name == wanted.as_bytes() || count == 1 {
            found = Some(entry);
        }
    }
    let entry = found.ok_or_else(|| format!("it has no {wanted}, but {}", names.join(", ")))?;
    if entry.unpacked > TABLE_BYTES_MAX - 1 || entry.packed >= u64::from(u32::MAX) {
        return Err("its table has 4 GiB or more".into());
    }
    let local = entry.at as usize;
    let lengths = u16_at(bytes, local.saturating_add(26)).zip(u16_at(bytes, local.saturating_add(28)));
    let (name_bytes, extra_bytes) = lengths.ok_or(NO_ARCHIVE)?;
    let from = local + 30 + name_bytes + extra_bytes;
    let packed = bytes.get(from..from + entry.packed as usize).ok_or("its archive is cut off")?;
    let mut out = Vec::new();
    match entry.method {
        0 => out.extend_from_slice(packed),
        8 => {
            // At most one byte more than was announced: enough to detect a wrong length, and bounded.
            let mut stream = DeflateDecoder::new(packed).take(entry.unpacked + 1);
            stream.read_to_end(&mut out).map_err(|error| format!("its archive cannot be unpacked: {error}"))?;
        }
        other => return Err(format!("its archive is packed by zip method {other}; only stored and deflated are supported")),
    }
    let mut checksum = flate2::Crc::new();
    checksum.update(&out);
    if out.len() as u64 != entry.unpacked || checksum.sum() != entry.checksum {
        return Err("its archive is damaged: length or checksum do not match its directory".into());
    }
    Ok(out)
}

/// The value of a key in the header text, a Python dictionary that NumPy writes on one line.
fn item<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    let rest = rest.trim_start();
    let end = if rest.starts_with('(') { rest.find(')')? + 1 } else { rest.find([',', '}'])? };
    Some(rest[..end].trim())
}

fn npy(bytes: &[u8]) -> Result<Numbers, String> {
    const NO_TABLE: &str = "it is not a .npy file";
    let (length, from) = match bytes.get(6) {
        _ if !bytes.starts_with(NPY) => return Err(NO_TABLE.into()),
        Some(1) => (u16_at(bytes, 8), 10),
        Some(2 | 3) => (u32_at(bytes, 8).map(|n| n as usize), 12),
        _ => (None, 0),
    };
    let length = length.filter(|length| *length <= HEADER_BYTES_MAX).ok_or(NO_TABLE)?;
    let text = bytes.get(from..from + length).and_then(|text| std::str::from_utf8(text).ok()).ok_or(NO_TABLE)?;
    let (kind, order, shape) = (item(text, "descr"), item(text, "fortran_order"), item(text, "shape"));
    let (Some(kind), Some(order), Some(shape)) = (kind, order, shape) else { return Err(NO_TABLE.into()) };
    if order != "False" {
        return Err("it is in Fortran order; write it with numpy.ascontiguousarray".into());
    }
    let lengths = shape.trim_matches(['(', ')']).split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::parse);
    let shape: Vec<usize> = lengths.collect::<Result<_, _>>().map_err(|_| NO_TABLE)?;
    let data = &bytes[from + length..];
    let kind = kind.trim_matches('\'');
    let size = match kind {
        "<f8" => 8,
        "<f4" => 4,
        "<u2" => 2,
        other => return Err(format!("its numbers are {}; float64, float32 and uint16 are supported", other.escape_debug())),
    };
    let count = shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).filter(|count| *count > 0);
    if count.and_then(|count| count.checked_mul(size)) != Some(data.len()) {
        return Err(format!("it has {} bytes for a table of shape {shape:?}", data.len()));
    }
    let values = match kind {
        "<f8" => data.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect(),
        "<f4" => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        _ => data.as_chunks().0.iter().map(|bytes| f32::from(u16::from_le_bytes(*bytes))).collect(),
    };
    Ok(Numbers { shape, values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::DeflateEncoder;

    fn table(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}          \n");
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend((text.len() as u16).to_le_bytes());
        out.extend(text.bytes());
        out.extend(data);
        out
    }

    fn f8(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// An archive as `numpy.savez` and `savez_compressed` write it: the lengths of the local header are in an extra
    /// field.
    fn archive(entries: &[(&str, &[u8])], deflate: bool) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, data) in entries {
            let mut packed = Vec::new();
            if deflate {
                DeflateEncoder::new(*data, Compression::new(6)).read_to_end(&mut packed).unwrap();
            } else {
                packed.extend_from_slice(data);
            }
            let mut checksum = flate2::Crc::new();
            checksum.update(data);
            let (name, at) = (format!("{name}.npy"), out.len() as u32);
            let common = |sizes: [u32; 2], extra: u16| {
                let mut head = vec![45, 0, 0, 0, if deflate { 8 } else { 0 }, 0, 0, 0, 0x21, 0];
                head.extend(checksum.sum().to_le_bytes());
                head.extend(sizes.map(u32::to_le_bytes).concat());
                head.extend([name.len() as u16, extra].map(u16::to_le_bytes).concat());
                head
            };
            out.extend(ZIP);
            out.extend(common([u32::MAX; 2], 20));
            out.extend(name.bytes());
            out.extend([1, 0, 16, 0]);
            out.extend((data.len() as u64).to_le_bytes());
            out.extend((packed.len() as u64).to_le_bytes());
            out.extend(&packed);
            directory.extend(DIRECTORY_ENTRY);
            directory.extend([45, 3]);
            directory.extend(common([packed.len() as u32, data.len() as u32], 0));
            directory.extend([0; 10]);
            directory.extend(at.to_le_bytes());
            directory.extend(name.bytes());
        }
        let (at, length, count) = (out.len() as u32, directory.len() as u32, entries.len() as u16);
        out.extend(directory);
        out.extend(END_OF_DIRECTORY);
        out.extend([0; 4]);
        out.extend([count, count].map(u16::to_le_bytes).concat());
        out.extend([length, at].map(u32::to_le_bytes).concat());
        out.extend([0, 0]);
        out
    }

    #[test]
    fn tables_of_numpy_are_read() {
        let numbers = read(&table("<f8", "(1, 2, 3)", &f8(&[0.5, 1.0, 2.0, 3.0, 4.0, -5.25])), "t").unwrap();
        assert_eq!((numbers.shape, numbers.values), (vec![1, 2, 3], vec![0.5, 1.0, 2.0, 3.0, 4.0, -5.25]));
        let numbers = read(&table("<u2", "(2,)", &[1, 0, 0, 1]), "t").unwrap();
        assert_eq!((numbers.shape, numbers.values), (vec![2], vec![1.0, 256.0]));
        let wanted = table("<f4", "(2,)", &[1f32, -2.0].map(f32::to_le_bytes).concat());
        for deflate in [false, true] {
            let file = archive(&[("other", b"x"), ("t", &wanted)], deflate);
            assert!(is_numpy(&file));
            assert_eq!(read(&file, "t").unwrap().values, [1.0, -2.0]);
            assert_eq!(read(&file, "u").unwrap_err(), "it has no u.npy, but other.npy, t.npy");
            assert_eq!(read(&archive(&[("any", &wanted)], deflate), "t").unwrap().shape, [2]);
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let refused = |bytes: &[u8], why: &str| {
            let said = read(bytes, "t").unwrap_err();
            assert!(said.contains(why), "{said}");
        };
        refused(b"text", "not a .npy file");
        refused(&table("<f8", "(2,)", &f8(&[1.0])), "8 bytes for a table of shape [2]");
        refused(&table("<f8", "(99999999999, 99999999999)", &f8(&[1.0])), "8 bytes for");
        refused(&table(">f8", "(1,)", &f8(&[1.0])), "float64, float32 and uint16 are supported");
        refused(&table("<f8", "(0,)", &[]), "0 bytes for a table");
        let fortran = String::from_utf8_lossy(&table("<f4", "(1,)", &[0; 4])[6..]).replace("False", "True ");
        refused(&[NPY, fortran.as_bytes()].concat(), "Fortran");
        let good = archive(&[("t", &table("<f4", "(1,)", &[0; 4]))], true);
        for cut in 0..good.len() {
            assert!(read(&good[..cut], "t").is_err(), "cut at {cut}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            // Some bytes are not needed, so reading may succeed; no damaged byte may cause a panic.
            let _ = read(&bad, "t");
        }
    }
}
