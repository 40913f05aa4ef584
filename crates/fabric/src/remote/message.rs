//! The messages of both sides as bytes: a letter for the kind, then the fields in order, little endian. Texts and parts
//! are the rest of the message, or have their length before them.

use super::violation::Violation;
use konkordia_core::fields::{Fields, WrongField};

/// Version of the messages and of the heads in slots.
pub const VERSION: u16 = 1;
/// Longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the start or the end of a run in one message, at most.
pub const PART_BYTES: usize = 60_000;
/// Longest text in a message, in bytes; the rest is left out.
const TEXT_BYTES_MAX: usize = 8192;
/// Begins the first message of a sender.
const MAGIC: &[u8; 4] = b"KWRT";

/// The name of one run of one sender: 16 bytes that no other run has.
pub type Session = [u8; 16];

/// What both sides count of a run, and compare at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Images with pixels.
    pub images: u64,
    /// Bytes of their pixels as they are packed.
    pub bytes: u64,
}

impl Account {
    /// One image more, if it has pixels.
    pub fn add(&mut self, has_pixels: bool, bytes: u64) {
        self.images += u64::from(has_pixels);
        self.bytes += bytes;
    }

    /// What the writer lacks, or has beyond what the sender has sent, in words; `None` if both have counted the same.
    pub fn differs(sent: Self, written: Self) -> Option<String> {
        (sent != written).then(|| {
            format!(
                "the sender counts {} images with {} bytes, the writer {} images with {} bytes",
                sent.images, sent.bytes, written.images, written.bytes
            )
        })
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of the module says what each is; sizes are in bytes")]
pub enum Message {
    Hello { version: u16, session: Session, start_bytes: u64, slot_bytes: u64, has_begun: bool },
    Refused { why: String },
    Begin { wants_start: bool },
    Part { bytes: Vec<u8> },
    Ready { key: u64, slots: u32, slot_bytes: u64, taken_end: u64, durable_end: u64 },
    Free { slot: u32 },
    Durable { end: u64 },
    Failed { why: String },
    End { account: Account, end_bytes: u64 },
    Closed { account: Account, durable_end: u64, file: String, failure: String },
}

impl Message {
    /// The message as bytes, at most [`MESSAGE_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Hello { version, session, start_bytes, slot_bytes, has_begun } => {
                out.push(b'H');
                out.extend(MAGIC);
                out.extend(version.to_le_bytes());
                out.extend(session);
                numbers(&mut out, &[*start_bytes, *slot_bytes]);
                out.push(u8::from(*has_begun));
            }
            Self::Refused { why } => with_text(&mut out, b'R', why),
            Self::Begin { wants_start } => out.extend([b'B', u8::from(*wants_start)]),
            Self::Part { bytes } => {
                assert!(bytes.len() <= PART_BYTES, "parts are cut before");
                out.push(b'P');
                out.extend(bytes);
            }
            Self::Ready { key, slots, slot_bytes, taken_end, durable_end } => {
                out.push(b'Y');
                numbers(&mut out, &[*key, u64::from(*slots), *slot_bytes, *taken_end, *durable_end]);
            }
            Self::Free { slot } => {
                out.push(b'F');
                out.extend(slot.to_le_bytes());
            }
            Self::Durable { end } => {
                out.push(b'D');
                numbers(&mut out, &[*end]);
            }
            Self::Failed { why } => with_text(&mut out, b'X', why),
            Self::End { account, end_bytes } => {
                out.push(b'E');
                numbers(&mut out, &[account.images, account.bytes, *end_bytes]);
            }
            Self::Closed { account, durable_end, file, failure } => {
                out.push(b'C');
                let file = cut(file);
                numbers(&mut out, &[account.images, account.bytes, *durable_end, file.len() as u64]);
                out.extend(file.as_bytes());
                out.extend(cut(failure).as_bytes());
            }
        }
        out
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// They are no message of this version. A `Hello` of another version is read as far as its version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let mut fields = Fields::of(bytes).ok_or_else(|| Violation("an empty message".into()))?;
        let message = match fields.kind() {
            b'H' => return hello(fields),
            b'R' => Self::Refused { why: fields.text() },
            b'B' => Self::Begin { wants_start: fields.flag()? },
            b'P' => Self::Part { bytes: fields.rest().to_vec() },
            b'Y' => Self::Ready {
                key: fields.number()?,
                slots: u32::try_from(fields.number()?).map_err(|_| Violation("too many slots".into()))?,
                slot_bytes: fields.number()?,
                taken_end: fields.number()?,
                durable_end: fields.number()?,
            },
            b'F' => Self::Free { slot: fields.short_number()? },
            b'D' => Self::Durable { end: fields.number()? },
            b'X' => Self::Failed { why: fields.text() },
            b'E' => Self::End { account: account(&mut fields)?, end_bytes: fields.number()? },
            b'C' => {
                let (account, durable_end, length) = (account(&mut fields)?, fields.number()?, fields.number()?);
                let file = String::from_utf8_lossy(fields.part(length)?).into_owned();
                Self::Closed { account, durable_end, file, failure: fields.text() }
            }
            kind => return Err(Violation(format!("a message of unknown kind {kind}"))),
        };
        fields.end()?;
        Ok(message)
    }
}

fn hello(mut fields: Fields<'_>) -> Result<Message, Violation> {
    if &fields.bytes::<4>()? != MAGIC {
        return Err(Violation("its first message is not that of a sender of images".into()));
    }
    let version = u16::from_le_bytes(fields.bytes()?);
    if version != VERSION {
        return Ok(Message::Hello { version, session: [0; 16], start_bytes: 0, slot_bytes: 0, has_begun: false });
    }
    let (session, start_bytes, slot_bytes) = (fields.bytes()?, fields.number()?, fields.number()?);
    let has_begun = fields.flag()?;
    fields.end()?;
    Ok(Message::Hello { version, session, start_bytes, slot_bytes, has_begun })
}

fn numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}

fn with_text(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend(cut(text).as_bytes());
}

/// The beginning of a text that fits a message.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn account(fields: &mut Fields<'_>) -> Result<Account, WrongField> {
    Ok(Account { images: fields.number()?, bytes: fields.number()? })
}
