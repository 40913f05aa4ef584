//! `konkordia card`: frames that a card has written into memory of this program, into a file. The card has placed,
//! converted and bitshuffled the pixels; here they are compressed by LZ4 (docs/fpga.md, "A card").

mod account;
pub mod args;
mod pack;
mod setup;

use crate::console;
use crate::run::signals;
use account::Account;
use args::CardArgs;
use konkordia_acquire::image_writer::{ImageWriter, PackedImage};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ledger::ImageStatus;
use konkordia_fabric::card::{ENDED, FRAME_COUNTS, FRAME_VERDICTS, LOGIC, Layout, PACKET_COUNTS, RELEASED, Refused, STATE, STOP};
use konkordia_links::shm::{Memory, Reader};
use pack::Packer;
use serde_json::json;
use setup::{Setup, cannot};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long this program sleeps when there is no entry.
const NAP: Duration = Duration::from_micros(100);
/// A card that was told to end does so within this time after its last frame.
const END: Duration = Duration::from_secs(20);

/// Why frames are no longer taken.
#[derive(Debug, PartialEq, Eq)]
enum Over {
    /// All images that were asked for are there.
    Enough,
    /// Nothing has come for a while.
    Silent,
    /// The card has ended by itself.
    Ended,
    /// Ctrl-C.
    Interrupted,
    /// Nothing that the card writes can be believed, or it has gone.
    Broken(String),
}

/// `konkordia card`
pub fn command(args: &CardArgs) -> Result<Exit, Failure> {
    if !(args.silence > 0.0 && args.timeout > 0.0) || args.images == Some(0) {
        return Err(cannot("a run has at least one image, and times are above 0".into()));
    }
    let setup = Setup::new(args)?;
    let layout = Layout::new(setup.form).map_err(cannot)?;
    let stop = signals::stop_flag()?;
    let (memory, reader) = memory(&layout, &setup)?;
    let writer = ImageWriter::open_with(setup.files, setup.beside)?;
    if args.json {
        console::json(&json!({ "event": "card-memory", "address": memory.address() }), true);
    } else {
        console::to_stderr(&format!("waiting for a card at memory {}; Ctrl-C ends it", memory.address()));
    }
    Run { args, layout, memory, reader, writer, packer: Packer::new(&layout), account: Account::default(), before: None }
        .run(&stop)
}

/// The memory with its registers, tables and constants, and the end of its ring.
fn memory(layout: &Layout, setup: &Setup) -> Result<(Memory, Reader), Failure> {
    let none = |why: String| Failure::new(Exit::Io, "there is not enough memory to share", why, "give fewer --slots");
    let bytes = usize::try_from(layout.memory_bytes()).map_err(|error| none(error.to_string()))?;
    let memory = Memory::create(bytes).map_err(|error| none(reason(&error)))?;
    memory.populate().map_err(|error| none(reason(&error)))?;
    memory.write(0, &layout.registers());
    memory.write(LOGIC, &setup.logic.registers());
    memory.write(layout.rows_start() as usize, &setup.logic.table());
    assert_eq!(setup.constants.len() as u64, layout.constants_bytes(), "constants of every pixel");
    memory.write(layout.constants_start() as usize, &setup.constants);
    let reader = Reader::new(&memory, layout.ring_start() as usize, layout.form().slots);
    let reader = reader.ok_or_else(|| none("its ring does not fit".into()))?;
    reader.open(&memory);
    Ok((memory, reader))
}

/// A run.
struct Run<'a> {
    args: &'a CardArgs,
    layout: Layout,
    memory: Memory,
    reader: Reader,
    writer: ImageWriter,
    packer: Packer,
    account: Account,
    /// The frame of the last entry.
    before: Option<u64>,
}

impl Run<'_> {
    fn run(mut self, stop: &AtomicBool) -> Result<Exit, Failure> {
        let mut over = self.take_until_over(stop)?;
        self.reader.close(&self.memory);
        self.memory.store(STOP, 1);
        if !matches!(over, Over::Broken(_))
            && let Some(why) = self.drain()?
        {
            over = Over::Broken(why);
        }
        self.account.read(&self.memory, matches!(over, Over::Broken(_)));
        // Without a number that was asked for, the last frame that came is the last one of the run.
        let expected = self.args.images.unwrap_or_else(|| self.before.map_or(0, |last| last + 1));
        self.account.frames_lost = expected.saturating_sub(self.account.frames());
        let master = self.writer.master().to_owned();
        let broken = if let Over::Broken(why) = &over { Some(why.clone()) } else { None };
        self.writer.close(broken.clone())?;
        if self.args.json {
            console::json(&self.account.to_json(&master), true);
        } else {
            console::to_stdout(&self.account.to_text(&master));
        }
        if let Some(why) = broken {
            let fix = "the file has the frames that came before; look at the card";
            return Err(Failure::new(Exit::Io, "frames of the card cannot be taken", why, fix));
        }
        Ok(if over == Over::Interrupted {
            Exit::Interrupted
        } else if self.account.is_whole() {
            Exit::Complete
        } else {
            Exit::Incomplete
        })
    }

    /// Takes frames until there are enough, or no more will come.
    fn take_until_over(&mut self, stop: &AtomicBool) -> Result<Over, Failure> {
        let (began, mut moved, mut seen) = (Instant::now(), Instant::now(), 0);
        loop {
            match self.next()? {
                Ok(true) => {
                    moved = Instant::now();
                    if self.args.images.is_some_and(|images| self.before.is_some_and(|before| before + 1 >= images)) {
                        return Ok(Over::Enough);
                    }
                    continue;
                }
                Ok(false) => {}
                Err(why) => return Ok(Over::Broken(why)),
            }
            if stop.load(Ordering::Acquire) {
                return Ok(Over::Interrupted);
            }
            let (state, counted) = (self.memory.load(STATE).unwrap_or(0), self.counted());
            if state == ENDED {
                return Ok(Over::Ended);
            }
            if let Some(why) = self.gone()? {
                return Ok(Over::Broken(why));
            }
            if counted != seen {
                (seen, moved) = (counted, Instant::now());
            }
            if state == 0 && began.elapsed().as_secs_f64() >= self.args.timeout {
                return Ok(Over::Broken(format!("no card has begun within {} s", self.args.timeout)));
            }
            if state != 0 && moved.elapsed().as_secs_f64() >= self.args.silence {
                return Ok(Over::Silent);
            }
            std::thread::sleep(NAP);
        }
    }

    /// What still comes when the card was told to end; why it cannot be taken.
    fn drain(&mut self) -> Result<Option<String>, Failure> {
        let mut moved = Instant::now();
        loop {
            // The state is read first: all entries of a card that has ended are in the ring.
            let has_ended = self.memory.load(STATE) == Some(ENDED);
            match self.next()? {
                Ok(true) => moved = Instant::now(),
                Ok(false) if has_ended => return Ok(None),
                Ok(false) => {
                    if let Some(why) = self.gone()? {
                        return Ok(Some(why));
                    }
                    if moved.elapsed() >= END {
                        return Ok(Some("it was told to end and has not".into()));
                    }
                    std::thread::sleep(NAP);
                }
                Err(why) => return Ok(Some(why)),
            }
        }
    }

    /// Whether the card has gone without an end, and why that is known.
    fn gone(&mut self) -> Result<Option<String>, Failure> {
        let is_gone = self.reader.is_writer_gone(&self.memory);
        let is_gone = is_gone.map_err(|error| Failure::new(Exit::Io, "the memory cannot be watched", reason(&error), ""))?;
        let is_over = self.memory.load(STATE) == Some(ENDED) || !self.reader.is_empty(&self.memory);
        Ok((is_gone && !is_over).then(|| "the program of the card has gone in the midst of the run".into()))
    }

    /// Packets and other frames of the line that the card has seen.
    fn counted(&self) -> u64 {
        let frames = (0..FRAME_VERDICTS.len()).map(|n| FRAME_COUNTS + 8 * n);
        frames.chain([PACKET_COUNTS]).filter_map(|at| self.memory.load(at)).fold(0, u64::wrapping_add)
    }

    /// Takes the next frame: whether there was one, or what is wrong with it.
    fn next(&mut self) -> Result<Result<bool, String>, Failure> {
        let entry = match self.reader.next(&self.memory) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(Ok(false)),
            Err(broken) => return Ok(Err(format!("its ring: {broken}"))),
        };
        let taken = self.account.entries;
        let said = |refused: Refused| Ok(Err(format!("entry {taken}: {refused}")));
        let frame = match self.layout.check(&entry, taken, self.before) {
            Ok(frame) => frame,
            Err(refused) => return said(refused),
        };
        self.memory.read(frame.slot_start as usize, self.packer.frame());
        if let Err(refused) = self.layout.check_masks(&frame, self.packer.masks()) {
            return said(refused);
        }
        self.account.enter(&self.layout, &frame, self.args.images);
        self.before = Some(frame.image);
        // The frame was copied.
        self.memory.store(RELEASED, taken + 1);
        if self.args.images.is_none_or(|images| frame.image < images) {
            let status = if frame.missing > 0 { ImageStatus::Partial } else { ImageStatus::Complete };
            let chunk = self.packer.chunk();
            self.writer.append_packed(frame.image, PackedImage { chunk, status, results: &[] })?;
        }
        Ok(Ok(true))
    }
}
