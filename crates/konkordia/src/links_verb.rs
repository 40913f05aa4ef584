//! `konkordia links`: which links to memory of other hosts this host could have.

use crate::console;
use clap::Args;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_links::{LinkError, libfabric, verbs};

/// `konkordia links`
#[derive(Debug, Args)]
pub struct LinksArgs {
    /// For programs: JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Carries out the command. What is absent is part of the answer.
///
/// # Errors
/// None; the type is that of all commands.
pub fn command(args: &LinksArgs) -> Result<Exit, Failure> {
    let version = libfabric::version();
    let offers = libfabric::offers();
    let devices = verbs::devices();
    if args.json {
        let why = |error: &LinkError| serde_json::json!({ "absent": error.to_string() });
        let offers = offers.as_ref().map_or_else(why, |offers| offers.iter().map(offer_to_json).collect());
        let devices = devices.as_ref().map_or_else(why, |devices| serde_json::json!(devices));
        let version = version.as_ref().ok();
        console::json(&serde_json::json!({ "libfabric_version": version, "libfabric": offers, "verbs": devices }), true);
        return Ok(Exit::Complete);
    }
    console::to_stdout("tcp: on every host\nshm (memory that two programs share): on every host, with itself");
    match (&version, &offers) {
        (Ok(version), Ok(offers)) => {
            console::to_stdout(&format!("libfabric {version}:"));
            let head = ["provider", "domain", "event bytes", "keeps order", "progress"].map(str::to_owned).to_vec();
            let rows: Vec<Vec<String>> = std::iter::once(head).chain(offers.iter().map(offer_to_row)).collect();
            console::to_stdout(&text::table(&rows));
        }
        (Err(error), _) | (_, Err(error)) => console::to_stdout(&error.to_string()),
    }
    match &devices {
        Ok(devices) => console::to_stdout(&format!("verbs: {}", devices.join(", "))),
        Err(error) => console::to_stdout(&error.to_string()),
    }
    Ok(Exit::Complete)
}

fn offer_to_row(offer: &libfabric::Offer) -> Vec<String> {
    let order = if offer.keeps_order { "yes" } else { "no" };
    let progress = if offer.progress_is_automatic { "by itself" } else { "while one looks" };
    let texts = [&offer.provider, &offer.domain, &offer.event_bytes.to_string(), order, progress];
    texts.map(str::to_owned).to_vec()
}

fn offer_to_json(offer: &libfabric::Offer) -> serde_json::Value {
    serde_json::json!({
        "provider": offer.provider,
        "domain": offer.domain,
        "event_bytes": offer.event_bytes,
        "keeps_order": offer.keeps_order,
        "progress_is_automatic": offer.progress_is_automatic,
    })
}
