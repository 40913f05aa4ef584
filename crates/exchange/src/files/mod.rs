//! Files of other programs with one or more images each: what they are by how they begin, and their images one by one.

mod content;
mod failures;
mod lzw;
mod opened;
mod series;
mod unpack;

pub use content::Content;
pub(crate) use failures::{other_form, wrong};
pub use opened::{Opened, RawForm, Reading, SUFFIXES};
pub use series::{Item, Order, Series};
pub use unpack::Unpack;
