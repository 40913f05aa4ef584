//! `konkordia join`: joins the streams of several detectors and numbers of other devices by trigger number, while they
//! come. A thread receives from each socket; this one joins by the rules of `konkordia_join` and hands on to the table
//! and to one socket. Nothing waits for a receiver that is slow.

pub mod args;
mod arrived;
mod images;
mod output;
mod receive;
mod report;
mod run;

use crate::console;
use crate::run::signals;
use args::JoinArgs;
use konkordia_core::failure::{Exit, Failure};
use konkordia_join::file::{FILE_BYTES_MAX, JoinFile};
use output::Outputs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// `konkordia join`
pub fn command(args: &JoinArgs) -> Result<Exit, Failure> {
    let file = JoinFile::parse(&args.join.display().to_string(), &text(&args.join)?)?;
    let stall_s = args.stall_s.or(file.stall_s);
    let stall = stall_s.map(Duration::try_from_secs_f64).transpose().map_err(|_| {
        Failure::new(Exit::Usage, "--stall-s is not possible", "it must be a number above 0", "give seconds, for example 30")
    })?;
    let table = args.file.clone().or_else(|| file.file.clone().map(Into::into));
    if table.is_none() && file.output.is_none() {
        let why = "it has neither 'file' nor [output]";
        return Err(Failure::new(Exit::Configuration, "nobody would get what is joined", why, "add one, or give --file"));
    }
    let stop = signals::stop_flag()?;
    let sockets = receive::open(&file)?;
    let outputs = Outputs::open(&file, table.as_deref(), args.overwrite)?;
    let names: Vec<&str> = file.names().collect();
    let addresses: Vec<&str> = sockets.iter().map(receive::Receive::address).collect();
    console::to_stderr(&format!("joining {} from {}; Ctrl-C ends it", names.join(", "), addresses.join(", ")));
    if let Some(messages) = &outputs.messages {
        console::to_stderr(&format!("joined messages at {}", messages.address()));
    }
    let mut outcome = run::run(&file, stall, sockets, outputs, &stop)?;
    let account = report::account(&outcome);
    let so_far = report::to_json(&file, &outcome);
    outcome.outputs.finish(&account, &so_far);
    if args.json {
        console::json(&report::to_json(&file, &outcome), true);
    } else {
        console::to_stdout(&report::to_text(&file, &outcome));
    }
    Ok(report::exit(&file, &outcome))
}

/// The join file, of which no more is read than it may have.
fn text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| Failure::io("cannot read", path, &error))?;
    let read = file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::io("cannot read", path, &error)).map(|_| text)
}
