//! The outputs: joined messages over ZeroMQ, and the table.

use super::arrived::Part;
use bytes::Bytes;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_join::file::{JoinFile, OutSocket, Output};
use konkordia_join::rules::Joined;
use konkordia_sinks::hdf5::joined_table::{JoinedAccount, JoinedPart, JoinedRow, JoinedSource, JoinedTable};
use konkordia_sinks::zmq::{Context, Sent, ZmqOut, ZmqOutKind, ZmqOutSpec};
use konkordia_wire::joined::{self, JoinedHead, JoinedImage};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time until a row is in the file.
const FLUSH: Duration = Duration::from_secs(1);
/// How long the last message waits for a receiver, and messages in libzmq after the end.
const END_WAIT: Duration = Duration::from_secs(2);

/// The socket of joined messages.
pub struct Messages {
    socket: ZmqOut,
    wait: Duration,
    /// The receivers let the last message pass.
    is_stuck: bool,
    /// Messages that libzmq has taken.
    pub sent: u64,
    /// Messages that no receiver had room for.
    pub full: u64,
    /// Messages for which no receiver was there.
    pub nobody: u64,
    /// Why the socket failed; nothing was sent afterwards.
    pub failed: Option<String>,
}

impl Messages {
    fn open(output: &Output) -> Result<Self, Failure> {
        let kind = if output.socket == OutSocket::Pub { ZmqOutKind::PubReliable } else { ZmqOutKind::Push };
        let queue_messages = i32::try_from(output.queue_messages).unwrap_or(i32::MAX);
        let spec = ZmqOutSpec { kind, queue_messages, linger: END_WAIT, ..ZmqOutSpec::push(&output.address) };
        let socket = ZmqOut::open(&Context::new(), &spec).map_err(|error| {
            Failure::new(Exit::Io, format!("cannot send at {}", output.address), reason(&error), "give another [output] address")
        })?;
        let wait = Duration::from_millis(output.wait_ms);
        Ok(Self { socket, wait, is_stuck: false, sent: 0, full: 0, nobody: 0, failed: None })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        self.socket.name()
    }

    /// Sends a message, or counts why not. A receiver that is stuck costs one wait, not one for each message.
    fn send(&mut self, parts: &[Bytes], wait: Duration) {
        if self.failed.is_some() {
            return;
        }
        let wait = if self.is_stuck || !self.socket.has_receiver() { Duration::ZERO } else { wait };
        match self.socket.send(parts, wait) {
            Ok(Sent::Sent) => (self.sent, self.is_stuck) = (self.sent + 1, false),
            Ok(Sent::Full) => (self.full, self.is_stuck) = (self.full + 1, true),
            Ok(Sent::NoPeer) => self.nobody += 1,
            Err(error) => self.failed = Some(error.to_string()),
        }
    }
}

/// The table.
pub struct TableFile {
    table: Option<JoinedTable>,
    /// Where it is.
    pub path: PathBuf,
    flushed: Instant,
    /// Rows that were added.
    pub rows: u64,
    /// Of these, surely in the file.
    safe: u64,
    /// Rows that are not in the file, or not surely, because it failed.
    pub unwritten: u64,
    /// Numbers for which the table has no column.
    pub refused: u64,
    /// Why it failed.
    pub failure: Option<Failure>,
}

impl TableFile {
    fn create(path: &Path, join: &JoinFile, overwrite: bool) -> Result<Self, Failure> {
        if overwrite && path.exists() {
            std::fs::remove_file(path).map_err(|error| Failure::io("cannot replace", path, &error))?;
        }
        let streams = join.streams.len();
        let source = |(n, name): (usize, &str)| JoinedSource { name: name.into(), has_images: n < streams };
        let sources: Vec<_> = join.names().enumerate().map(source).collect();
        let table = JoinedTable::create(path, &sources)?;
        let (path, flushed) = (path.to_owned(), Instant::now());
        Ok(Self { table: Some(table), path, flushed, rows: 0, safe: 0, unwritten: 0, refused: 0, failure: None })
    }

    /// Does something with the table; after a failure there is none.
    fn with<T>(&mut self, work: impl FnOnce(&mut JoinedTable) -> Result<T, Failure>) -> Option<T> {
        match work(self.table.as_mut()?) {
            Ok(done) => Some(done),
            Err(failure) => {
                self.fail(failure);
                None
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        (self.failure, self.table) = (Some(failure), None);
        self.unwritten = self.rows - self.safe;
        self.rows = self.safe;
    }

    fn add(&mut self, joined: &Joined<Part>) {
        let parts: Vec<Option<JoinedPart<'_>>> = joined.parts.iter().map(|part| part.as_ref().map(column)).collect();
        let Joined { trigger, is_complete, reason, .. } = *joined;
        let row = JoinedRow { trigger, is_complete, reason: reason as u8, parts: &parts };
        match self.with(|table| Ok((table.add(&row)?, table.refused()).1)) {
            Some(refused) => (self.rows, self.refused) = (self.rows + 1, refused),
            None => self.unwritten += 1,
        }
    }

    /// Writes rows that wait, if it is time.
    pub fn flush_if_due(&mut self) {
        if self.flushed.elapsed() >= FLUSH {
            self.flushed = Instant::now();
            if self.with(|table| Ok(table.flush()?)).is_some() {
                self.safe = self.rows;
            }
        }
    }

    fn finish(&mut self, account: &JoinedAccount) {
        let Some(table) = self.table.take() else { return };
        if let Err(error) = table.finish(account) {
            self.fail(error.into());
        }
    }
}

/// What the table has of a part.
fn column(part: &Part) -> JoinedPart<'_> {
    match part {
        Part::Image(image) => JoinedPart::Image(image.number, image.series),
        Part::Scalars(values) => JoinedPart::Scalars(values),
    }
}

/// All outputs.
pub struct Outputs {
    names: Vec<String>,
    protocols: Vec<&'static str>,
    row: u64,
    /// The socket, if one is wanted.
    pub messages: Option<Messages>,
    /// The table, if one is wanted.
    pub table: Option<TableFile>,
}

impl Outputs {
    /// Opens what is wanted.
    pub fn open(join: &JoinFile, file: Option<&Path>, overwrite: bool) -> Result<Self, Failure> {
        let names = join.names().map(str::to_owned).collect();
        let protocols = join.streams.iter().filter_map(|stream| Some(stream.protocol()?.facts().name)).collect();
        let messages = join.output.as_ref().map(Messages::open).transpose()?;
        let table = file.map(|file| TableFile::create(file, join, overwrite)).transpose()?;
        Ok(Self { names, protocols, row: 0, messages, table })
    }

    /// Hands on a number.
    pub fn take(&mut self, joined: &Joined<Part>) {
        if let Some(table) = &mut self.table {
            table.add(joined);
        }
        if let Some(messages) = &mut self.messages {
            let parts = message(self.row, joined, &self.names, &self.protocols);
            messages.send(&parts, messages.wait);
        }
        self.row += 1;
    }

    /// Numbers that were handed on.
    pub fn rows(&self) -> u64 {
        self.row
    }

    /// Ends the outputs.
    pub fn finish(&mut self, account: &JoinedAccount, report: &Value) {
        if let Some(table) = &mut self.table {
            table.finish(account);
        }
        if let Some(messages) = &mut self.messages {
            let counts = (messages.sent, messages.full, messages.nobody);
            messages.send(&joined::end(report), END_WAIT);
            // The last message is no joined one.
            (messages.sent, messages.full, messages.nobody) = counts;
        }
    }
}

fn message(row: u64, joined: &Joined<Part>, names: &[String], protocols: &[&'static str]) -> Vec<Bytes> {
    let sources = || names.iter().map(String::as_str).zip(&joined.parts);
    let (mut images, mut scalars) = (Vec::new(), Vec::new());
    for (n, (source, part)) in sources().enumerate() {
        match part {
            Some(Part::Image(image)) => {
                let (protocol, parts) = (protocols[n], &image.message[..]);
                images.push(JoinedImage { source, protocol, number: image.number, series: image.series, parts });
            }
            Some(Part::Scalars(values)) => scalars.push((source, &values[..])),
            None => (),
        }
    }
    let absent = sources().filter(|(_, part)| part.is_none()).map(|(name, _)| name).collect();
    let head = JoinedHead { row, trigger: joined.trigger, is_complete: joined.is_complete, absent, scalars };
    joined::write(&head, &images)
}
