//! The files of runs on another host: the sender is a consumer of a detector, the writer is `konkordia writer`
//! (docs/writer.md). The rules of both are in [`konkordia_fabric::remote`]; here are the link, the clock and the files.

pub(crate) mod sender;
mod text;
pub mod writer;

pub(crate) use text::ledger as ledger_text;
