//! What ends a link.

/// The other side did what it must not; the link is of no further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side broke the rules of images to a writer: {0}")]
pub struct Violation(pub String);
