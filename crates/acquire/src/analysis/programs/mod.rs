//! Programs that answer requests about images, one after the other. Nobody waits for an answer longer than its time
//! limit, whatever the program does.

mod program;

use program::Program;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// A program that has ended is started again after this time, with the next request.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// A program that works on one request for longer than so many time limits is killed.
const LIMITS_MAX: u32 = 10;

/// Asks one program.
pub(super) struct Asker {
    /// The program and its arguments.
    command: Vec<String>,
    answer_timeout: Duration,
    program: Option<Program>,
    /// When it was started.
    started: Instant,
    /// Why it does not run any more.
    end: String,
    /// Number of the newest request.
    asked: u64,
    /// Since when it has been late with the answer to it.
    late_since: Option<Instant>,
}

/// What comes of a request.
enum Reply {
    /// The line that answers it.
    Answer(Vec<u8>),
    /// It makes no sense; why.
    Nonsense(String),
    /// Nothing within the time limit.
    Late,
    /// The program has ended or cannot be talked to; why.
    Ended(String),
}

/// What every answer has.
#[derive(Deserialize)]
struct Numbered {
    /// The number of the request.
    id: u64,
}

impl Asker {
    /// Starts the program. If it cannot be started, says why, and is tried again with later requests.
    pub(super) fn new(command: &[String], answer_timeout: Duration) -> (Self, Option<String>) {
        let (program, end) = match Program::start(command) {
            Ok(program) => (Some(program), String::new()),
            Err(why) => (None, why),
        };
        let problem = program.is_none().then(|| format!("{}: {end}", command.join(" ")));
        let (command, started) = (command.to_vec(), Instant::now());
        (Self { command, answer_timeout, program, started, end, asked: 0, late_since: None }, problem)
    }

    /// Makes a request, a line that carries the number it is given, and returns what `read` makes of the answer.
    ///
    /// # Errors
    /// There is no answer, or none that can be; in words.
    pub(super) fn ask<A>(
        &mut self,
        request: impl FnOnce(u64) -> Vec<u8>,
        read: impl FnOnce(&[u8]) -> Result<A, String>,
    ) -> Result<A, String> {
        if let Some(since) = self.late_since
            && !self.has_answered_late()
        {
            if since.elapsed() < self.answer_timeout * LIMITS_MAX {
                return Err(format!("it still works on an earlier image; its time limit is {} ms", self.limit_ms()));
            }
            self.give_up("it worked on one image for ten time limits and was killed");
        }
        self.asked += 1;
        let request = request(self.asked);
        let program = self.running()?;
        let reply = match program.ask(request) {
            Ok(()) => self.wait(),
            Err(why) => Reply::Ended(why),
        };
        match reply {
            Reply::Answer(line) => read(&line).map_err(|why| nonsense(&line, &why)),
            Reply::Nonsense(why) => Err(why),
            Reply::Late => {
                self.late_since = Some(Instant::now());
                Err(format!("it did not answer within {} ms", self.limit_ms()))
            }
            // It is started again.
            Reply::Ended(why) => {
                self.give_up(&why);
                Err(why)
            }
        }
    }

    /// The longest time for an answer, from now on.
    pub(super) fn set_answer_timeout(&mut self, limit: Duration) {
        self.answer_timeout = limit;
    }

    /// Ends the program.
    fn give_up(&mut self, why: &str) {
        (self.program, self.late_since) = (None, None);
        self.end = why.to_owned();
    }

    fn limit_ms(&self) -> u128 {
        self.answer_timeout.as_millis()
    }

    /// The program; started if there is none.
    fn running(&mut self) -> Result<&mut Program, String> {
        match &mut self.program {
            Some(program) => Ok(program),
            None if self.started.elapsed() < RESTART_PAUSE => Err(format!("{}; it is started again after a second", self.end)),
            none => {
                self.started = Instant::now();
                let program = Program::start(&self.command).inspect_err(|why| self.end.clone_from(why))?;
                Ok(none.insert(program))
            }
        }
    }

    /// Waits for the answer to the newest request.
    fn wait(&mut self) -> Reply {
        let until = Instant::now() + self.answer_timeout;
        let Some(program) = &mut self.program else { return Reply::Late };
        loop {
            let line = match program.line(until) {
                Ok(Some(line)) => line,
                Ok(None) => return Reply::Late,
                Err(why) => return Reply::Ended(why),
            };
            match number(&line) {
                Ok(id) if id < self.asked => {}
                Ok(id) if id > self.asked => return Reply::Nonsense(format!("it answered request {id}")),
                Ok(_) => return Reply::Answer(line),
                Err(why) => return Reply::Nonsense(why),
            }
        }
    }

    /// True if the answer that was late has come; what it says is not used.
    fn has_answered_late(&mut self) -> bool {
        let Some(program) = &mut self.program else { return true };
        let now = Instant::now();
        loop {
            match program.line(now) {
                Ok(Some(line)) if number(&line).is_ok_and(|id| id < self.asked) => {}
                Ok(Some(_)) => break,
                Ok(None) => return false,
                Err(why) => {
                    self.give_up(&why);
                    break;
                }
            }
        }
        self.late_since = None;
        true
    }
}

/// The number of the request that a line answers.
fn number(line: &[u8]) -> Result<u64, String> {
    serde_json::from_slice(line).map(|Numbered { id }| id).map_err(|error| nonsense(line, &error.to_string()))
}

/// That a line is no answer, with its beginning.
fn nonsense(line: &[u8], why: &str) -> String {
    let text: String = String::from_utf8_lossy(line).chars().take(80).collect();
    format!("it answered {:?}: {why}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_number_of_its_request() {
        assert_eq!(number(br#"{"time_ms": 4, "id": 3}"#), Ok(3));
        for (wrong, why) in [
            (&b"Segmentation fault\n"[..], "it answered \"Segmentation fault\": expected value"),
            (b"{\"is_indexed\": true}", "it answered \"{\\\"is_indexed\\\": true}\": missing field `id`"),
            (br#"{"id": -1}"#, "invalid value"),
            (b"\xff\xfe", "it answered"),
            (b"", "it answered \"\""),
        ] {
            let error = number(wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
