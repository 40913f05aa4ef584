//! What scenarios of the demonstration share: programs that they start, their reports, and the numbers of a link beside
//! those of a receiver.

use crate::cli::DemoArgs;
use crate::console;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::text;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A receiver that has not said by then that it is ready, or has not ended after the last packet, does not work.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// The faults of the link.
pub const FAULTS: [&str; 6] = ["--loss", "0.002", "--duplicate", "0.001", "--reorder", "0.01"];

/// What it is, what the link did, and what the receiver counted.
pub type Row = (&'static str, u64, u64);

/// Prints the numbers beside each other; true if all of them agree. `more` is for programs.
pub fn show(args: &DemoArgs, rows: &[Row], mut more: Value) -> bool {
    let agrees = !rows.is_empty() && rows.iter().all(|(_, link, receiver)| link == receiver);
    if args.json {
        let numbers: serde_json::Map<_, _> =
            rows.iter().map(|(what, link, receiver)| ((*what).to_owned(), json!([link, receiver]))).collect();
        more["agrees"] = agrees.into();
        more["link_and_receiver"] = numbers.into();
        console::json(&more, false);
        return agrees;
    }
    for (what, link, receiver) in rows {
        let mark = if link == receiver { "" } else { "   DIFFERS" };
        console::to_stdout(&format!(
            "   {what:<32} link {:>9}   receiver {:>9}{mark}",
            text::count(*link),
            text::count(*receiver)
        ));
    }
    let result = match agrees {
        true => "every packet is accounted for",
        false => "FAILED: packets came too late for their frame, or the kernel dropped them; is this machine busy?",
    };
    console::to_stdout(&format!("\nresult    {result}"));
    agrees
}

/// The words of a command.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A number of a report.
pub fn number(of: &Value, path: &str) -> u64 {
    of.pointer(path).and_then(Value::as_u64).unwrap_or_default()
}

/// The sum of a number over a list of a report.
pub fn sum(of: &Value, list: &str, name: &str) -> u64 {
    of[list].as_array().into_iter().flatten().map(|one| number(one, name)).sum()
}

/// Starts this program once more.
pub fn program(arguments: &[String]) -> Result<Child, Failure> {
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    start().map_err(|e| Failure::new(Exit::Io, "cannot start this program once more", reason(&e), "end other programs"))
}

/// A program that has failed, and what it said.
pub fn failed(what: &str, said: String) -> Failure {
    Failure::new(Exit::Io, format!("{what} has failed"), said, "run the command above by hand")
}

/// Hands on the lines of an output, from a thread that ends with it.
fn pass_on(output: Option<impl Read + Send + 'static>, is_out: bool, to: Sender<(bool, String)>) {
    let lines = output.map(|output| BufReader::new(output).lines());
    let send = move |line: String| drop(to.send((is_out, line)));
    std::thread::spawn(move || lines.into_iter().flatten().map_while(Result::ok).for_each(send));
}

/// A receiver, which is ended with its owner.
pub struct Receiving {
    child: Child,
    /// Its lines, of both outputs.
    lines: Receiver<(bool, String)>,
    /// What it printed for programs.
    out: Vec<String>,
    /// What it said to people.
    pub said: String,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Receiving {
    /// Starts it and waits until it is ready.
    pub fn start(arguments: &[String], ready: &str) -> Result<Self, Failure> {
        let mut child = program(arguments)?;
        let (to, lines) = channel();
        pass_on(child.stdout.take(), true, to.clone());
        pass_on(child.stderr.take(), false, to);
        let mut receiving = Self { child, lines, out: Vec::new(), said: String::new() };
        if receiving.until(|line| line.contains(ready))? {
            return Ok(receiving);
        }
        Err(failed(&arguments.join(" "), receiving.said.trim().to_owned()))
    }

    /// Takes lines until one is the right one; false if the program has ended before.
    fn until(&mut self, is_right: impl Fn(&str) -> bool) -> Result<bool, Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok((is_out, line)) => {
                    let found = is_right(&line);
                    if is_out {
                        self.out.push(line);
                    } else {
                        self.said.push_str(&line);
                        self.said.push('\n');
                    }
                    if found {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
                Err(_) if Instant::now() > end => {
                    return Err(failed("the receiver", format!("it takes too long: {}", self.said.trim())));
                }
                Err(_) => {}
            }
        }
    }

    /// Its report, which is the last thing that it prints.
    pub fn report(&mut self) -> Result<Value, Failure> {
        // No line is the right one: the end is waited for.
        self.until(|_| false)?;
        let texts = [self.out.last().cloned().unwrap_or_default(), self.out.join("\n")];
        let report = texts.iter().find_map(|text| serde_json::from_str::<Value>(text).ok().filter(Value::is_object));
        report.ok_or_else(|| failed("the receiver", self.said.trim().to_owned()))
    }
}
