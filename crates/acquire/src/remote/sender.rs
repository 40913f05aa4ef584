//! The consumer that sends the images of a run to a writer on another host. It connects when a run begins, takes the
//! session up again after a break, and waits at the end until the writer has closed its files.

use super::text;
use crate::handle::Severity;
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::series::{RunFileText, SeriesEnd, SeriesStart};
use konkordia_engine::output_queue::OutputQueue;
use konkordia_fabric::remote::{Action, Kept, Sender, record};
use konkordia_links::kind::Kind;
use konkordia_links::{Arrival, Link, LinkError, RemoteAddress};
use konkordia_sinks::zmq::StreamStats;
use serde_json::{Value, json};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one attempt waits. It is short, so that a stop is noticed.
const ATTEMPT: Duration = Duration::from_millis(50);
/// Time between two attempts to connect, and the longest one.
const AGAIN: Duration = Duration::from_millis(500);
const CONNECT: Duration = Duration::from_secs(2);
/// How long the beginning of a run waits for the answer of the writer; images wait in the queue.
const BEGIN_WAIT: Duration = Duration::from_secs(2);
/// While there is no run, how often it is looked whether the writer listens.
const PROBE: Duration = Duration::from_secs(2);
/// At the end of a run, the longest time without progress: a disk may be slow, and a writer may be started again.
const END_WAIT: Duration = Duration::from_secs(60);
/// The same when the service stops.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Gets what should be known of a writer: an event for people, and its data.
pub type Tell = Box<dyn Fn(Severity, String, Value) + Send>;

/// A consumer for a writer on another host.
pub struct RemoteSink {
    /// Its name and its address.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// The kind of link, the same as at the writer.
    pub link: Kind,
    /// What is kept to be sent again.
    pub kept: Kept,
    /// Set while nobody waits for consumers any more.
    pub stop: Arc<AtomicBool>,
    /// Gets the state of the connection.
    pub stats: Arc<StreamStats>,
    /// The queue before it, which has to know whether the writer is connected.
    pub queue: Arc<OutputQueue>,
    /// Gets what should be known.
    pub tell: Tell,
    /// The link and the run.
    pub state: State,
}

/// The link and the run of a [`RemoteSink`].
#[derive(Default)]
pub struct State {
    link: Option<Box<dyn Link>>,
    run: Option<Run>,
    tried: Option<Instant>,
    /// Why there is no link.
    why: String,
}

struct Run {
    sender: Sender,
    file: Arc<RunFileText>,
    was_ready: bool,
}

impl RemoteSink {
    fn at(&self) -> Result<SocketAddr, String> {
        let mut addresses = self.address.to_socket_addrs().map_err(|error| error.to_string())?;
        addresses.next().ok_or_else(|| "the name of the host has no address".into())
    }

    fn connect(&self) -> Result<Box<dyn Link>, String> {
        self.link.connect(self.at()?, CONNECT).map_err(|error| error.to_string())
    }

    fn set_connected(&self, is_connected: bool) {
        self.stats.peers.store(u64::from(is_connected), Ordering::Relaxed);
        self.queue.stats().connected.store(is_connected, Ordering::Release);
    }

    /// Connects if there is no link, as often as it should.
    fn try_to_connect(&mut self) {
        if self.state.link.is_some() || self.state.tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return;
        }
        let connected = self.connect();
        self.state.tried = Some(Instant::now());
        match connected {
            Ok(link) => {
                self.state.link = Some(link);
                self.state.run.iter_mut().for_each(|run| run.sender.connected());
            }
            Err(why) => self.state.why = why,
        }
    }

    /// Does what is to be done on the link, and waits for the writer at most `wait`.
    fn drive(&mut self, wait: Duration) {
        self.try_to_connect();
        let State { link: Some(link), run: Some(run), .. } = &mut self.state else {
            std::thread::sleep(wait);
            return;
        };
        let broken = exchange(&mut **link, &self.link, &mut run.sender, wait).err();
        let (is_ready, again) = (run.sender.is_ready() && broken.is_none(), run.sender.counts().links > 1);
        let was_ready = std::mem::replace(&mut run.was_ready, is_ready);
        if let Some(why) = &broken {
            run.sender.disconnected();
            self.state.link = None;
            self.state.why.clone_from(why);
        }
        if is_ready != was_ready {
            self.set_connected(is_ready);
            let words = match (is_ready, again) {
                (true, false) => "takes the run".to_string(),
                (true, true) => "is connected again and takes up the run".to_string(),
                (false, _) => format!("is not connected: {}", self.state.why),
            };
            let severity = if is_ready { Severity::Info } else { Severity::Warning };
            let data = json!({ "writer": self.name, "address": self.address, "connected": is_ready });
            (self.tell)(severity, format!("writer '{}' {words}", self.name), data);
        }
    }

    /// Says why the writer cannot be used, if that is something else than before.
    fn tell_once(&mut self, why: String) {
        if self.state.why != why {
            let data = json!({ "writer": self.name, "address": self.address, "connected": false });
            (self.tell)(Severity::Warning, format!("writer '{}' cannot be used: {why}", self.name), data);
            self.state.why = why;
        }
    }

    fn error(&self, what: &str, why: String, fix: &str) -> SinkError {
        SinkError { what: format!("{what} (writer '{}' at {})", self.name, self.address), why, fix: fix.into() }
    }

    fn refused(&self) -> Option<SinkError> {
        let why = self.state.run.as_ref()?.sender.failure()?.to_string();
        Some(self.error(
            "images cannot be written on the other host",
            why,
            "look at the writer and its disk, and begin another run",
        ))
    }

    /// The writer has neither taken nor refused the run.
    fn is_beginning(&self) -> bool {
        self.state.run.as_ref().is_some_and(|run| !run.sender.is_ready() && run.sender.failure().is_none())
    }

    /// Waits until the writer has closed its files.
    fn wait_for_end(&mut self) {
        let (mut since, mut left) = (Instant::now(), u64::MAX);
        loop {
            self.drive(ATTEMPT);
            let Some(run) = &self.state.run else { return };
            if run.sender.has_ended() {
                return;
            }
            if run.sender.unconfirmed() < left {
                (since, left) = (Instant::now(), run.sender.unconfirmed());
            }
            let wait = if self.stop.load(Ordering::Acquire) { STOP_WAIT } else { END_WAIT };
            if since.elapsed() > wait {
                return;
            }
        }
    }

    /// What became of the run: an error if the writer does not have all of it, as it says itself.
    fn account(&self, run: &Run) -> Result<(), SinkError> {
        let (sender, counts) = (&run.sender, run.sender.counts());
        let missing = counts.lost + counts.too_long + sender.unconfirmed();
        let (written, file) = sender.closed().map_or((None, ""), |(account, file)| (Some(account), file));
        let data = json!({
            "writer": self.name, "address": self.address, "file": file, "offered": counts.offered, "durable": counts.durable,
            "skipped": counts.skipped, "lost": counts.lost, "too_long": counts.too_long, "unconfirmed": sender.unconfirmed(),
            "again": counts.again, "missing": counts.missing.iter().map(|range| json!([range.start, range.end])).collect::<Vec<_>>(),
            "images_sent": sender.account().images, "bytes_sent": sender.account().bytes,
            "images_written": written.map(|account| account.images), "bytes_written": written.map(|account| account.bytes),
        });
        let is_whole = missing == 0 && sender.imbalance().is_none() && sender.failure().is_none() && written.is_some();
        let words =
            if is_whole { "has written the run; the accounts of both hosts agree" } else { "has not written the whole run" };
        let severity = if is_whole { Severity::Info } else { Severity::Error };
        (self.tell)(severity, format!("writer '{}' {words}", self.name), data);
        if is_whole {
            return Ok(());
        }
        let mut why: Vec<String> = sender.imbalance().into_iter().chain(sender.failure().map(str::to_string)).collect();
        if missing > 0 {
            let list = if counts.missing.is_empty() { String::new() } else { format!(" (images {})", named(&counts.missing)) };
            why.push(format!("{} of {} images are not known to be in its file{list}", missing, counts.offered));
        }
        if written.is_none() && sender.failure().is_none() {
            why.push(format!("it has not confirmed the end of the run: {}", self.state.why));
        }
        Err(self.error(
            "the run on the other host is not whole",
            why.join("; "),
            "compare the report of the run with the file there",
        ))
    }
}

impl Sink for RemoteSink {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        (self.state.run, self.state.link, self.state.tried) = (None, None, None);
        let Some(file) = &start.run_file else {
            let why = "it is appended to the file of another run".to_string();
            return Err(self.error("this run cannot be written on another host", why, "arm without `append`"));
        };
        let results = konkordia_core::results::numbers(&start.results);
        let slot_bytes = record::bytes_before_pixels(file.tiles, results) as u64 + file.packed_bytes_max;
        let sender = Sender::new(session(), text::start(file).into(), slot_bytes, self.kept);
        self.state.run = Some(Run { sender, file: Arc::clone(file), was_ready: false });
        let since = Instant::now();
        self.drive(Duration::ZERO);
        while self.state.link.is_some() && self.is_beginning() && since.elapsed() < BEGIN_WAIT {
            self.drive(ATTEMPT);
        }
        if self.is_beginning() {
            self.set_connected(false);
            let why = if self.state.why.is_empty() { "it has not answered" } else { &self.state.why };
            let words = format!("writer '{}' has not taken the run yet: {why}", self.name);
            (self.tell)(Severity::Warning, words, json!({ "writer": self.name, "address": self.address, "connected": false }));
        }
        Ok(())
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let mut over_since = None;
        loop {
            if let Some(error) = self.refused() {
                return Err(error);
            }
            let Some(run) = &mut self.state.run else { return Ok(()) };
            if run.sender.has_room() {
                run.sender.offer(image);
                self.drive(Duration::ZERO);
                return Ok(());
            }
            // While the run goes on, the queue decides what happens to further images. When it is over, nobody waits
            // for ever.
            let is_over = run.file.ledger.get().is_some() && self.state.link.is_none();
            if is_over && over_since.get_or_insert_with(Instant::now).elapsed() > END_WAIT {
                let why = format!("it is not connected: {}", self.state.why);
                return Err(self.error("the rest of the run cannot be written on the other host", why, "start the writer"));
            }
            if self.stop.load(Ordering::Acquire) {
                self.stats.skipped.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            self.drive(ATTEMPT);
        }
    }

    fn end(&mut self, _: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        let Some(run) = &mut self.state.run else { return Ok(()) };
        let end = text::end(run.file.ledger.get().map(String::as_str), run.sender.counts());
        run.sender.end(end.into());
        self.wait_for_end();
        let done = self.state.run.take().map_or(Ok(()), |run| self.account(&run));
        self.state.link = None;
        done
    }

    fn tick(&mut self, _: u64) -> Result<(), SinkError> {
        if self.state.run.is_some() {
            self.drive(Duration::ZERO);
            return Ok(());
        }
        if self.state.tried.is_none_or(|tried| tried.elapsed() >= PROBE) {
            // Only whether somebody listens: a run has a link of its own.
            let looked = self.at().map(|address| self.link.look(address, CONNECT));
            if let Ok(Err(error @ LinkError::Broken { .. })) = &looked {
                self.tell_once(error.to_string());
            }
            let listens = matches!(looked, Ok(Ok(())));
            self.state.tried = Some(Instant::now());
            self.set_connected(listens);
        }
        Ok(())
    }
}

/// Does all that is to be done on the link; the error says why it is of no further use.
fn exchange(link: &mut dyn Link, kind: &Kind, sender: &mut Sender, wait: Duration) -> Result<(), String> {
    let text = |error: LinkError| error.to_string();
    let mut wait = wait;
    loop {
        while let Some(action) = sender.next_action() {
            match action {
                Action::Send(message) => link.send(&message),
                Action::Write { key, slot_at, pixels_at, head, image, slot } => {
                    let at = |offset: u64| RemoteAddress { key, offset_bytes: slot_at + offset };
                    let pixels = record::pixels_of(&image);
                    link.write(pixels, at(pixels_at), None).and_then(|()| link.write(&head, at(0), Some(slot)))
                }
            }
            .map_err(text)?;
        }
        match link.poll(wait).map_err(text)? {
            None => return Ok(()),
            Some(Arrival::Message(message)) => {
                sender.arrived(&message).map_err(|violation| kind.other(&message).unwrap_or_else(|| violation.to_string()))?
            }
            Some(Arrival::Event(_)) => return Err("the writer wrote into memory of the sender".into()),
        }
        wait = Duration::ZERO;
    }
}

/// Ranges of images in words, as far as a line goes.
fn named(missing: &[Range<u64>]) -> String {
    let word = |range: &Range<u64>| {
        if range.end == range.start + 1 { range.start.to_string() } else { format!("{} to {}", range.start, range.end - 1) }
    };
    let shown: Vec<String> = missing.iter().take(10).map(word).collect();
    if missing.len() > 10 { format!("{}, ...", shown.join(", ")) } else { shown.join(", ") }
}

/// A name that no other run has.
fn session() -> [u8; 16] {
    // The standard library's random state: 128 bits of the system, hashed.
    let number = || RandomState::new().build_hasher().finish().to_le_bytes();
    let (first, second) = (number(), number());
    std::array::from_fn(|byte| if byte < 8 { first[byte] } else { second[byte - 8] })
}
