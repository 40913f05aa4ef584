//! `konkordia stream`, `record` and `replay`: generate, record and replay the ZeroMQ messages of a detector.

pub mod args;
pub mod capture;
mod content;
mod form;
pub mod record;
pub mod replay;
mod send;
pub mod stream;

use konkordia_core::failure::{Exit, Failure};

/// The failure for a socket that could not be opened or used. Reason and fix come from the text of the error.
fn socket_failure(error: &std::io::Error) -> Failure {
    let text = error.to_string();
    let (why, fix) = text.split_once("; ").unwrap_or((&text, "look at the address and at the network of this machine"));
    let exit = if error.kind() == std::io::ErrorKind::InvalidInput { Exit::Usage } else { Exit::Io };
    Failure::new(exit, "a ZeroMQ socket cannot be used", why, fix)
}
