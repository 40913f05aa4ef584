//! `konkordia token`: makes, lists and removes the tokens of `konkordia serve`.

use crate::choice::one_of;
use crate::console;
use clap::Subcommand;
use clap::builder::TypedValueParser;
use konkordia_api::security::Role;
use konkordia_api::security::tokens::Tokens;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use std::path::{Path, PathBuf};

/// `konkordia token`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Makes a token and prints it once; the file keeps only its hash
    #[command(before_help = "Examples:
  konkordia token create alice --role operate --file tokens
  konkordia token create grafana --role view --file /etc/konkordia/tokens
  konkordia token create alice --file tokens > ~/.konkordia-token")]
    Create {
        /// Owner or purpose of the token; appears in the audit log
        name: String,
        /// Role of the token: what it may do
        #[arg(long, value_parser = roles(), default_value = "view")]
        role: Role,
        /// File of the tokens; created if it does not exist
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Shows names and roles
    #[command(before_help = "Examples:
  konkordia token list --file tokens
  konkordia token list --file tokens --json
  konkordia token list --file /etc/konkordia/tokens | grep operate")]
    List {
        /// File of the tokens
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// For programs: JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Removes a token; a running service notices within seconds
    #[command(before_help = "Examples:
  konkordia token remove alice --file tokens
  konkordia token remove grafana --file /etc/konkordia/tokens
  konkordia token remove alice --file tokens && konkordia token create alice --file tokens")]
    Remove {
        /// Name of the token
        name: String,
        /// File of the tokens
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
}

/// The names of the roles, with their help.
fn roles() -> impl TypedValueParser<Value = Role> {
    let help = |role| match role {
        Role::View => "Look at states, statistics, images, files, events",
        Role::Operate => "Arm, start, trigger, stop, cancel",
        Role::Configure => "Change the configuration",
    };
    one_of(Role::ALL.map(|role| (role, role.name(), help(role))))
}

/// Carries out a command.
///
/// # Errors
/// If the file cannot be read or written, or the name does not fit.
pub fn command(command: &TokenCommand) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Create { name, role, file } => {
            let mut tokens = if file.exists() { Tokens::load(file)? } else { Tokens::default() };
            let token = tokens.create(name, *role)?;
            tokens.store(file)?;
            console::to_stdout(&token);
            let next = format!("this token of '{name}' ({role}) is not shown again; use it as: export KONKORDIA_TOKEN=...");
            console::to_stderr(&next);
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
            console::to_stderr(&format!("removed '{name}'"));
        }
    }
    Ok(Exit::Complete)
}

fn list(file: &Path, json: bool) -> Result<(), Failure> {
    let tokens = Tokens::load(file)?;
    if json {
        let entries = tokens.entries().iter().map(|entry| serde_json::json!({"name": entry.name, "role": entry.role}));
        console::json(&entries.collect(), false);
    } else {
        let rows: Vec<Vec<String>> = tokens.entries().iter().map(|e| vec![e.name.clone(), e.role.to_string()]).collect();
        console::to_stdout(&text::table(&rows));
    }
    Ok(())
}
