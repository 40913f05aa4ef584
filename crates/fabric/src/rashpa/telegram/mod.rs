//! Telegrams: the XML by which the system manager asks and tells modules and receivers. ESRF published that they exist
//! and which words they use (EUCALL D5.2, 3.2.4), but no schema. This one is ours: `telegram.xsd` beside this file.
//!
//! A telegram is one element `rashpa` with version, number and sender, and one element in it that is what it says:
//! [`Body`]. [`Telegram::to_xml`] writes it and [`Telegram::from_xml`] reads it; both go through the same table of
//! elements and attributes (`elements.rs`), so they cannot differ. Over TCP a telegram has its length before it, 4
//! bytes, big-endian ([`length_of`]).
//!
//! What comes is not trusted: it has at most [`BYTES_MAX`] bytes and 40 000 nodes, no document type and so no entities,
//! no element, attribute or text that the table does not know, and lists have a bound. An error says what and where.

mod body;
mod elements;
mod error;
mod read;
mod text;
mod write;

pub use body::{
    Body, BuffersDefined, Credits, Map, ModuleCapabilities, Nack, ReceiveConfig, ReceiverCapabilities, ReceiverStatus, Status,
    Telegram,
};
pub use elements::{
    BufferPlace, BufferWish, Capability, Grant, Link, MapEntry, Memory, ModuleRing, Peer, ReceiveBufferEntry, ReceivedPart,
    ReceivedSlots, RingEntry, TransferEntry,
};
pub use error::{BYTES_MAX, BadTelegram, VERSION};
pub use text::{Code, Name, NotText, PeerKind, Sentence, State, Transform};

/// The length of the telegram behind these 4 bytes.
///
/// # Errors
/// [`BadTelegram::Length`]: nothing of it should be received.
pub fn length_of(prefix: [u8; 4]) -> Result<usize, BadTelegram> {
    let length = u32::from_be_bytes(prefix) as usize;
    if (1..=BYTES_MAX).contains(&length) { Ok(length) } else { Err(BadTelegram::Length(length as u64)) }
}

impl Telegram {
    /// Reads a telegram.
    ///
    /// # Errors
    /// [`BadTelegram`]: the first thing that is wrong.
    pub fn from_xml(bytes: &[u8]) -> Result<Self, BadTelegram> {
        read::telegram(bytes)
    }

    /// Writes a telegram.
    ///
    /// # Errors
    /// [`BadTelegram::Length`] or [`BadTelegram::TooMany`]: a receiver would refuse it.
    pub fn to_xml(&self) -> Result<String, BadTelegram> {
        write::telegram(self)
    }

    /// The telegram as it goes over TCP: its length, and then itself.
    ///
    /// # Errors
    /// As [`Self::to_xml`].
    pub fn to_frame(&self) -> Result<Vec<u8>, BadTelegram> {
        let xml = self.to_xml()?;
        // It has at most BYTES_MAX bytes.
        Ok([&(xml.len() as u32).to_be_bytes()[..], xml.as_bytes()].concat())
    }
}
