//! The messages between a producer and a consumer: a letter for the kind, then the fields in order, little endian.
//! Texts have their length before them, or are the rest of the message. The pixels follow `Work` as a further part.
//! What a consumer says stands in rows ([`add_to_row`]), because it has much to say and little each time.

use konkordia_core::fields::{Fields, WrongField};
use std::fmt;

/// Version of the messages; hosts with another one are refused.
pub const VERSION: u16 = 1;
/// Longest message, without pixels.
pub const MESSAGE_BYTES_MAX: usize = 1024;
/// Longest row of messages that are sent as one.
pub const ROW_BYTES_MAX: usize = 16 << 10;
/// Longest text in a message, in bytes; the rest is left out.
const TEXT_BYTES_MAX: usize = 500;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Begins the first message of a consumer.
const MAGIC: &[u8; 4] = b"KGRF";

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From a consumer: who it is and how many images it can take now.
    Hello {
        /// Version of its messages.
        version: u16,
        /// Its stage.
        stage: String,
        /// Its name among the processes of its stage.
        member: String,
        /// Grows with each start of this member.
        epoch: u64,
        /// Images that it can take.
        credits: u32,
        /// Images that it has and on which it has not finished its own work.
        pending: u32,
    },
    /// From a producer: who are you? It answers with `Hello`.
    Ask,
    /// From a producer: an image, whose bytes follow.
    Work {
        /// Its number.
        id: u64,
        /// How often it was sent, from 1.
        attempt: u32,
        /// All images with smaller numbers are finished in the whole graph.
        floor: u64,
    },
    /// From a producer: what became of this image? It answers with `Passed` or `Done`.
    Query {
        /// Its number.
        id: u64,
    },
    /// From a consumer: its own work on the image is finished, and it can take another one. The image is not safe yet.
    Passed {
        /// Its number.
        id: u64,
    },
    /// From a consumer: the image is safe, and need not be kept.
    Done {
        /// Its number.
        id: u64,
    },
    /// From a consumer: it cannot work on this image.
    Nack {
        /// Its number.
        id: u64,
        /// Why not.
        why: String,
    },
    /// From both sides: still there.
    Heartbeat {
        /// It waits for the stage behind it, so that its images take longer than its work.
        is_blocked: bool,
        /// From a producer: all images with smaller numbers are finished in the whole graph.
        floor: u64,
    },
    /// From a producer: it does not work with this consumer.
    Refused {
        /// Why not.
        why: String,
    },
    /// From a producer: all images are finished.
    End,
    /// From a consumer: it takes no more.
    Bye,
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl From<WrongField> for Malformed {
    fn from(wrong: WrongField) -> Self {
        Self(wrong.to_string())
    }
}

impl Message {
    /// The message as bytes, at most [`MESSAGE_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        match self {
            Self::Hello { version, stage, member, epoch, credits, pending } => {
                out.push(b'H');
                out.extend(MAGIC);
                out.extend(version.to_le_bytes());
                for name in [stage, member] {
                    let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
                    out.push(name.len() as u8);
                    out.extend(name.as_bytes());
                }
                out.extend(epoch.to_le_bytes());
                out.extend(credits.to_le_bytes());
                out.extend(pending.to_le_bytes());
            }
            Self::Ask => out.push(b'A'),
            Self::Work { id, attempt, floor } => {
                out.push(b'W');
                out.extend(id.to_le_bytes());
                out.extend(attempt.to_le_bytes());
                out.extend(floor.to_le_bytes());
            }
            Self::Query { id } => with_id(&mut out, b'Q', *id),
            Self::Passed { id } => with_id(&mut out, b'P', *id),
            Self::Done { id } => with_id(&mut out, b'D', *id),
            Self::Nack { id, why } => {
                with_id(&mut out, b'N', *id);
                out.extend(cut(why));
            }
            Self::Heartbeat { is_blocked, floor } => {
                out.extend([b'B', u8::from(*is_blocked)]);
                out.extend(floor.to_le_bytes());
            }
            Self::Refused { why } => {
                out.push(b'R');
                out.extend(cut(why));
            }
            Self::End => out.push(b'E'),
            Self::Bye => out.push(b'Y'),
        }
        out
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// They are no message of this version. A `Hello` of another version is read as far as its version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed(format!("a message of {} bytes, and {MESSAGE_BYTES_MAX} are possible", bytes.len())));
        }
        let mut fields = Fields::of(bytes).ok_or_else(|| Malformed("an empty message".into()))?;
        let message = match fields.kind() {
            b'H' => return hello(fields),
            b'A' => Self::Ask,
            b'W' => Self::Work { id: fields.number()?, attempt: fields.short_number()?, floor: fields.number()? },
            b'Q' => Self::Query { id: fields.number()? },
            b'P' => Self::Passed { id: fields.number()? },
            b'D' => Self::Done { id: fields.number()? },
            b'N' => Self::Nack { id: fields.number()?, why: fields.text() },
            b'B' => Self::Heartbeat { is_blocked: fields.flag()?, floor: fields.number()? },
            b'R' => Self::Refused { why: fields.text() },
            b'E' => Self::End,
            b'Y' => Self::Bye,
            kind => return Err(Malformed(format!("a message of unknown kind {kind}"))),
        };
        fields.end()?;
        Ok(message)
    }
}

/// Adds a message to a row of messages that are sent as one: its length, then itself. False, and nothing is added, if
/// the row would be too long.
pub fn add_to_row(row: &mut Vec<u8>, message: &Message) -> bool {
    let bytes = message.encode();
    if row.len() + 2 + bytes.len() > ROW_BYTES_MAX {
        return false;
    }
    row.extend((bytes.len() as u16).to_le_bytes());
    row.extend(bytes);
    true
}

/// The messages of a row.
///
/// # Errors
/// One of them is none.
pub fn decode_row(mut row: &[u8]) -> Result<Vec<Message>, Malformed> {
    if row.len() > ROW_BYTES_MAX {
        return Err(Malformed(format!("a row of messages of {} bytes, and {ROW_BYTES_MAX} are possible", row.len())));
    }
    let mut messages = Vec::new();
    while let Some((length, rest)) = row.split_first_chunk::<2>() {
        let (one, rest) = rest
            .split_at_checked(usize::from(u16::from_le_bytes(*length)))
            .ok_or_else(|| Malformed("a row of messages was cut off".into()))?;
        messages.push(Message::decode(one)?);
        row = rest;
    }
    if row.is_empty() { Ok(messages) } else { Err(Malformed("a row of messages was cut off".into())) }
}

fn with_id(out: &mut Vec<u8>, kind: u8, id: u64) {
    out.push(kind);
    out.extend(id.to_le_bytes());
}

fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn hello(mut fields: Fields<'_>) -> Result<Message, Malformed> {
    if &fields.bytes::<4>()? != MAGIC {
        return Err(Malformed("its first message is not that of a stage of a graph".into()));
    }
    let version = u16::from_le_bytes(fields.bytes()?);
    if version != VERSION {
        let (stage, member) = (String::new(), String::new());
        return Ok(Message::Hello { version, stage, member, epoch: 0, credits: 0, pending: 0 });
    }
    let (stage, member) = (name(&mut fields)?, name(&mut fields)?);
    let (epoch, credits, pending) = (fields.number()?, fields.short_number()?, fields.short_number()?);
    fields.end()?;
    Ok(Message::Hello { version, stage, member, epoch, credits, pending })
}

/// A text with its length before it, which is no longer than a name may be.
fn name(fields: &mut Fields<'_>) -> Result<String, Malformed> {
    let [length] = fields.bytes()?;
    let name = std::str::from_utf8(fields.part(length.into())?).ok().filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
    Ok(name.ok_or_else(|| fields.wrong())?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let (stage, member) = ("convert".to_owned(), "convert-1".to_owned());
        vec![
            Message::Hello { version: VERSION, stage, member, epoch: 7, credits: 8, pending: 2 },
            Message::Ask,
            Message::Work { id: 1 << 40, attempt: 3, floor: 17 },
            Message::Query { id: 4 },
            Message::Passed { id: 5 },
            Message::Done { id: 6 },
            Message::Nack { id: 7, why: "ValueError: no".into() },
            Message::Heartbeat { is_blocked: true, floor: 9 },
            Message::Refused { why: "another version".into() },
            Message::End,
            Message::Bye,
        ]
    }

    #[test]
    fn messages_come_back_and_cut_ones_are_refused() {
        for message in all() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes).unwrap(), message);
            for length in 0..bytes.len() {
                // A text may be cut anywhere: it is the rest of the message.
                let begins_at = match message {
                    Message::Nack { .. } => 9,
                    Message::Refused { .. } => 1,
                    _ => usize::MAX,
                };
                let is_text = length >= begins_at;
                assert_eq!(Message::decode(&bytes[..length]).is_ok(), is_text, "{message:?} cut to {length}");
            }
        }
    }

    #[test]
    fn a_row_of_messages_comes_back() {
        let mut row = Vec::new();
        assert!(all().iter().all(|message| add_to_row(&mut row, message)));
        assert_eq!(decode_row(&row).unwrap(), all());
        assert_eq!(decode_row(&[]).unwrap(), []);
        let whole: Vec<usize> = (1..=all().len())
            .map(|count| {
                let mut row = Vec::new();
                assert!(all()[..count].iter().all(|message| add_to_row(&mut row, message)));
                row.len()
            })
            .collect();
        for length in 1..row.len() {
            assert_eq!(decode_row(&row[..length]).is_ok(), whole.contains(&length), "cut to {length}");
        }
        while add_to_row(&mut row, &Message::Done { id: 7 }) {}
        assert!(row.len() > ROW_BYTES_MAX - 16 && decode_row(&row).is_ok());
        assert!(decode_row(&vec![0; ROW_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_hello_of_another_version_is_read_as_far_as_its_version() {
        let mut bytes = all()[0].encode();
        bytes[5..7].copy_from_slice(&9_u16.to_le_bytes());
        assert!(matches!(Message::decode(&bytes[..8]), Ok(Message::Hello { version: 9, .. })));
        bytes[1] = b'X';
        assert!(Message::decode(&bytes).unwrap_err().0.contains("not that of a stage"));
    }
}
