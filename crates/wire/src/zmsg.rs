//! Captures of multipart messages (`.zmsg`): one message after the other, as they came from a ZeroMQ socket. Each is a
//! u32 count of parts, then for each part a u32 length and the bytes. All integers are little-endian.
//!
//! Facts relied on: there is no header and no end mark, so a file that ends between two messages is complete, and one
//! that ends elsewhere was cut; a message has at least one part; parts may be empty. The format does not say which
//! protocol the messages belong to.

use std::fmt;
use std::io::{self, Read, Write};

/// The sizes that a reader accepts, so that a broken file cannot use up the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Parts of one message.
    pub parts_max: usize,
    /// Bytes of all parts of one message together.
    pub message_bytes_max: usize,
}

impl Default for Bounds {
    /// 1024 parts, 1 GiB.
    fn default() -> Self {
        Self { parts_max: 1024, message_bytes_max: 1 << 30 }
    }
}

/// Why the next message could not be read.
#[derive(Debug)]
pub enum Error {
    /// The capture is cut short or holds numbers beyond the bounds.
    Malformed {
        /// Byte of the capture at which the message begins.
        message_at_byte: u64,
        /// Number of the message, from 0.
        message: u64,
        /// What is wrong, as a text for the user.
        why: String,
    },
    /// The bytes could not be read.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Malformed { message_at_byte, message, why } => {
                write!(f, "message {message} (at byte {message_at_byte}): {why}")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// One message, in memory that is reused for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
    /// End of each part in `bytes`.
    ends: Vec<usize>,
}

impl Message {
    /// The parts, in order.
    pub fn parts(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end]).collect()
    }
}

/// Reads a capture message by message.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    bounds: Bounds,
    at_byte: u64,
    message: u64,
}

impl<R: Read> Reader<R> {
    /// A reader of `source`, which must begin with a message. It is read in small pieces, so it should be buffered.
    pub fn new(source: R, bounds: Bounds) -> Self {
        Self { source, bounds, at_byte: 0, message: 0 }
    }

    /// Messages read so far.
    pub fn messages(&self) -> u64 {
        self.message
    }

    /// Puts the next message into `message`; `false` at the end of the capture.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a cut capture, no parts, or sizes beyond the bounds; memory grows with bytes that came,
    /// never with bytes that were announced. After an error the reader is of no further use.
    pub fn read(&mut self, message: &mut Message) -> Result<bool, Error> {
        message.bytes.clear();
        message.ends.clear();
        let mut used = 0;
        let Some(parts) = self.number(&mut used, true)? else { return Ok(false) };
        if parts == 0 || parts > self.bounds.parts_max {
            return Err(self.malformed(format!("it has {parts} parts; 1 to {} are accepted", self.bounds.parts_max)));
        }
        for part in 0..parts {
            let bytes = self.number(&mut used, false)?.unwrap_or(0);
            let room = self.bounds.message_bytes_max - message.bytes.len();
            if bytes > room {
                let most = self.bounds.message_bytes_max;
                return Err(self.malformed(format!("part {part} has {bytes} bytes; a message may have {most} in all")));
            }
            let came = (&mut self.source).take(bytes as u64).read_to_end(&mut message.bytes).map_err(Error::Io)?;
            if came < bytes {
                return Err(self.malformed(format!("the capture ends after {came} of the {bytes} bytes of part {part}")));
            }
            message.ends.push(message.bytes.len());
            used += bytes as u64;
        }
        self.at_byte += used;
        self.message += 1;
        Ok(true)
    }

    /// The next u32; `None` at the end of the capture where that is allowed.
    fn number(&mut self, used: &mut u64, may_end: bool) -> Result<Option<usize>, Error> {
        let mut bytes = Vec::with_capacity(4);
        (&mut self.source).take(4).read_to_end(&mut bytes).map_err(Error::Io)?;
        *used += 4;
        match bytes.first_chunk() {
            Some(four) => Ok(Some(u32::from_le_bytes(*four) as usize)),
            None if bytes.is_empty() && may_end => Ok(None),
            None => Err(self.malformed("the capture ends inside a count or length".into())),
        }
    }

    fn malformed(&self, why: String) -> Error {
        Error::Malformed { message_at_byte: self.at_byte, message: self.message, why }
    }
}

/// Appends one message to a capture.
///
/// # Errors
/// Those of the writer; `InvalidInput` for a message without parts, or with a part or count beyond 32 bits, of which
/// nothing is written.
pub fn write(target: &mut impl Write, parts: &[impl AsRef<[u8]>]) -> io::Result<()> {
    let number = |n: usize| u32::try_from(n).map(u32::to_le_bytes).map_err(|_| invalid("a part of 4 GiB or more"));
    if parts.is_empty() {
        return Err(invalid("a message without parts"));
    }
    let lengths = parts.iter().map(|part| number(part.as_ref().len())).collect::<io::Result<Vec<_>>>()?;
    target.write_all(&number(parts.len())?)?;
    for (part, length) in parts.iter().zip(lengths) {
        target.write_all(&length)?;
        target.write_all(part.as_ref())?;
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what} cannot be stored in a capture"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Bounds = Bounds { parts_max: 4, message_bytes_max: 64 };

    fn read_all(bytes: &[u8], bounds: Bounds) -> Result<Vec<Vec<Vec<u8>>>, Error> {
        let (mut reader, mut message, mut all) = (Reader::new(bytes, bounds), Message::default(), Vec::new());
        while reader.read(&mut message)? {
            all.push(message.parts().iter().map(|part| part.to_vec()).collect());
        }
        assert_eq!(reader.messages(), all.len() as u64);
        Ok(all)
    }

    #[test]
    fn a_capture_is_what_the_table_says() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[b"ab".as_slice(), b""]).unwrap();
        assert_eq!(bytes, [2, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
        assert_eq!(write(&mut bytes, &[] as &[&[u8]]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(bytes.len(), 14);
    }

    #[test]
    fn sizes_beyond_the_bounds_are_refused_without_memory() {
        let why = |bytes: &[u8]| read_all(bytes, SMALL).unwrap_err().to_string();
        assert!(why(&[0, 0, 0, 0]).contains("message 0 (at byte 0): it has 0 parts"));
        assert!(why(&[0xFF; 8]).contains("4294967295 parts"));
        assert!(why(&[1, 0, 0, 0, 65, 0, 0, 0]).contains("65 bytes; a message may have 64"));
        let mut two = Vec::new();
        write(&mut two, &[b"abc"]).unwrap();
        two.extend([1, 0, 0, 0, 9, 0, 0, 0, 1]);
        assert!(why(&two).contains("message 1 (at byte 11): the capture ends after 1 of the 9 bytes"));
        // A part that is announced with 1 GiB and has no bytes takes no memory.
        let mut message = Message::default();
        Reader::new([1, 0, 0, 0, 0, 0, 0, 0x40].as_slice(), Bounds::default()).read(&mut message).unwrap_err();
        assert!(message.bytes.capacity() < 1 << 16);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            messages in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..16), 1..5), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            let mut ends = vec![0];
            for message in &messages {
                write(&mut bytes, message).unwrap();
                ends.push(bytes.len());
            }
            prop_assert_eq!(&read_all(&bytes, SMALL).unwrap(), &messages);
            let cut = cut.index(bytes.len() + 1);
            match read_all(&bytes[..cut], SMALL) {
                Ok(read) => prop_assert_eq!((read.as_slice(), ends[read.len()]), (&messages[..read.len()], cut)),
                Err(_) => prop_assert!(!ends.contains(&cut)),
            }
        }
    }
}
