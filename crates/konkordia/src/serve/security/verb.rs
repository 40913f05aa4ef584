//! `konkordia token`: makes, lists and removes the tokens of `konkordia serve`.

use super::Role;
use super::tokens::Tokens;
use crate::failure::{Exit, Failure};
use crate::say;
use clap::Subcommand;
use std::path::{Path, PathBuf};

/// `konkordia token`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Makes a token and prints it, this once; the file keeps its hash
    #[command(before_help = "Examples:
  konkordia token create alice --role operate --file tokens
  konkordia token create grafana --role view --file /etc/konkordia/tokens
  konkordia token create alice --file tokens > ~/.konkordia-token")]
    Create {
        /// Whose it is or what it is for; stands in the audit log
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value_t = Role::View)]
        role: Role,
        /// The file of the tokens; is made if it does not exist
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Shows names and roles
    #[command(before_help = "Examples:
  konkordia token list --file tokens
  konkordia token list --file tokens --json
  konkordia token list --file /etc/konkordia/tokens | grep operate")]
    List {
        /// The file of the tokens
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Takes a token away; a running service notices within seconds
    #[command(before_help = "Examples:
  konkordia token remove alice --file tokens
  konkordia token remove grafana --file /etc/konkordia/tokens
  konkordia token remove alice --file tokens && konkordia token create alice --file tokens")]
    Remove {
        /// Its name
        name: String,
        /// The file of the tokens
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
}

/// Carries it out.
///
/// # Errors
/// If the file cannot be read or written, or the name does not fit.
pub fn command(command: &TokenCommand) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Create { name, role, file } => {
            let mut tokens = if file.exists() { Tokens::load(file)? } else { Tokens::default() };
            let token = tokens.create(name, *role)?;
            tokens.store(file)?;
            say::to_stdout(&token);
            let next = format!("this token of '{name}' ({role}) is not shown again; use it as: export KONKORDIA_TOKEN=...");
            say::to_stderr(&next);
        }
        TokenCommand::List { file, json } => list(file, *json)?,
        TokenCommand::Remove { name, file } => {
            let mut tokens = Tokens::load(file)?;
            if !tokens.remove(name) {
                let what = format!("there is no token '{name}' in {}", file.display());
                let names: Vec<&str> = tokens.entries().iter().map(|entry| entry.name.as_str()).collect();
                let why = if names.is_empty() { "the file is empty".into() } else { format!("it has: {}", names.join(", ")) };
                return Err(Failure::new(Exit::Usage, what, why, "`konkordia token list --file FILE` shows all"));
            }
            tokens.store(file)?;
            say::to_stderr(&format!("removed '{name}'"));
        }
    }
    Ok(Exit::Complete)
}

fn list(file: &Path, json: bool) -> Result<(), Failure> {
    let tokens = Tokens::load(file)?;
    if json {
        let entries = tokens.entries().iter().map(|entry| serde_json::json!({"name": entry.name, "role": entry.role}));
        say::json(&entries.collect(), false);
    } else {
        let rows: Vec<Vec<String>> = tokens.entries().iter().map(|e| vec![e.name.clone(), e.role.to_string()]).collect();
        say::to_stdout(&say::table(&rows));
    }
    Ok(())
}
