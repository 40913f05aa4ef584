//! Object headers, read in the bytes of a file: where their messages are, and the times in them.
//!
//! Facts of the HDF5 file format (version 3.0 of its specification), all little endian. Header of version 1: version,
//! 0, messages (2), references (4), bytes (4), 4 zeros; message: type (2), bytes (2), flags, 3 zeros, body. Type 16 is
//! a continuation: address (8), bytes (8). Type 18 is the time of the last change: version 1, 3 zeros, seconds since
//! 1970 (4). Header of version 2: "OHDR", version, flags; with flags bit 5 four times (4 each) at 6; with bit 4 four
//! bytes more; bytes of the messages in 1, 2, 4 or 8 bytes (bits 0 and 1); messages; checksum (4) of everything before.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::low;
use super::mappings::lookup3;
use super::objects::{self, Link};

/// Messages of a header that are looked at; more are not in a header of ours.
const MESSAGES_MAX: usize = 1 << 16;
/// Type of the message that says where the list goes on.
const CONTINUATION: u64 = 16;
/// Type of the message with the time of the last change.
const CHANGED: u64 = 18;

/// One message of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u64,
    /// Where its body begins in the file.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

pub(super) fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The address of the header of an object.
pub(super) fn address(token: objects::Token) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| token[n]))
}

/// The messages of a header of version 1.
///
/// # Errors
/// I/O, or it is not one (`InvalidData`).
pub(super) fn messages(file: &File, header: u64) -> io::Result<Vec<Message>> {
    let mut prefix = [0; 16];
    file.read_exact_at(&mut prefix, header)?;
    if prefix[0] != 1 {
        return Err(wrong("an object header has not version 1"));
    }
    let (mut found, mut blocks) = (Vec::new(), vec![(header.saturating_add(16), number(&prefix[8..12]))]);
    while let Some((mut at, bytes)) = blocks.pop() {
        let end = at.saturating_add(bytes);
        while at.saturating_add(8) <= end && found.len() < MESSAGES_MAX {
            let mut head = [0; 8];
            file.read_exact_at(&mut head, at)?;
            let message = Message { kind: number(&head[..2]), at: at + 8, bytes: number(&head[2..4]) };
            if message.kind == CONTINUATION && message.bytes >= 16 {
                let mut body = [0; 16];
                file.read_exact_at(&mut body, message.at)?;
                blocks.push((number(&body[..8]), number(&body[8..])));
            }
            found.push(message);
            at = message.at.saturating_add(message.bytes);
        }
    }
    Ok(found)
}

/// Gives all objects of a closed file of ours the same time, so that equal content makes equal bytes.
///
/// # Errors
/// The file cannot be read, or not be written.
pub(super) fn settle(path: &Path, seconds: u32) -> hdf5::Result<()> {
    let headers = headers(path)?;
    let io = || -> io::Result<()> {
        let file = File::options().read(true).write(true).open(path)?;
        for header in headers {
            let mut first = [0; 4];
            file.read_exact_at(&mut first, header)?;
            if &first == b"OHDR" {
                root(&file, header, seconds)?;
                continue;
            }
            for message in messages(&file, header)?.into_iter().filter(|message| message.kind == CHANGED && message.bytes >= 8) {
                file.write_all_at(&seconds.to_le_bytes(), message.at + 4)?;
            }
        }
        Ok(())
    };
    io().map_err(|error| hdf5::Error::from(error.to_string()))
}

/// Addresses of all object headers.
fn headers(path: &Path) -> hdf5::Result<BTreeSet<u64>> {
    let file = low::open_file(path)?;
    let root = file.group("/")?;
    let mut found = BTreeSet::from([address(objects::object(&root, ".")?.0)]);
    let mut open = vec![root];
    while let Some(group) = open.pop() {
        for name in group.member_names()? {
            if objects::link(&group, &name)? != Link::Hard {
                continue;
            }
            let (token, is_group) = objects::object(&group, &name)?;
            if found.insert(address(token)) && is_group {
                open.push(group.group(&name)?);
            }
        }
    }
    Ok(found)
}

/// The times in a header of version 2, and its checksum.
fn root(file: &File, header: u64, seconds: u32) -> io::Result<()> {
    let mut head = [0; 64];
    file.read_exact_at(&mut head, header)?;
    let flags = head[5];
    if head[4] != 2 || flags & 32 == 0 {
        return Ok(());
    }
    let digits = 1 << (flags & 3);
    let begin = 6 + 16 + if flags & 16 == 0 { 0 } else { 4 };
    let bytes = number(&head[begin..begin + digits]);
    if bytes > 1 << 24 {
        return Err(wrong("an object header is too long"));
    }
    let mut whole = vec![0; begin + digits + bytes as usize];
    file.read_exact_at(&mut whole, header)?;
    whole[6..22].copy_from_slice(&seconds.to_le_bytes().repeat(4));
    file.write_all_at(&whole, header)?;
    file.write_all_at(&lookup3(&whole).to_le_bytes(), header + whole.len() as u64)
}
