//! `konkordia writer`: writes the files of runs that are received on other hosts (docs/writer.md).

pub mod args;

use crate::console;
use crate::run::signals;
use args::WriterArgs;
use konkordia_acquire::remote::writer::{WriterEvent, WriterOptions, run};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::Overwrite;
use serde_json::{Value, json};
use std::time::Duration;

/// `konkordia writer`
pub fn command(args: &WriterArgs) -> Result<Exit, Failure> {
    let stop = signals::stop_flag()?;
    let options = WriterOptions {
        listen: args.listen,
        link: args.kind()?,
        folder: args.folder.clone(),
        memory_bytes: args.memory << 20,
        patience: Duration::from_secs(args.patience),
        overwrite: if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse },
        sync_interval: Duration::from_millis(args.sync_ms),
        runs: args.runs,
    };
    run(&options, &stop, &mut |event| say(args.json, event))
}

fn say(as_json: bool, WriterEvent { event, message, data }: WriterEvent) {
    if !as_json {
        console::to_stdout(&message);
        return;
    }
    let mut line = json!({ "event": event, "message": message });
    if let (Value::Object(line), Value::Object(data)) = (&mut line, data) {
        line.extend(data);
    }
    console::json(&line, true);
}
