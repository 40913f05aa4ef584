//! The command line is consistent, and every verb shows three examples first.

use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
    assert!(probability("2").unwrap_err().contains("write 0.02"));
    assert!(probability("-1").is_err() && probability("x").is_err());
    assert_eq!(probability("0.25"), Ok(0.25));
}

#[test]
fn every_verb_shows_three_examples_first() {
    let command = Cli::command();
    let verbs = command.get_subcommands().filter(|c| c.get_name() != "version");
    for verb in verbs.flat_map(|v| std::iter::once(v).chain(v.get_subcommands().filter(|_| v.get_name() != "config"))) {
        let before = verb.get_before_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<&str> = before.lines().skip(1).map(str::trim).collect();
        assert_eq!(examples.len(), 3, "{}", verb.get_name());
        for example in examples.iter().filter(|e| !e.contains(['|', '<', '>', '&'])) {
            let parsed = Cli::try_parse_from(example.split(' '));
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
    }
}
