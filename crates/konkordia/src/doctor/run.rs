//! `konkordia doctor --run`: where the packets of a run went.

use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_doctor::finding::one_line;
use konkordia_doctor::lost::{Account, Cause, Place, causes};
use konkordia_sinks::hdf5::{LedgerRecord, Reader};
use serde_json::json;
use std::path::Path;

/// What the file says of the backend, under `/entry/konkordia/conversion`.
const RECEIVED_THROUGH: &str = "received_through";

/// Reads the account of the run from its master file. The exit code is 1 if data are missing.
pub fn command(file: &Path, json: bool) -> Result<Exit, Failure> {
    std::fs::metadata(file).map_err(|error| Failure::io("cannot read", file, &error))?;
    let reader = Reader::open(file)?;
    let refuse = |why: &str, fix: &str| {
        let what = format!("{} does not say where packets went", file.display());
        Failure::new(Exit::Configuration, what, why, fix)
    };
    let ledger = reader.ledger().ok_or_else(|| {
        refuse("it has no ledger", "give the master file of a run (..._master.h5); konkordia repair makes one after a kill")
    })?;
    let account = account(&ledger, &reader);
    if !account.totals.contains_key("packets_missing") {
        return Err(refuse("it is no run of packets over UDP, or the run was killed", "konkordia inspect shows the ledger"));
    }
    let found = causes(&account);
    let exit = if account.has_loss() { Exit::Incomplete } else { Exit::Complete };
    if json {
        console::json(&to_json(file, &ledger, &account, &found, exit), false);
    } else {
        console::to_stdout(&to_text(file, &ledger, &account, &found));
    }
    Ok(exit)
}

fn account(ledger: &LedgerRecord, reader: &Reader) -> Account {
    let mut conversion = reader.summary().spec.iter().flat_map(|spec| &spec.conversion);
    let through = conversion.find(|(name, _)| name == RECEIVED_THROUGH).map(|(_, text)| text.as_str());
    let received = |counters: &[(String, u64)]| counters.iter().find(|(name, _)| name == "received").map_or(0, |(_, n)| *n);
    Account {
        totals: ledger.totals.iter().cloned().collect(),
        streams: ledger.streams.iter().map(|stream| (one_line(&stream.name), received(&stream.counters))).collect(),
        // Backend and reason, see `Receiving::line`.
        backend: through.and_then(|text| text.split(':').next()).unwrap_or_default().to_owned(),
    }
}

fn to_json(file: &Path, ledger: &LedgerRecord, account: &Account, found: &[Cause], exit: Exit) -> serde_json::Value {
    let one = |cause: &Cause| {
        json!({
            "place": cause.place.name(), "lost": cause.lost, "unit": cause.unit, "certainty": cause.certainty.name(), "why": cause.why, "fix": cause.fix,
        })
    };
    json!({
        "file": file.display().to_string(), "backend": account.backend, "ended": ledger.ended, "packets_missing": account.packets_missing(),
        "images_unwritten": account.totals.get("images_unwritten"), "images_not_received": account.totals.get("images_not_received"),
        "host_counters": account.has_host_counters(), "causes": found.iter().map(one).collect::<Vec<_>>(), "exit_code": exit as u8,
    })
}

fn to_text(file: &Path, ledger: &LedgerRecord, account: &Account, found: &[Cause]) -> String {
    let expected = account.totals.get("packets_expected").copied().unwrap_or(0);
    let (missing, all) = (text::count(account.packets_missing()), text::count(expected));
    let mut out = format!("{}: {missing} of {all} packets missing; the run ended: {}", file.display(), one_line(&ledger.ended));
    for cause in found {
        let Cause { place, lost, unit, certainty, .. } = cause;
        out.push_str(&format!("\n\n{} {unit}: {} ({})", text::count(*lost), in_words(*place), certainty.name()));
        out.push_str(&format!("\n  why  {}\n  fix  {}", cause.why, cause.fix));
    }
    let not_received = account.totals.get("images_not_received").copied().unwrap_or(0);
    if not_received > 0 {
        let of = text::count(not_received);
        out.push_str(&format!("\n\n{of} planned images did not come at all: was the detector stopped, or set to fewer images?"));
    }
    if !account.has_loss() {
        out.push_str("\nNothing was lost.");
    }
    out
}

fn in_words(place: Place) -> &'static str {
    match place {
        Place::Stream => "a stream on which nothing came",
        Place::Wire => "before this host: detector, cable, switch",
        Place::Damaged => "damaged, in pieces or joined on the way",
        Place::NicRing => "ring of the network card",
        Place::Driver => "driver of the network card",
        Place::Backlog => "backlog between card and socket",
        Place::Socket => "buffer of the socket, or ring in its place",
        Place::SetUp => "not of this detector as it is configured",
        Place::Late => "too late for their image",
        Place::Slots => "ring of images, because of the processors",
        Place::Disk => "the file, or the disk below it",
    }
}
