//! `konkordia writer`: takes runs from senders on other hosts, one at a time, and writes their files.

use super::text::{self, End};
use crate::run::report;
use bytes::Bytes;
use konkordia_core::assembler::BITMAP_WORDS;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::Sink;
use konkordia_engine::contain::contain;
use konkordia_fabric::remote::{Account, Held, Limits, Message, Receiver, Session, Taken, ToDo, Violation, record};
use konkordia_links::kind::{Kind, Listener};
use konkordia_links::{Arrival, Link, LinkError, Region};
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{Continued, ErrorKind, FileSink, FileSpec, LedgerRecord, Overwrite, RunFiles, Writer};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a program may be connected before it says what it is.
const HELLO_WAIT: Duration = Duration::from_secs(10);
/// Connections that may be in that state.
const WAITING_MAX: usize = 32;
/// How long a sender may take to read how its run has ended.
const GOODBYE_WAIT: Duration = Duration::from_secs(10);
/// How long the loop waits for the link, and for programs that connect.
const TURN: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_millis(50);
/// How often the file sink looks at the time.
const TICK: Duration = Duration::from_millis(100);
/// Slots at most: more images under way are of no use.
const SLOTS: u32 = 256;
/// Bytes of the start of a run, at most: the mask of the largest image and its description.
const TEXT_BYTES_MAX: u64 = (4 << 28) + (64 << 20);

/// How a writer works.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The kind of link, the same as at the senders.
    pub link: Kind,
    /// Where it writes.
    pub folder: PathBuf,
    /// Memory of its slots, in bytes.
    pub memory_bytes: u64,
    /// How long it waits for a sender whose link has broken, before it closes the files.
    pub patience: Duration,
    /// What to do with older files of the same prefix.
    pub overwrite: Overwrite,
    /// How often written data are brought to the disk.
    pub sync_interval: Duration,
    /// Ends after so many runs; `None` = goes on until it is stopped.
    pub runs: Option<u64>,
}

/// Something that the user of a writer should know.
#[derive(Clone, Debug)]
pub struct WriterEvent {
    /// Short name: listening, began, resumed, link-lost, failed, refused, closed.
    pub event: &'static str,
    /// For people.
    pub message: String,
    /// The details.
    pub data: Value,
}

/// Gets what happens.
pub type Tell<'a> = &'a mut dyn FnMut(WriterEvent);

/// One run that is being written.
struct Run {
    receiver: Receiver,
    link: Option<Box<dyn Link>>,
    region: Option<Region>,
    from: String,
    files: Option<Files>,
    lost_at: Option<Instant>,
    /// Slots whose bytes were not what was sent.
    damaged: u64,
}

/// Its files.
struct Files {
    spec: FileSpec,
    files: RunFiles,
    sink: FileSink,
    before: Continued,
    ticked: Instant,
    began: Instant,
}

struct Program<'a> {
    options: &'a WriterOptions,
    listener: Listener,
    waiting: Vec<(Box<dyn Link>, Instant)>,
    run: Option<Run>,
    /// Runs that were closed, and those of them that were not whole.
    runs: u64,
    broken: u64,
    /// The run that was closed last: its sender may ask again how it ended.
    last: Option<Receiver>,
    /// Links over which a run has ended. They stay until their senders have read the end.
    ended: Vec<(Box<dyn Link>, Instant)>,
    tell: Tell<'a>,
}

/// Writes runs until `stop` is set.
///
/// # Errors
/// The address cannot be listened at, or there is no such folder.
pub fn run(options: &WriterOptions, stop: &AtomicBool, tell: Tell<'_>) -> Result<Exit, Failure> {
    if !options.folder.is_dir() {
        let what = format!("images cannot be written into {}", options.folder.display());
        return Err(Failure::new(Exit::Configuration, what, "there is no such folder", "make it, or give another --folder"));
    }
    let fail = |error: LinkError| {
        let what = format!("the writer cannot listen at {}", options.listen);
        let fix = match &error {
            LinkError::Absent { .. } => "mend this, or choose another --link, here and in [[writer]] of the senders",
            _ => "give another --listen, or end the program that uses this port: `ss -ltnp`",
        };
        Failure::new(Exit::Io, what, error.to_string(), fix)
    };
    let listener = Listener::bind(options.link.clone(), options.listen).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    let data =
        json!({ "address": address.to_string(), "link": options.link.name(), "folder": options.folder.display().to_string() });
    let message = format!("listening at {address} ({}), writing into {}", options.link.name(), options.folder.display());
    tell(WriterEvent { event: "listening", message, data });
    let mut program =
        Program { options, listener, waiting: Vec::new(), run: None, runs: 0, broken: 0, last: None, ended: Vec::new(), tell };
    while !stop.load(Ordering::Acquire) && options.runs.is_none_or(|runs| program.runs < runs) {
        program.turn();
    }
    if let Some(mut run) = program.run.take() {
        run.receiver.failed("the writer was stopped");
        program.close(run, None, "stopped at the writer");
    }
    program.hang_up();
    Ok(if program.broken > 0 { Exit::Incomplete } else { Exit::Complete })
}

impl Program<'_> {
    fn say(&mut self, event: &'static str, message: String, data: Value) {
        (self.tell)(WriterEvent { event, message, data });
    }

    /// Waits until the senders have read how their runs have ended.
    fn hang_up(&mut self) {
        let until = Instant::now() + GOODBYE_WAIT;
        while !self.ended.is_empty() && Instant::now() < until {
            self.look_at_ended(IDLE);
        }
    }

    fn look_at_ended(&mut self, wait: Duration) {
        for (mut link, since) in std::mem::take(&mut self.ended) {
            match link.poll(wait) {
                Ok(_) if since.elapsed() < GOODBYE_WAIT => self.ended.push((link, since)),
                Ok(_) => part_from(link),
                Err(_) => {}
            }
        }
    }

    fn turn(&mut self) {
        self.look_at_ended(Duration::ZERO);
        let wait = if self.run.as_ref().is_some_and(|run| run.link.is_some()) { Duration::ZERO } else { IDLE };
        match self.listener.accept(if self.waiting.is_empty() { wait } else { wait.min(TURN) }) {
            Ok(Some(link)) if self.waiting.len() < WAITING_MAX => self.waiting.push((link, Instant::now())),
            // One that is too many is hung up.
            Ok(Some(link)) => part_from(link),
            Ok(None) => {}
            Err(error) => {
                self.say("refused", format!("a connection could not be taken: {error}"), json!({ "why": error.to_string() }));
                std::thread::sleep(IDLE);
            }
        }
        self.greet();
        if let Some(mut run) = self.run.take() {
            self.go_on(&mut run);
            match run.files.is_some() || run.link.is_some() {
                true if self.is_given_up(&run) => self.close(run, None, "the sender was lost"),
                true => self.run = Some(run),
                false => {}
            }
        }
    }

    fn is_given_up(&self, run: &Run) -> bool {
        run.files.is_some() && run.lost_at.is_some_and(|lost| lost.elapsed() > self.options.patience)
    }

    /// Reads the first messages of those who have connected.
    fn greet(&mut self) {
        for (mut link, since) in std::mem::take(&mut self.waiting) {
            match link.poll(Duration::ZERO) {
                Ok(None) if since.elapsed() < HELLO_WAIT => self.waiting.push((link, since)),
                Ok(Some(Arrival::Message(message))) => match self.options.link.other(&message) {
                    Some(why) => self.refuse(link, &why),
                    None => self.hello(link, &message),
                },
                Ok(_) => part_from(link),
                // One that only looked whether somebody listens.
                Err(LinkError::Closed { .. }) => {}
                Err(error) => self.say("refused", error.to_string(), json!({ "why": error.to_string() })),
            }
        }
    }

    fn hello(&mut self, mut link: Box<dyn Link>, message: &[u8]) {
        let from = link.name().to_string();
        let asked: Option<Session> = match Message::decode(message) {
            Ok(Message::Hello { session, .. }) => Some(session),
            _ => None,
        };
        let own = |receiver: &Receiver| asked.is_some() && receiver.session() == asked;
        if let Some(mut run) = self.run.take() {
            if own(&run.receiver) && run.files.is_some() {
                if let Some(old) = run.link.replace(link) {
                    part_from(old);
                }
                (run.region, run.from, run.lost_at) = (None, from, None);
                let todo = run.receiver.hello(message);
                self.do_it(&mut run, todo);
                self.run = Some(run);
                return;
            }
            if run.link.is_some() && asked.is_some() {
                let why = format!("it is writing a run from {}", run.from);
                self.run = Some(run);
                self.refuse(link, &why);
                return;
            }
            if run.link.is_some() {
                self.run = Some(run);
            } else {
                // Its sender is gone, and another run begins.
                self.close(run, None, "the sender was lost");
            }
        }
        if let Some(last) = self.last.as_mut().filter(|last| own(last)) {
            let _ = last.hello(message);
            let _ = send_all(&mut *link, last);
            self.ended.push((link, Instant::now()));
            return;
        }
        let limits = Limits { memory_bytes: self.options.memory_bytes, slots: SLOTS, text_bytes: TEXT_BYTES_MAX };
        let mut receiver = Receiver::new(limits);
        let todo = receiver.hello(message);
        if todo.is_err() || receiver.is_refused() || self.run.is_some() {
            let why = todo.err().map_or_else(|| "another version, or too large".to_string(), |violation| violation.to_string());
            let _ = send_all(&mut *link, &mut receiver);
            self.ended.push((link, Instant::now()));
            self.say("refused", format!("{from} was refused: {why}"), json!({ "from": from, "why": why }));
            return;
        }
        let mut run = Run { receiver, link: Some(link), region: None, from, files: None, lost_at: None, damaged: 0 };
        self.do_it(&mut run, todo);
        self.run = Some(run);
    }

    fn refuse(&mut self, mut link: Box<dyn Link>, why: &str) {
        let from = link.name().to_string();
        let _ = link.send(&Message::Refused { why: why.into() }.encode());
        self.ended.push((link, Instant::now()));
        self.say("refused", format!("{from} was refused: {why}"), json!({ "from": from, "why": why }));
    }

    /// One turn of a run: what came, what is to be sent, the time.
    fn go_on(&mut self, run: &mut Run) {
        let until = Instant::now() + TURN;
        let mut wait = TURN;
        while let Some(link) = &mut run.link {
            let came = match link.poll(wait) {
                Ok(Some(came)) => came,
                Ok(None) => break,
                Err(error) => {
                    self.lose(run, &error.to_string());
                    break;
                }
            };
            let todo = match came {
                Arrival::Message(message) => run.receiver.arrived(&message),
                Arrival::Event(slot) => self.take(run, slot).map(|()| None),
            };
            self.do_it(run, todo);
            wait = Duration::ZERO;
            if Instant::now() > until {
                break;
            }
        }
        self.look_at_files(run);
        self.send(run);
    }

    fn send(&mut self, run: &mut Run) {
        let Some(link) = &mut run.link else { return };
        if let Err(why) = send_all(&mut **link, &mut run.receiver) {
            self.lose(run, &why);
        } else if run.receiver.is_refused() {
            self.ended.extend(run.link.take().map(|link| (link, Instant::now())));
        }
    }

    /// The link has broken: the sender may come back.
    fn lose(&mut self, run: &mut Run, why: &str) {
        run.receiver.disconnected();
        if let Some(link) = run.link.take() {
            part_from(link);
        }
        (run.region, run.lost_at) = (None, Some(Instant::now()));
        if run.files.is_some() {
            let patience = self.options.patience.as_secs();
            let message = format!("the link to {} has broken ({why}); it is waited for for {patience} s", run.from);
            self.say("link-lost", message, json!({ "from": run.from, "why": why, "images": run.receiver.taken_end() }));
        }
    }

    fn look_at_files(&mut self, run: &mut Run) {
        let Some(files) = &mut run.files else { return };
        if files.ticked.elapsed() >= TICK {
            files.ticked = Instant::now();
            let now_ns = files.began.elapsed().as_nanos() as u64;
            if let Err(error) = files.sink.tick(now_ns) {
                self.fail(run, &error.to_string());
                return;
            }
        }
        if let Some(end) = files.files.shared().durable_end() {
            run.receiver.durable(end);
        }
    }

    fn fail(&mut self, run: &mut Run, why: &str) {
        if run.receiver.failure().is_none() {
            run.receiver.failed(why);
            self.say("failed", format!("the run from {} cannot be written any more: {why}", run.from), json!({ "why": why }));
        }
    }

    fn do_it(&mut self, run: &mut Run, todo: Result<Option<ToDo>, Violation>) {
        match todo {
            Ok(None) => {}
            Ok(Some(ToDo::Open { start, is_resumed, slots })) => self.open(run, &start, is_resumed, slots),
            Ok(Some(ToDo::Attach { slots })) => {
                if let Some(key) = self.register(run, slots) {
                    run.receiver.attached(key);
                    let data =
                        json!({ "from": run.from, "images": run.receiver.taken_end(), "durable": run.receiver.durable_end() });
                    self.say("resumed", format!("{} is connected again", run.from), data);
                }
            }
            Ok(Some(ToDo::Close { end, account })) => self.close_as_told(run, &end, account),
            Err(violation) => {
                run.damaged += 1;
                self.lose(run, &violation.to_string());
            }
        }
        self.send(run);
    }

    /// Memory that the sender may write into; `None` if the link is gone.
    fn register(&mut self, run: &mut Run, (slots, slot_bytes): (u32, u64)) -> Option<u64> {
        let registered = run.link.as_mut()?.register((u64::from(slots) * slot_bytes) as usize);
        match registered {
            Ok(region) => {
                run.region = Some(region);
                Some(region.key)
            }
            Err(error) => {
                self.lose(run, &error.to_string());
                None
            }
        }
    }

    fn open(&mut self, run: &mut Run, start: &[u8], is_resumed: bool, slots: (u32, u64)) {
        let opened = text::spec_of(start).and_then(|spec| open_files(self.options, spec, is_resumed));
        let files = match opened {
            Ok(files) => files,
            Err(why) => {
                let _ = run.receiver.refuse(why.clone());
                self.say(
                    "refused",
                    format!("the run from {} was refused: {why}", run.from),
                    json!({ "from": run.from, "why": why }),
                );
                return;
            }
        };
        let Some(key) = self.register(run, slots) else { return };
        let Continued { positions, images_with_pixels, chunk_bytes } = files.before;
        let account = Account { images: images_with_pixels, bytes: chunk_bytes };
        run.receiver.opened(key, positions, positions, account);
        let master = files.files.shared().names().main.unwrap_or_default().display().to_string();
        let words = if positions > 0 { format!(", after {positions} images that are there already") } else { String::new() };
        let data = json!({ "from": run.from, "file": master, "images": positions, "slots": slots.0, "slot_bytes": slots.1 });
        run.files = Some(files);
        self.say("began", format!("a run from {} into {master}{words}", run.from), data);
    }

    /// Takes the image of a slot into the files.
    fn take(&mut self, run: &mut Run, slot: u32) -> Result<(), Violation> {
        let (Some(link), Some(region), Some(files)) = (&run.link, run.region, &mut run.files) else {
            return Err(Violation("an image before its slots".into()));
        };
        let read = |at: usize, into: &mut [u8]| link.read(region, at, into).map_err(|error| Violation(error.to_string()));
        let at = slot as usize * run.receiver.slot_bytes() as usize;
        let mut head = [0; record::HEAD_BYTES];
        read(at, &mut head)?;
        let head = run.receiver.head(slot, &head)?;
        let mut bytes = vec![0; head.end()];
        read(at, &mut bytes)?;
        let Taken::Image(image, held) = run.receiver.take(slot, &head, &Bytes::from(bytes))? else { return Ok(()) };
        fits(&image, &files.spec)?;
        self.write(run, image, held);
        Ok(())
    }

    fn write(&mut self, run: &mut Run, image: Box<CommittedImage>, held: Held) {
        let Some(files) = run.files.as_mut().filter(|_| run.receiver.failure().is_none()) else { return };
        let image = Arc::from(image);
        let written = contain(|| files.sink.image(&image));
        run.receiver.free(held);
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(run, &error.to_string()),
            Err(panic) => self.fail(run, &format!("a bug in konkordia: {}", panic.why)),
        }
    }

    fn close_as_told(&mut self, run: &mut Run, end: &[u8], account: Account) {
        match text::end_of(end) {
            Ok(end) => self.finish(run, Some((end, account)), "the run was broken off"),
            Err(why) => {
                run.receiver.failed(&why);
                self.finish(run, None, "the end of the run cannot be read");
            }
        }
    }

    /// Closes a run that has no end of its sender.
    fn close(&mut self, mut run: Run, end: Option<(End, Account)>, ended: &str) {
        self.finish(&mut run, end, ended);
        self.send(&mut run);
    }

    /// Closes the files, and compares what is in them with what the sender has sent.
    fn finish(&mut self, run: &mut Run, end: Option<(End, Account)>, ended: &str) {
        let Some(files) = run.files.take() else { return };
        let main = files.files.shared().names().main.unwrap_or_default();
        let written = Account {
            images: files.before.images_with_pixels + files.files.shared().images(),
            bytes: files.before.chunk_bytes + files.files.shared().bytes(),
        };
        let record = ledger(run, end.as_ref(), written, ended);
        let done = files.files.finish(&record);
        let mut whole = None;
        let account = match done {
            Some(Ok(report)) => {
                whole = report.whole;
                Account { images: report.images_with_pixels, bytes: report.chunk_bytes }
            }
            Some(Err(error)) => {
                run.receiver.failed(&error.to_string());
                written
            }
            None => written,
        };
        run.receiver.closed(account, main.display().to_string());
        let difference = end.as_ref().and_then(|(_, sent)| Account::differs(*sent, account));
        let problem = difference.or_else(|| run.receiver.failure().map(str::to_string));
        let problem = problem.or_else(|| end.is_none().then(|| ended.to_string()));
        let data = json!({
            "from": run.from, "file": main.display().to_string(), "ended": record.ended, "images": account.images,
            "bytes": account.bytes, "positions": run.receiver.taken_end(), "images_sent": end.as_ref().map(|(_, sent)| sent.images),
            "bytes_sent": end.as_ref().map(|(_, sent)| sent.bytes), "duplicates": run.receiver.duplicates(), "damaged": run.damaged,
            "continued_images": files.before.positions, "problem": problem, "whole": whole.as_ref().map(report::whole_json),
            "sender": end.as_ref().map(|(end, _)| end.counts.iter().map(|(name, n)| ((*name).to_string(), json!(n))).collect::<serde_json::Map<_, _>>()),
        });
        self.runs += 1;
        self.broken += u64::from(problem.is_some());
        let words =
            problem.map_or_else(|| "the accounts of both hosts agree".to_string(), |problem| format!("NOT WHOLE: {problem}"));
        let message = format!("{} images in {}; {words}", account.images, main.display());
        let whole = whole.map(|whole| format!("; the whole image: {}", report::whole_text(&whole))).unwrap_or_default();
        self.say("closed", format!("{message}{whole}"), data);
        let limits = Limits { memory_bytes: self.options.memory_bytes, slots: SLOTS, text_bytes: TEXT_BYTES_MAX };
        self.send(run);
        self.last = Some(std::mem::replace(&mut run.receiver, Receiver::new(limits)));
        self.ended.extend(run.link.take().map(|link| (link, Instant::now())));
    }
}

/// The ledger for the file: that of the sender, with what is in this file instead of its own.
fn ledger(run: &Run, end: Option<&(End, Account)>, written: Account, ended: &str) -> LedgerRecord {
    let positions = run.receiver.taken_end();
    let of_sender = end.and_then(|(end, _)| end.ledger.clone());
    let broken_off = || LedgerRecord { ended: ended.into(), images_expected: positions, ..LedgerRecord::default() };
    let mut record = of_sender.unwrap_or_else(broken_off);
    let value = |record: &LedgerRecord, name: &str| record.totals.iter().find(|(other, _)| other == name).map(|(_, n)| *n);
    let (there, lacking) = (value(&record, "images_written"), value(&record, "images_unwritten"));
    if let (Some(there), Some(lacking)) = (there, lacking) {
        for (name, n) in &mut record.totals {
            match name.as_str() {
                "images_written" => *n = written.images,
                "images_unwritten" => *n = (there + lacking).saturating_sub(written.images),
                _ => {}
            }
        }
    }
    record.totals.push(("writer_duplicates".into(), run.receiver.duplicates()));
    record.totals.push(("writer_damaged".into(), run.damaged));
    for (name, n) in end.iter().flat_map(|(end, _)| end.counts) {
        record.totals.push((format!("writer_{name}"), n));
    }
    record
}

/// Opens the files of a run: new ones, or those of the same run that a writer before this one has left.
fn open_files(options: &WriterOptions, mut spec: FileSpec, is_resumed: bool) -> Result<Files, String> {
    spec.directory.clone_from(&options.folder);
    spec.overwrite = Overwrite::Refuse;
    if spec.bitmap_words() > BITMAP_WORDS {
        return Err("its tiles have more packets than any detector sends".into());
    }
    let continued = Writer::continue_whole(spec.clone());
    let may_replace = !is_resumed && options.overwrite == Overwrite::Replace;
    let (mut writer, before) = match continued {
        Err(error) if may_replace && matches!(error.kind, ErrorKind::Exists | ErrorKind::Invalid) => {
            spec.overwrite = Overwrite::Replace;
            let writer = Writer::create(spec.clone()).map_err(|error| error.to_string())?;
            (writer, Continued::default())
        }
        other => other.map_err(|error| error.to_string())?,
    };
    writer.set_to_disk(ToDisk::Beside(Some(options.sync_interval))).map_err(|error| error.to_string())?;
    let files = RunFiles::new(writer);
    let (sink, now) = (files.sink(), Instant::now());
    Ok(Files { spec, files, sink, before, ticked: now, began: now })
}

/// Checks what the file sink takes for granted of the images of its own run.
fn fits(image: &CommittedImage, spec: &FileSpec) -> Result<(), Violation> {
    let tiles = image.packets.as_ref().map(|packets| packets.tiles.len());
    let is_right = tiles.map_or(!image.status.has_pixels(), |tiles| tiles == spec.tiles.len());
    if is_right { Ok(()) } else { Err(Violation(format!("image {} does not have the tiles of its run", image.number))) }
}

/// Closes a link. Some kinds wait a while for the other side to answer, and nobody else has to.
fn part_from(link: Box<dyn Link>) {
    // If no thread can be made, the link is closed here.
    let _ = std::thread::Builder::new().name("leave".into()).spawn(move || drop(link));
}

fn send_all(link: &mut dyn Link, receiver: &mut Receiver) -> Result<(), String> {
    while let Some(message) = receiver.next_message() {
        link.send(&message).map_err(|error| error.to_string())?;
    }
    Ok(())
}
