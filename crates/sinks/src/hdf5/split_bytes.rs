//! Turns a file with the structure of image stacks, and none of their chunks, into the first part of a split file: adds
//! the index of the chunks, and what the split driver of HDF5 must know. The chunks lie in another file.
//!
//! Facts of the HDF5 file format (version 3.0 of its specification), all little endian:
//! - superblock 2: signature (8), version, sizes of offsets (8) and lengths (8), flags, base address (8), address of
//!   the extension (8 at 20), end of the file (8 at 28), root (8), checksum (4 at 44);
//! - object header 1: version, 0, messages (2), references (4), bytes (4), 4 zeros; message: type (2), bytes (2),
//!   flags, 3 zeros. Type 8 is the layout: version 3, class 2 (chunks), dimensions + 1, address of the index (8 at 3).
//!   Type 16 is a continuation: address (8), bytes (8). Type 20 is the driver: version 0, name (8), bytes (2),
//!   information;
//! - index (B-tree 1): "TREE", 1, level, entries (2), left (8), right (8), then keys and addresses in turn, one key
//!   more than addresses. Key: bytes of the chunk (4), filters left out (4), offset of its first value in each
//!   dimension (8 each), 0 (8). A node has place for 64 entries;
//! - information of the split driver: which part holds what (8), then start and end (8, 8) of both parts, then the two
//!   names, padded to 8 bytes. The pixels begin at address 2^63 - 1.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::header::{messages, number, wrong};
use super::mappings::lookup3;

/// Address at which the second part begins.
const RAW_BASE: u64 = u64::MAX / 2;
/// Address that says that there is nothing.
const NOWHERE: u64 = u64::MAX;
/// Entries of a node: twice the K of chunk indices in files that do not say another one.
const ENTRIES_MAX: usize = 64;
const SUPERBLOCK: usize = 48;
/// Type of the message that says how values are stored.
const LAYOUT: u64 = 8;

/// One stack of a split file.
pub struct SplitStack {
    /// Address of its object header.
    pub header: u64,
    /// Shape of a chunk, in pixels.
    pub chunk: Vec<u64>,
    /// Its chunks, in the order of their offsets.
    pub chunks: Vec<SplitChunk>,
}

/// A chunk, by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitChunk {
    /// Index of its first pixel in each dimension.
    pub start: Vec<u64>,
    /// Where it begins in the second part, bytes.
    pub offset: u64,
    /// Bytes as stored.
    pub bytes: u32,
    /// Whether it was stored without its filters.
    pub is_plain: bool,
}

/// Completes the file at `path`. The second part ends at `raw_bytes`; `raw_name` is how the driver calls it.
///
/// # Errors
/// I/O; the file has not the form that this program writes (`InvalidData`).
pub fn complete(path: &Path, stacks: &[SplitStack], raw_bytes: u64, raw_name: &str) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut superblock = [0; SUPERBLOCK];
    file.read_exact_at(&mut superblock, 0)?;
    let sizes_are_8 = superblock[9..12] == [8, 8, 0];
    if &superblock[..9] != b"\x89HDF\r\n\x1a\n\x02" || !sizes_are_8 || number(&superblock[12..20]) != 0 {
        return Err(wrong("its superblock has not version 2 at address 0"));
    }
    if number(&superblock[20..28]) != NOWHERE {
        return Err(wrong("its superblock has an extension already"));
    }
    let mut end = file.metadata()?.len().next_multiple_of(8);
    for stack in stacks.iter().filter(|stack| !stack.chunks.is_empty()) {
        let at = layout_of(&file, stack.header)?;
        let (nodes, root) = index(stack, end);
        file.write_all_at(&nodes, end)?;
        end += nodes.len() as u64;
        file.write_all_at(&root.to_le_bytes(), at)?;
    }
    // Its own length is part of it: the length without the end is known.
    let length = extension(0, raw_bytes, raw_name).len() as u64;
    let whole = end + length;
    file.write_all_at(&extension(whole, raw_bytes, raw_name), end)?;
    superblock[20..28].copy_from_slice(&end.to_le_bytes());
    superblock[28..36].copy_from_slice(&whole.to_le_bytes());
    let sum = lookup3(&superblock[..44]);
    superblock[44..].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&superblock, 0)?;
    file.sync_all()
}

/// Where the address of the index stands in the header of a stack.
fn layout_of(file: &File, header: u64) -> io::Result<u64> {
    match layout_message(file, header)? {
        (at, [3, 2]) => Ok(at + 3),
        _ => Err(wrong("the layout of a stack has not version 3 with chunks")),
    }
}

/// Whether the values of a data set of ours are stored in chunks, by the bytes of its header at `header`: libhdf5 may
/// crash where it opens a virtual one that is damaged.
pub(super) fn is_in_chunks(path: &Path, header: u64) -> bool {
    let class = || layout_message(&File::open(path)?, header).map(|(_, [_, class])| class);
    class().is_ok_and(|class| class == 2)
}

/// Where the layout of a data set stands, and its version and class.
fn layout_message(file: &File, header: u64) -> io::Result<(u64, [u8; 2])> {
    let found = messages(file, header)?.into_iter().find(|message| message.kind == LAYOUT && message.bytes >= 11);
    let at = found.ok_or_else(|| wrong("the header of a data set has no layout"))?.at;
    let mut kind = [0; 2];
    file.read_exact_at(&mut kind, at)?;
    Ok((at, kind))
}

/// The nodes of the index of a stack, to be written at `place`, and the address of its root.
fn index(stack: &SplitStack, place: u64) -> (Vec<u8>, u64) {
    let key_bytes = 8 + 8 * (stack.chunk.len() + 1);
    let node_bytes = 24 + ENTRIES_MAX * 8 + (ENTRIES_MAX + 1) * key_bytes;
    let key = |chunk: &SplitChunk| {
        let mut key = Vec::with_capacity(key_bytes);
        key.extend(chunk.bytes.to_le_bytes());
        key.extend(u32::from(chunk.is_plain).to_le_bytes());
        chunk.start.iter().chain([&0]).for_each(|start| key.extend(start.to_le_bytes()));
        key
    };
    // Behind the last chunk: the first offsets that no chunk has.
    let last = stack.chunks.last().map_or_else(Vec::new, |chunk| {
        let start = chunk.start.iter().zip(&stack.chunk).map(|(start, size)| start + size).collect();
        key(&SplitChunk { start, offset: 0, bytes: 0, is_plain: false })
    });
    let mut level: Vec<(Vec<u8>, u64)> =
        stack.chunks.iter().map(|chunk| (key(chunk), RAW_BASE.wrapping_add(chunk.offset))).collect();
    let mut nodes = Vec::new();
    for height in 0u8.. {
        let (mut above, count) = (Vec::new(), level.len().div_ceil(ENTRIES_MAX));
        let first = place + nodes.len() as u64;
        let address = |n: usize| first + (n * node_bytes) as u64;
        for (n, entries) in level.chunks(ENTRIES_MAX).enumerate() {
            let begin = nodes.len();
            nodes.extend(b"TREE\x01");
            nodes.push(height);
            nodes.extend((entries.len() as u16).to_le_bytes());
            nodes.extend(n.checked_sub(1).map_or(NOWHERE, address).to_le_bytes());
            nodes.extend((if n + 1 < count { address(n + 1) } else { NOWHERE }).to_le_bytes());
            for (key, child) in entries {
                nodes.extend(key);
                nodes.extend(child.to_le_bytes());
            }
            nodes.extend(level.get((n + 1) * ENTRIES_MAX).map_or(&last, |(key, _)| key));
            nodes.resize(begin + node_bytes, 0);
            above.push((entries[0].0.clone(), address(n)));
        }
        if count == 1 {
            return (nodes, first);
        }
        level = above;
    }
    unreachable!("each level has fewer nodes than the one below")
}

/// The extension of the superblock: an object header of version 1 with the information of the driver. `end` is the end
/// of the file with the structure.
fn extension(end: u64, raw_bytes: u64, raw_name: &str) -> Vec<u8> {
    let padded = |name: &str| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
        bytes
    };
    let mut information = vec![1, 1, 3, 3, 1, 1, 0, 0];
    for address in [0, end, RAW_BASE, raw_bytes] {
        information.extend(address.to_le_bytes());
    }
    information.extend(padded("%s.meta.h5"));
    information.extend(padded(&format!("%s{raw_name}")));
    let mut body = vec![0];
    body.extend(b"NCSAmult");
    body.extend((information.len() as u16).to_le_bytes());
    body.extend(information);
    body.resize(body.len().next_multiple_of(8), 0);
    let mut out = vec![1, 0, 1, 0, 1, 0, 0, 0];
    out.extend((body.len() as u32 + 8).to_le_bytes());
    out.extend([0; 4]);
    out.extend([20, 0]);
    out.extend((body.len() as u16).to_le_bytes());
    out.extend([0; 4]);
    out.extend(body);
    out
}
