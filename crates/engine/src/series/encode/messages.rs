//! The messages of series for one consumer, and what every encoder of them does.

use bytes::Bytes;
use konkordia_core::series::{SeriesEnd, SeriesImage, SeriesStart};

/// A message: its parts.
pub type Parts = Vec<Bytes>;

/// Writes the messages of series for one consumer. Each call gives the messages that are to be sent now, in order,
/// perhaps none.
pub trait Encoder: Send {
    /// A series begins. If the start message needs facts that only the first image brings, it is sent with that image.
    ///
    /// # Errors
    /// The protocol cannot express it; in words for people. Images may be encoded all the same.
    fn start(&mut self, start: &SeriesStart) -> Result<Vec<Parts>, String>;

    /// An image. Nothing is sent for a position without pixels: no protocol has a message for it, and the image numbers
    /// show the gap.
    ///
    /// # Errors
    /// The protocol cannot express its pixels, or they cannot be unpacked; in words for people. Further images may be
    /// encoded.
    fn image(&mut self, image: &SeriesImage) -> Result<Vec<Parts>, String>;

    /// The series has ended.
    ///
    /// # Errors
    /// The protocol cannot express it; in words for people.
    fn end(&mut self, end: &SeriesEnd) -> Result<Vec<Parts>, String>;
}
