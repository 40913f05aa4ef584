//! `konkordia veto replay`: what another rule would have done, from the results in a file.

pub mod args;

use crate::console;
use args::{ReplayArgs, VetoCommand};
use konkordia_analysis::rule::Rule;
use konkordia_config::recipe::Recipe;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::results::{self, analysis};
use konkordia_core::text;
use konkordia_sinks::hdf5::StoredResults;
use serde_json::{Value, json};
use std::path::Path;

/// Images whose results are in memory at a time.
const TOGETHER: usize = 256;
/// Images that are named.
const NAMED_MAX: usize = 20;

/// `konkordia veto`
pub fn command(command: &VetoCommand) -> Result<Exit, Failure> {
    match command {
        VetoCommand::Replay(args) => replay(args),
    }
}

/// What a rule does to the images of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replay {
    images: u64,
    analysed: u64,
    rejected: u64,
    /// Rejected ones that are hits.
    hits_rejected: u64,
    hits: u64,
    /// Images that the stored veto rejects.
    rejected_before: u64,
    /// Images of which the two decide differently.
    differ: u64,
    /// The first of them.
    first_different: Vec<u64>,
}

fn replay(args: &ReplayArgs) -> Result<Exit, Failure> {
    let stored = StoredResults::open(&args.file)?;
    let kinds = stored.kinds();
    let rule = match &args.rule {
        Some(rule) => rule.clone(),
        None => stored_rule(&args.file, &stored)?,
    };
    let compiled = Rule::new(&rule, &kinds).map_err(|why| {
        Failure::new(Exit::Usage, format!("the rule \"{rule}\" cannot be followed"), why, "correct the rule (docs/analysis.md)")
    })?;
    let places = [analysis::IS_ANALYSED, analysis::IS_HIT, analysis::IS_REJECTED].map(|kind| results::place(&kinds, kind.name));
    let mut replay = Replay { images: stored.images() as u64, ..Replay::default() };
    for first in (0..stored.images()).step_by(TOGETHER) {
        let rows = stored.rows(first, TOGETHER.min(stored.images() - first))?;
        rows.iter().enumerate().for_each(|(n, row)| replay.add((first + n) as u64, row, &compiled, places));
    }
    let vetoed = stored.status().map(|all| all.iter().filter(|status| **status == ImageStatus::Vetoed as u8).count());
    let has_veto = places[2].is_some();
    if args.json {
        console::json(&replay.to_json(&rule, has_veto, vetoed), false);
    } else {
        console::to_stdout(&replay.to_text(&rule, has_veto, vetoed));
    }
    Ok(Exit::Complete)
}

/// The rule by which the file was made.
fn stored_rule(path: &Path, stored: &StoredResults) -> Result<String, Failure> {
    let (recipe, settings) = stored.recipe();
    let of_recipe = recipe.map(|text| Recipe::parse(&text, path)).transpose()?.and_then(|recipe| recipe.veto);
    let settings: Option<Value> = settings.and_then(|text| serde_json::from_str(&text).ok());
    let of_settings = settings.as_ref().and_then(|settings| settings["veto_rule"].as_str());
    of_recipe.map(|veto| veto.rule).or_else(|| of_settings.map(str::to_owned)).ok_or_else(|| {
        let what = format!("{} was made without a veto", path.display());
        Failure::new(Exit::Usage, what, "so it names no rule", "give one, as in --rule \"is_hit == 0\"")
    })
}

impl Replay {
    fn add(&mut self, image: u64, row: &[u64], rule: &Rule, [analysed, hit, rejected]: [Option<usize>; 3]) {
        let is = |at: Option<usize>| at.is_some_and(|at| row[at] == 1);
        // An image that was not analysed is kept by every rule.
        if !is(analysed) {
            return;
        }
        let is_rejected = rule.holds(row);
        self.analysed += 1;
        self.rejected += u64::from(is_rejected);
        self.hits += u64::from(is(hit));
        self.hits_rejected += u64::from(is(hit) && is_rejected);
        self.rejected_before += u64::from(is(rejected));
        if rejected.is_some() && is(rejected) != is_rejected {
            self.differ += 1;
            if self.first_different.len() < NAMED_MAX {
                self.first_different.push(image);
            }
        }
    }

    fn to_json(&self, rule: &str, has_veto: bool, vetoed: Option<usize>) -> Value {
        let before = has_veto.then(|| {
            json!({ "rejected": self.rejected_before, "differ": self.differ, "first_different": self.first_different, "vetoed": vetoed })
        });
        json!({
            "event": "veto", "rule": rule, "images": self.images, "analysed": self.analysed,
            "not_analysed": self.images - self.analysed, "rejected": self.rejected, "kept": self.analysed - self.rejected,
            "hits": self.hits, "hits_rejected": self.hits_rejected, "stored": before,
        })
    }

    fn to_text(&self, rule: &str, has_veto: bool, vetoed: Option<usize>) -> String {
        let share = |count: u64| 100.0 * count as f64 / self.analysed.max(1) as f64;
        let mut lines = vec![
            format!("rule      {rule}"),
            format!(
                "images    {} analysed, {} not analysed (kept by every rule)",
                text::count(self.analysed),
                text::count(self.images - self.analysed)
            ),
            format!(
                "rejected  {} ({:.1} %), among them {} of {} hits",
                text::count(self.rejected),
                share(self.rejected),
                text::count(self.hits_rejected),
                text::count(self.hits)
            ),
        ];
        if has_veto {
            let named: Vec<String> = self.first_different.iter().map(u64::to_string).collect();
            let named = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
            let more = if self.differ > NAMED_MAX as u64 { ", ..." } else { "" };
            let dropped = vetoed.map_or(String::new(), |vetoed| format!(", {} dropped", text::count(vetoed as u64)));
            lines.push(format!(
                "stored    {} rejected{dropped}; {} decided differently{named}{more}",
                text::count(self.rejected_before),
                text::count(self.differ)
            ));
        }
        lines.join("\n")
    }
}
