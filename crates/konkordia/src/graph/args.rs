//! The command line of `konkordia graph`.

use clap::{Args, Subcommand};
use konkordia_core::failure::EXIT_CODES;
use std::path::PathBuf;

/// `konkordia graph`
#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Runs the processes of a graph: all, or those of one stage or one host
    #[command(help_template = crate::help::TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia graph run graph.toml
  konkordia graph run graph.toml --host node2
  konkordia graph run graph.toml --stage correct --json")]
    Run(GraphRunArgs),
    /// Shows the processes of a graph that runs on this host, or has run: states, queues, accounts
    #[command(help_template = crate::help::TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia graph status graph.toml
  konkordia graph status graph.toml --json
  konkordia graph status graph.toml --folder /run/graph")]
    Status(GraphStatusArgs),
    /// Draws the stages of a graph as text, or into a file as SVG or for Graphviz
    #[command(help_template = crate::help::TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia graph draw graph.toml
  konkordia graph draw graph.toml --status
  konkordia graph draw graph.toml --svg graph.svg")]
    Draw(GraphDrawArgs),
}

/// `konkordia graph run`
#[derive(Debug, Args)]
pub struct GraphRunArgs {
    /// The graph file
    pub graph: PathBuf,
    /// Only the processes of this stage
    #[arg(long, value_name = "NAME", conflicts_with = "host")]
    pub stage: Option<String>,
    /// Only the processes of this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Where the processes keep their states [default: the name of the graph file with `.run`]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
    /// Processes of stages, as threads of this one; `run` starts itself with it
    #[arg(long, value_name = "NAME", hide = true)]
    pub member: Vec<String>,
    /// Grows with each start of a process
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    pub epoch: u64,
}

/// `konkordia graph status`
#[derive(Debug, Args)]
pub struct GraphStatusArgs {
    /// The graph file
    pub graph: PathBuf,
    /// The folder of `run`, if one was given
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

/// `konkordia graph draw`
#[derive(Debug, Args)]
pub struct GraphDrawArgs {
    /// The graph file
    pub graph: PathBuf,
    /// With the counts of the graph that runs on this host, or has run
    #[arg(long)]
    pub status: bool,
    /// The folder of `run`, if one was given
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Writes a picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Writes a file for Graphviz
    #[arg(long, value_name = "FILE")]
    pub dot: Option<PathBuf>,
}
