//! Images to a writer on another host, over a link that writes into the memory of that host: the rules of both sides.
//!
//! The writer registers memory that is divided into *slots*, and each slot is written by the sender only while it is
//! free. One image is: its pixels, as they are packed, behind a head in a slot, and the number of the slot as the event
//! of the last write. The writer says when a slot is free again, and up to which image everything is on its disk. The
//! sender keeps images until then, within bounds. When the link breaks, or the writer is started again, it asks what is
//! there and sends the rest again. At the end both sides compare their accounts.
//!
//! | message | from | what |
//! |---|---|---|
//! | `Hello` | sender | version, name of the session, sizes; has the session begun before? |
//! | `Refused` | writer | why it does not take the session; the end of it |
//! | `Begin` | writer | whether it needs the start of the run |
//! | `Part` | sender | a part of the start, or of the end |
//! | `Ready` | writer | its slots, and which images it has already |
//! | `Free` | writer | a slot may be written again: its image was taken |
//! | `Durable` | writer | the images before this number are on the disk |
//! | `Failed` | writer | it cannot write any more; it still takes the end |
//! | `End` | sender | the account of the sender; the text of the end follows in parts |
//! | `Closed` | writer | the account of the writer, when its files are closed |
//!
//! Read [`Sender`] and [`Receiver`] first; [`record`] has the bytes of an image in a slot.

mod message;
mod receiver;
pub mod record;
mod sender;
mod violation;

pub use message::{Account, MESSAGE_BYTES_MAX, Message, PART_BYTES, Session, VERSION};
pub use receiver::{Held, Limits, Receiver, Taken, ToDo};
pub use sender::{Action, Counts, Kept, Sender};
pub use violation::Violation;

#[cfg(test)]
mod tests;
