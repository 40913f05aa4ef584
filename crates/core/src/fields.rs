//! Reads the messages that programs of Konkordia send each other: a letter for the kind, then the fields in order,
//! little endian. Texts have their length before them, or are the rest of the message.

use std::fmt;

/// What is left of a message.
///
/// ```
/// use konkordia_core::fields::Fields;
///
/// let mut fields = Fields::of(b"D\x07\0\0\0\0\0\0\0\x01done").unwrap();
/// assert_eq!((fields.kind(), fields.number(), fields.flag()), (b'D', Ok(7), Ok(true)));
/// assert!(fields.end().is_err(), "a text is left");
/// assert_eq!(fields.text(), "done");
/// assert!(fields.end().is_ok() && fields.number().is_err());
/// ```
#[derive(Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
    kind: u8,
}

/// A message that is too short or too long for its fields, or has a field that cannot have this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongField {
    kind: u8,
}

impl fmt::Display for WrongField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message of kind '{}' has the wrong length or an impossible value", self.kind.escape_ascii())
    }
}

impl std::error::Error for WrongField {}

impl<'a> Fields<'a> {
    /// The fields of a message; `None` if it is empty.
    pub fn of(message: &'a [u8]) -> Option<Self> {
        message.split_first().map(|(kind, rest)| Self { rest, kind: *kind })
    }

    /// The letter of the message.
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// What to say of a field that cannot be right.
    pub fn wrong(&self) -> WrongField {
        WrongField { kind: self.kind }
    }

    /// So many bytes.
    ///
    /// # Errors
    /// The message is too short; so in all that follow.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], WrongField> {
        let (own, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.wrong())?;
        self.rest = rest;
        Ok(*own)
    }

    /// A whole number of 64 bits.
    ///
    /// # Errors
    /// See [`Fields::bytes`].
    pub fn number(&mut self) -> Result<u64, WrongField> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A whole number of 32 bits.
    ///
    /// # Errors
    /// See [`Fields::bytes`].
    pub fn short_number(&mut self) -> Result<u32, WrongField> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// It is neither, or see [`Fields::bytes`].
    pub fn flag(&mut self) -> Result<bool, WrongField> {
        match self.bytes()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(self.wrong()),
        }
    }

    /// A part of this length.
    ///
    /// # Errors
    /// See [`Fields::bytes`].
    pub fn part(&mut self, length: u64) -> Result<&'a [u8], WrongField> {
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (part, rest) = split.ok_or_else(|| self.wrong())?;
        self.rest = rest;
        Ok(part)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// All that is left, as text.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.rest()).into_owned()
    }

    /// The end of the message.
    ///
    /// # Errors
    /// Something is left.
    pub fn end(&self) -> Result<(), WrongField> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong()) }
    }
}
