//! What ends a link.

use konkordia_core::fields::WrongField;

/// The other side did what it must not; the link is of no further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side broke the rules of images to a writer: {0}")]
pub struct Violation(pub String);

impl From<WrongField> for Violation {
    fn from(wrong: WrongField) -> Self {
        Self(wrong.to_string())
    }
}
