//! `konkordia writer`: writes the files of runs that are received on other hosts (docs/writer.md).

use crate::console;
use crate::run::signals;
use clap::Args;
use konkordia_acquire::remote::writer::{WriterEvent, WriterOptions, run};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::Overwrite;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `konkordia writer`
#[derive(Debug, Args)]
pub struct WriterArgs {
    /// Address and port at which senders connect; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Folder of the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Memory into which senders write, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory: u64,
    /// How long the files of a run stay open for a sender whose link has broken, in s
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    /// How often images are brought to the disk, in ms
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    sync_ms: u64,
    /// Ends after so many runs
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// Replaces older files of the same prefix
    #[arg(long)]
    overwrite: bool,
    /// Writes events as JSON, one per line
    #[arg(long)]
    json: bool,
}

/// `konkordia writer`
pub fn command(args: &WriterArgs) -> Result<Exit, Failure> {
    let stop = signals::stop_flag()?;
    let options = WriterOptions {
        listen: args.listen,
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
