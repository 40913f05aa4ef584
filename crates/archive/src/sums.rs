//! Places and sums of the chunks of a file, as text: one line for each, columns separated by tabs. With them a changed
//! byte is named down to the image without a library for HDF5.

use std::fmt::Write as _;

/// First line of each file of sums.
const HEAD: &str = "# dataset\timage\toffset\tbytes\tcrc32";
/// A file with more lines than this is not read.
const LINES_MAX: usize = 50_000_000;

/// A part of a file that belongs to one image, or to one data set that is stored in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Path of the data set in the file.
    pub dataset: String,
    /// Number of the image, from 0; with several leading dimensions their indices, separated by commas. Of a data set
    /// in one piece "-".
    pub image: String,
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Its length as stored, bytes.
    pub bytes: u64,
    /// CRC-32 (IEEE 802.3, as zlib's) of these bytes.
    pub crc32: u32,
}

impl Chunk {
    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// What it is, for people.
    pub fn name(&self) -> String {
        if self.image == "-" { self.dataset.clone() } else { format!("{}, image {}", self.dataset, self.image) }
    }
}

/// The lines of some chunks.
pub fn to_text(chunks: &[Chunk]) -> String {
    let mut text = format!("{HEAD}\n");
    for Chunk { dataset, image, offset, bytes, crc32 } in chunks {
        let dataset = dataset.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
        let _ = writeln!(text, "{dataset}\t{image}\t{offset}\t{bytes}\t{crc32:08x}");
    }
    text
}

/// The chunks of some lines; `None` if one of them is not of this form.
pub fn from_text(text: &str) -> Option<Vec<Chunk>> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return None;
    }
    lines.take(LINES_MAX + 1).enumerate().map(|(n, line)| if n < LINES_MAX { line_of(line) } else { None }).collect()
}

fn line_of(line: &str) -> Option<Chunk> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let (dataset, image, offset, bytes, crc32) = (next()?, next()?, next()?, next()?, next()?);
    let chunk = Chunk {
        dataset: unescaped(dataset),
        image: image.into(),
        offset: offset.parse().ok()?,
        bytes: bytes.parse().ok()?,
        crc32: u32::from_str_radix(crc32, 16).ok()?,
    };
    (fields.next().is_none() && chunk.offset.checked_add(chunk.bytes).is_some()).then_some(chunk)
}

fn unescaped(text: &str) -> String {
    let mut letters = text.chars();
    let mut out = String::new();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                other => out.extend(other),
            },
            (letter, _) => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_and_others_are_refused() {
        let chunk = |dataset: &str, image: &str| Chunk {
            dataset: dataset.into(),
            image: image.into(),
            offset: 4096,
            bytes: 17,
            crc32: 0xdead_beef,
        };
        let chunks = [chunk("/entry/data/data", "0"), chunk("/a\tb\\n\nc", "3,1"), chunk("/entry/mask", "-")];
        assert_eq!(from_text(&to_text(&chunks)).expect("they are read"), chunks);
        assert_eq!(from_text(&to_text(&[])).expect("no chunk"), []);
        assert_eq!(chunks[0].name(), "/entry/data/data, image 0");
        for bad in [
            "",
            "# other\n",
            "# dataset\timage\toffset\tbytes\tcrc32\na\t0\t1\t2",
            "# dataset\timage\toffset\tbytes\tcrc32\na\t0\t-1\t2\t00000000",
            "# dataset\timage\toffset\tbytes\tcrc32\na\t0\t1\t18446744073709551615\t0",
            "# dataset\timage\toffset\tbytes\tcrc32\na\t0\t1\t2\t00000000\tx",
        ] {
            assert!(from_text(bad).is_none(), "{bad}");
        }
    }
}
