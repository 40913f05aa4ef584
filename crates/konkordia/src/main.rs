//! The program `konkordia`: the command line and everything behind it.
#![forbid(unsafe_code)]

mod analyse;
mod archive_verb;
mod bench;
mod bridge;
mod calibration_verbs;
mod card;
mod choice;
mod cli;
mod coincide;
mod config_init;
mod config_verb;
mod console;
mod contained;
mod convert;
mod demo;
mod detectors;
mod doctor;
mod exchange;
mod files;
mod graph;
mod help;
mod join;
mod links_verb;
mod log;
mod model;
mod panics;
mod pedestal;
mod pipelines;
mod rashpa;
mod repack_args;
mod repack_layout;
mod repack_verb;
mod run;
mod serve;
mod simulate;
mod size;
mod stream_generator;
mod token_verb;
mod trains;
mod veto;
mod writer;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use cli::{Cli, Command};
use konkordia_core::failure::{Exit, Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    panics::report_as_bugs();
    if let Some(code) = serve::adapters::child::replaced() {
        return code;
    }
    if let Some(code) = contained::ran_plug_ins() {
        return code;
    }
    konkordia_acquire::machine::raise_limits();
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() && std::env::args().any(|argument| argument == "--json") => {
            let failure = Failure::new(Exit::Usage, error.to_string(), "", "try --help");
            console::json(&failure.to_json(), true);
            return failure.exit.into();
        }
        Err(error) => error.exit(),
    };
    let wants_json = wants_json(&matches);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match contained::run(&cli.command, || dispatch(&cli.command)) {
        Ok(code) => code,
        Err(failure) if wants_json => {
            console::json(&failure.to_json(), true);
            failure.exit.into()
        }
        Err(failure) => {
            console::to_stderr(&failure.to_string());
            failure.exit.into()
        }
    }
}

/// True if `--json` was given, whatever the command is.
fn wants_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, deeper)) => wants_json(deeper),
        None => matches.try_get_one::<bool>("json").is_ok_and(|flag| flag == Some(&true)),
    }
}

fn dispatch(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => demo::command(args),
        Command::Simulate(detector) => simulate::command(detector),
        Command::Size(args) => size::command(args),
        Command::Stream(args) => stream_generator::stream::command(&detectors::streamed(args)?),
        Command::Record(args) => stream_generator::record::command(args),
        Command::Replay(args) => stream_generator::replay::command(args),
        Command::Receive(args) => run::command(args),
        Command::Serve(args) => serve::command::command(args),
        Command::Status(target) => serve::client::status(target),
        Command::Watch(target) => serve::client::watch(target),
        Command::Arm(args) => serve::client::arm(args),
        Command::Start(args) => serve::client::start(args),
        Command::Trigger(target) => serve::client::trigger(target),
        Command::Stop(target) => serve::client::stop(target),
        Command::Close(target) => serve::client::close(target),
        Command::Cancel(target) => serve::client::cancel(target),
        Command::Wait(args) => serve::client::wait(args),
        Command::Drain(args) => serve::client::drain(args),
        Command::Pipelines(which) => pipelines::command(which),
        Command::Calibration(which) => calibration_verbs::command(which),
        Command::Pedestal(args) => pedestal::command(args),
        Command::Analyse(args) => analyse::command(args),
        Command::Model(args) => model::command(args),
        Command::Veto(which) => veto::command(which),
        Command::Trains(args) => trains::command(args),
        Command::Writer(args) => writer::command(args),
        Command::Graph(which) => graph::command(which),
        Command::Coincide(args) => coincide::command(args),
        Command::Join(args) => join::command(args),
        Command::Inspect(args) => files::inspect::command(args),
        Command::Convert(args) => convert::command(args),
        Command::Import(args) => exchange::import(args),
        Command::Export(args) => exchange::export(args),
        Command::Repack(args) => match args.layout {
            Some(choice) => repack_layout::command(args, choice),
            None => repack_verb::command(args),
        },
        Command::Archive(args) => archive_verb::command(args),
        Command::Check(args) => files::check::command(args),
        Command::Repair(args) => files::repair::command(args),
        Command::Token(which) => token_verb::command(which),
        Command::Config(args) => config_verb::command(args),
        Command::Bridge(which) => bridge::command(which),
        Command::Card(args) => card::command(args),
        Command::Rashpa(which) => rashpa::command(which),
        Command::Bench(which) => bench::command(which),
        Command::Doctor(args) => doctor::command(args),
        Command::Links(args) => links_verb::command(args),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "konkordia", &mut script);
            console::to_stdout(String::from_utf8_lossy(&script).trim_end());
            Ok(Exit::Complete)
        }
        Command::Version { json } => {
            version(*json);
            Ok(Exit::Complete)
        }
    }
}

fn version(json: bool) {
    let machine = konkordia_acquire::machine::facts();
    if json {
        console::json(
            &serde_json::json!({
                "name": "konkordia", "version": env!("CARGO_PKG_VERSION"), "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
                "instruction_set": machine["instruction_set"],
                "features": if cfg!(feature = "onnx") { &["onnx"][..] } else { &[] },
            }),
            false,
        );
    } else {
        console::to_stdout(&format!("konkordia {}", env!("CARGO_PKG_VERSION")));
    }
}
