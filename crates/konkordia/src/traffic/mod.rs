//! `konkordia stream`, `record` and `replay`: messages made, kept and repeated, as a detector sends them over ZeroMQ.

pub mod args;
pub mod capture;
mod content;
mod form;
pub mod record;
pub mod replay;
mod send;
pub mod stream;

use crate::failure::{Exit, Failure, reason};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The first Ctrl-C or SIGTERM sets the flag, the second ends the program.
fn interrupted_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(Exit::Interrupted as u8), Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|e| {
                Failure::new(Exit::Io, "cannot watch for Ctrl-C", reason(&e), "try again; the system is out of some resource")
            })?;
    }
    Ok(flag)
}

/// A socket that could not be opened, in the words of whoever tried.
fn socket_failure(error: &std::io::Error) -> Failure {
    let text = error.to_string();
    let (why, fix) = text.split_once("; ").unwrap_or((&text, "look at the address and at the network of this machine"));
    let exit = if error.kind() == std::io::ErrorKind::InvalidInput { Exit::Usage } else { Exit::Io };
    Failure::new(exit, "a ZeroMQ socket cannot be used", why, fix)
}
