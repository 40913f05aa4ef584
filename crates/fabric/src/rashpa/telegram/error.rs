//! What can be wrong with a telegram.

/// Bytes of a telegram at most.
pub const BYTES_MAX: usize = 1 << 20;
/// The version of the schema.
pub const VERSION: u32 = 1;

/// Why bytes are no telegram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTelegram {
    /// Too long, by what came or by what the length before it says.
    #[error("a telegram has 1 to {BYTES_MAX} bytes, not {0}; check what is connected to this port")]
    Length(u64),
    /// Not UTF-8.
    #[error("the telegram is no UTF-8: byte {0} is wrong")]
    Utf8(usize),
    /// A document type, which could define entities.
    #[error("the telegram has a document type (DTD), which is not allowed; leave it out")]
    DocumentType,
    /// Not well-formed.
    #[error("the telegram is no XML: {0}")]
    Xml(String),
    /// Another version of the schema.
    #[error("the telegram has version {0}, but version {VERSION} is understood")]
    Version(u32),
    /// An element that does not belong there.
    #[error("line {line}: element <{element}> has no place in <{parent}>")]
    Element {
        /// Line of the telegram, from 1.
        line: u32,
        /// What came.
        element: String,
        /// Where.
        parent: String,
    },
    /// An element that is not there.
    #[error("line {line}: <{parent}> needs exactly one element that says what the telegram is")]
    NoBody {
        /// Line of the telegram, from 1.
        line: u32,
        /// Where.
        parent: String,
    },
    /// An attribute that does not belong there.
    #[error("line {line}: <{element}> has no attribute {attribute}")]
    Attribute {
        /// Line of the telegram, from 1.
        line: u32,
        /// Where.
        element: String,
        /// What came.
        attribute: String,
    },
    /// An attribute that is not there.
    #[error("line {line}: <{element}> needs the attribute {attribute}")]
    Missing {
        /// Line of the telegram, from 1.
        line: u32,
        /// Where.
        element: String,
        /// What is missing.
        attribute: &'static str,
    },
    /// A value that is none.
    #[error("line {line}: {attribute} of <{element}> is '{value}', but has to be {expected}")]
    Value {
        /// Line of the telegram, from 1.
        line: u32,
        /// Where.
        element: String,
        /// Of which attribute.
        attribute: &'static str,
        /// What came, cut to 40 characters.
        value: String,
        /// What can be.
        expected: String,
    },
    /// Text between elements.
    #[error("line {line}: <{element}> has text in it; values are attributes")]
    Text {
        /// Line of the telegram, from 1.
        line: u32,
        /// Where.
        element: String,
    },
    /// Too many elements of one kind.
    #[error("line {line}: <{element}> comes more than {most} times")]
    TooMany {
        /// Line of the telegram, from 1.
        line: u32,
        /// Of which element.
        element: &'static str,
        /// How many may come.
        most: usize,
    },
}
