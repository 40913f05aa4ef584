//! Files of a folder as they come, those that were there before included. Images are put in the order of the numbers in
//! their names; a number that does not come in time is a lost image.

use super::account::Account;
use super::one::{Made, One, write};
use super::request::{Done, Form, Request, bytes_of, form_of, mapped, start};
use crate::files::{Content, Opened, SUFFIXES, Unpack, wrong};
use crate::mapping::{Images, Mapped, Mapping};
use crate::parallel::Progress;
use bytes::Bytes;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::order::{Order, OrderSpec, Verdict};
use konkordia_core::ports::{Message, MessageSource};
use konkordia_core::series::Ended;
use konkordia_repack::pipeline;
use konkordia_sinks::hdf5::Writer;
use konkordia_sources::directory::{DirectorySource, DirectorySpec};
use konkordia_wire::files::Name;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Files that a thread works on between two looks at the folder.
const BATCH_PER_WORKER: usize = 4;
const LOOK: Duration = Duration::from_millis(200);

/// When a folder is no longer watched, and how long a number is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// What ends it, besides a stop.
    pub end: WatchEnd,
    /// Images that may be ahead of one that has not come; each is held in memory, packed.
    pub window_images: u64,
    /// Longest time that an image waits for those before it.
    pub wait: Duration,
}

/// What ends the watch besides a stop.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchEnd {
    /// So many positions are done.
    pub images: Option<u64>,
    /// No file has come for so long.
    pub idle: Option<Duration>,
}

impl Default for Watch {
    /// Until it is stopped; 256 images ahead, 10 s.
    fn default() -> Self {
        Self { end: WatchEnd::default(), window_images: 256, wait: Duration::from_secs(10) }
    }
}

/// What the first file has decided.
struct Open {
    form: Form,
    rest: (String, String),
    first_number: u64,
    kept: u64,
    mapped: Mapped,
    writer: Writer,
    order: Order,
    waiting: BTreeMap<u64, Made>,
    account: Account,
}

/// A file that has come.
struct Came {
    path: PathBuf,
    position: u64,
    bytes: Bytes,
}

impl Watch {
    /// Imports the files of the one folder that `request` names, until the end or a stop.
    ///
    /// # Errors
    /// The folder cannot be read, no file came, a file does not fit the others, or the output cannot be written.
    pub fn run(&self, request: &Request, stop: &AtomicBool, show: &mut dyn FnMut(&Progress)) -> Result<Done, Failure> {
        let [folder] = &request.input[..] else {
            let why = "one folder is watched at a time";
            return Err(Failure::new(Exit::Usage, "--watch takes one folder", why, "give one folder"));
        };
        let mapping = request.mapping.as_deref().map(Mapping::load).transpose()?;
        if mapping.as_ref().is_some_and(|mapping| mapping.table.is_some()) || request.table.is_some() {
            let why = "its rows are compared with the images before the first one is written";
            let fix = "import the folder when all files are there, or use [header] and [values] only";
            return Err(Failure::new(Exit::Usage, "a table cannot be used with --watch", why, fix));
        }
        request.place()?;
        let suffixes = if request.raw.is_some() { Vec::new() } else { SUFFIXES.map(str::to_owned).to_vec() };
        let spec = DirectorySpec { suffixes, existing: true, ..DirectorySpec::new(folder) };
        let mut source = DirectorySource::open(spec).map_err(|error| Failure::io("cannot watch the folder", folder, &error))?;
        let (mut open, mut progress) = (None, Progress::new(self.end.images.unwrap_or(0)));
        let mut quiet_since = Instant::now();
        while !stop.load(Ordering::Acquire) && !self.is_over(open.as_ref(), quiet_since) {
            let mut messages = Vec::new();
            let received = source.receive(LOOK, request.workers() * BATCH_PER_WORKER, &mut messages);
            received.map_err(|error| Failure::io("cannot read the folder", folder, &error))?;
            if !messages.is_empty() {
                quiet_since = Instant::now();
            }
            let done = self.batch(request, mapping.as_ref(), folder, messages, &mut open, &mut progress);
            if let (Err(failure), Some(open)) = (&done, open.take_if(|_| done.is_err())) {
                let record = open.account.record((Ended::Failed, failure.detail()), open.writer.next_index());
                let _ = open.writer.finish(&record);
            }
            done?;
            show(&progress);
        }
        let mut open = open.ok_or_else(|| {
            let what = format!("no image has come in {}", folder.display());
            Failure::new(Exit::Incomplete, what, format!("files end in {}", SUFFIXES[..5].join(", ")), "look at the folder")
        })?;
        open.order.finish(None);
        open.release()?;
        let stopped = stop.load(Ordering::Acquire) && self.end.images.is_some_and(|images| open.positions() < images);
        let ended = if stop.load(Ordering::Acquire) { Ended::Stopped } else { Ended::Finished };
        let positions = open.positions();
        let record = open.account.record((ended, String::new()), positions);
        let file = open.writer.finish(&record)?;
        Ok(open.account.done(file, open.kept, positions, stopped))
    }

    fn is_over(&self, open: Option<&Open>, quiet_since: Instant) -> bool {
        let enough = self.end.images.is_some_and(|images| open.is_some_and(|open| open.positions() >= images));
        enough || self.end.idle.is_some_and(|idle| open.is_some() && quiet_since.elapsed() >= idle)
    }

    /// Takes the files that have come, and writes the images that are next.
    fn batch(
        &self,
        request: &Request,
        mapping: Option<&Mapping>,
        folder: &Path,
        messages: Vec<Message>,
        slot: &mut Option<Open>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let mut came = Vec::new();
        for message in messages {
            let name = String::from_utf8_lossy(&message.parts[0]).into_owned();
            let path = folder.join(&name);
            let (Some(bytes), None) = (message.parts.get(1), message.parts.get(2)) else {
                let why = message.parts.get(2).map(|why| String::from_utf8_lossy(why).into_owned());
                return Err(wrong(&path, why.unwrap_or_default()));
            };
            let parts = Name::read(&name).map_err(|refusal| wrong(&path, refusal.why))?;
            let open = match slot {
                Some(open) => open,
                // It decides what all others must be, so it cannot be left out.
                None => slot.insert(self.begin(request, mapping, &path, bytes.clone(), &parts)?),
            };
            if (open.rest.0.as_str(), open.rest.1.as_str()) != (parts.before, parts.after) {
                open.account.foreign += 1;
                continue;
            }
            match parts.number.checked_sub(open.first_number) {
                // These were written before the import was interrupted.
                Some(position) if position < open.kept => {}
                Some(position) if self.end.images.is_some_and(|images| position >= images) => open.account.foreign += 1,
                Some(position) => came.push(Came { path, position, bytes: bytes.clone() }),
                None => open.account.late += 1,
            }
        }
        let Some(open) = slot else { return Ok(()) };
        open.take(request, came, progress)?;
        open.order.tick(open.now_ns());
        open.release()
    }

    /// The first file decides the form of all, and their metadata.
    fn begin(
        &self,
        request: &Request,
        mapping: Option<&Mapping>,
        path: &Path,
        bytes: Bytes,
        parts: &Name<'_>,
    ) -> Result<Open, Failure> {
        let content = Content::of_bytes(bytes).map_err(|why| wrong(path, why))?;
        let opened = Opened::of(path, content, &request.reading())?;
        let first = opened.read(0, &mut Unpack::default())?;
        let form = form_of(&first);
        let mapped = mapped(request, mapping, &Images::default(), &first.said)?;
        let start = start(&first, &path.file_name().unwrap_or_default().to_string_lossy(), parts.number)?;
        let mut notes = vec![("input".to_owned(), format!("{} files, as they came", opened.kind()))];
        notes.extend(mapping.map(|mapping| ("mapping".to_owned(), mapping.text.clone())));
        let mut spec = request.file_spec(&start, &mapped, form, notes)?;
        spec.images_planned = self.end.images;
        let (writer, kept) = match request.resume {
            true => Writer::resume(spec)?,
            false => (Writer::create(spec)?, 0),
        };
        let account = Account::of_kept(writer.spec(), kept)?;
        let wait_ns = self.wait.as_nanos() as u64;
        let order = Order::new(OrderSpec { parts_per_image: 1, window_images: self.window_images.clamp(1, 1 << 16), wait_ns });
        let rest = (parts.before.to_owned(), parts.after.to_owned());
        let (first_number, waiting) = (parts.number, BTreeMap::new());
        Ok(Open { form, rest, first_number, kept, mapped, writer, order, waiting, account })
    }
}

impl Open {
    fn positions(&self) -> u64 {
        self.kept + self.order.next()
    }

    fn now_ns(&self) -> u64 {
        crate::parallel::now_ns()
    }

    /// Reads and packs files, and puts them in order.
    fn take(&mut self, request: &Request, came: Vec<Came>, progress: &mut Progress) -> Result<(), Failure> {
        let (form, reading, bytes) = (self.form, request.reading(), bytes_of(self.form));
        let (mut came, mut made) = (came.into_iter(), Vec::new());
        let mapped = &self.mapped;
        pipeline::run(
            request.workers(),
            || Ok(came.next()),
            || One::new(form, request.compression),
            |one, Came { path, position, bytes }| {
                let made = one.make_of(&path, bytes, &reading, form).map(|mut made| {
                    made.times = mapped.of_image(position, &made.said, &mut made.extra, &mut made.lacking);
                    made
                });
                match made {
                    Err(failure) if !request.skip_unreadable => Err(failure),
                    made => Ok((position, made)),
                }
            },
            |one| {
                made.push(one);
                Ok(())
            },
        )?;
        for (position, made) in made {
            progress.add(bytes);
            self.enter(position, made)?;
        }
        Ok(())
    }

    fn enter(&mut self, position: u64, made: Result<Made, Failure>) -> Result<(), Failure> {
        let (number, now) = (position - self.kept, self.now_ns());
        let verdict =
            |order: &mut Order| if made.is_ok() { order.on_part(number, 0, now) } else { order.on_refused(number, 0, now) };
        let mut found = verdict(&mut self.order);
        if found == Verdict::Beyond {
            self.order.advance_for(number);
            self.release()?;
            found = verdict(&mut self.order);
        }
        match (found, made) {
            (Verdict::Placed, Ok(made)) => {
                self.waiting.insert(number, made);
            }
            (Verdict::Placed, Err(failure)) => self.account.unreadable(failure),
            (Verdict::Duplicate, _) => self.account.duplicate += 1,
            (Verdict::Late | Verdict::Beyond, _) => self.account.late += 1,
        }
        Ok(())
    }

    /// Writes the images that are next.
    fn release(&mut self) -> Result<(), Failure> {
        let bytes = bytes_of(self.form);
        while let Some(ready) = self.order.pop() {
            if let Some(made) = self.waiting.remove(&ready.number) {
                self.account.enter(&made, bytes);
                write(&mut self.writer, self.kept + ready.number, &made)?;
            }
        }
        Ok(self.writer.tick(self.now_ns())?)
    }
}
