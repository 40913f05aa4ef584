//! `konkordia rashpa status`: asks members how they are. Anybody may ask.

use super::args::StatusArgs;
use super::module::name;
use super::telegrams::{Broken, answer, connect, write};
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_fabric::rashpa::telegram::{Body, Telegram};
use serde_json::{Value, json};
use std::time::Duration;

/// Asks one member.
fn ask(address: &str, telegram: &Telegram, patience: Duration) -> Result<Body, Broken> {
    let stream = connect(address, patience)?;
    write(&stream, telegram)?;
    Ok(answer(&stream, patience)?.body)
}

/// `konkordia rashpa status`
pub fn command(args: &StatusArgs) -> Result<Exit, Failure> {
    let telegram = Telegram { number: 1, sender: name("status")?, body: Body::StatusRequest };
    let mut exit = Exit::Complete;
    let (mut answers, mut lines) = (Vec::new(), Vec::new());
    for address in &args.members {
        let (answer, line) = match ask(address, &telegram, Duration::from_secs(args.timeout)) {
            Ok(body) => (to_json(&body), to_line(&body)),
            Err(why) => {
                exit = Exit::Unreachable;
                (json!({ "error": why.to_string() }), format!("no answer: {why}"))
            }
        };
        answers.push(json!({ "address": address, "answer": answer }));
        lines.push(format!("{address}   {line}"));
    }
    if args.json {
        console::json(&json!({ "members": answers }), false);
    } else {
        console::to_stdout(&lines.join("\n"));
    }
    Ok(exit)
}

/// A status, for programs.
pub fn to_json(body: &Body) -> Value {
    match body {
        Body::Status(status) => json!({
            "module": status.module.0, "state": format!("{:?}", status.state).to_lowercase(), "blocks": status.blocks,
            "skipped": status.skipped, "unsent": status.unsent, "packets": status.packets,
        }),
        Body::ReceiverStatus(status) => json!({
            "receiver": status.receiver.0, "state": format!("{:?}", status.state).to_lowercase(), "packets": status.packets,
            "lost": status.lost, "whole": status.whole, "partial": status.partial, "empty": status.empty,
        }),
        other => json!({ "unexpected": other.element() }),
    }
}

/// A status, for people.
pub fn to_line(body: &Body) -> String {
    match body {
        Body::Status(status) => format!(
            "{} is {}: {} blocks sent, {} skipped, {} unsent, {} packets",
            status.module,
            format!("{:?}", status.state).to_lowercase(),
            text::count(status.blocks),
            text::count(status.skipped),
            text::count(status.unsent),
            text::count(status.packets),
        ),
        Body::ReceiverStatus(status) => format!(
            "{} is {}: {} slices whole, {} partial, {} empty, {} packets, {} lost",
            status.receiver,
            format!("{:?}", status.state).to_lowercase(),
            text::count(status.whole),
            text::count(status.partial),
            text::count(status.empty),
            text::count(status.packets),
            text::count(status.lost),
        ),
        other => format!("answers with {}", other.element()),
    }
}
