//! What the stages do with images, in a thread beside the one that serves the sockets.

use super::image::Image;
use super::python::{Function, Made};
use crossbeam_channel::{Receiver, Sender};
use konkordia_acquire::image_writer::{ImageFiles, ImageWriter};
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_graph::file::Stage;
use konkordia_input::images::Images;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What the thread is told.
pub enum Order {
    /// Work on this image.
    Image(u64, zmq::Message),
    /// All images with smaller numbers are finished in the whole graph.
    Floor(u64),
    /// No more images come.
    End,
}

/// What it says.
pub enum Report {
    /// An image for the stages behind.
    Made(u64, Vec<u8>),
    /// The image is finished here: it is in the file, or not wanted.
    Done(u64),
    /// The stage waits with this image for an older one.
    Kept(u64),
    /// It cannot be worked on.
    Refused(u64, String),
    /// The thread cannot go on.
    Broken(Failure),
    /// There is no more to come.
    Ended,
}

/// Most bytes of images that wait for the thread that serves the sockets; it may be one image more.
const AHEAD_BYTES_MAX: usize = 64 << 20;

/// The bytes of images that are made and that nobody has taken: the thread that makes them waits.
#[derive(Default)]
pub struct Ahead {
    bytes: Mutex<usize>,
    is_taken: Condvar,
}

impl Ahead {
    /// Waits until there is room for an image.
    fn wait(&self, more: usize) {
        let lock = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |bytes: &mut usize| *bytes >= AHEAD_BYTES_MAX;
        let mut bytes = self.is_taken.wait_while(lock, is_full).unwrap_or_else(PoisonError::into_inner);
        *bytes += more;
    }

    /// An image was taken.
    pub fn taken(&self, less: usize) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let was_full = *bytes >= AHEAD_BYTES_MAX;
        *bytes = bytes.saturating_sub(less);
        if was_full {
            self.is_taken.notify_one();
        }
    }

    /// The other side takes no more: nobody waits any longer.
    pub fn close(&self) {
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.is_taken.notify_one();
    }
}

/// Where reports go; each wakes the thread that serves the sockets.
pub struct Reports {
    /// The reports.
    pub to: Sender<Report>,
    /// The bytes of images in `to`.
    pub ahead: Arc<Ahead>,
    /// Becomes readable at the other side.
    pub wake: zmq::Socket,
    /// The other side waits, and has to be woken.
    pub is_asleep: Arc<AtomicBool>,
}

impl Reports {
    /// False if nobody takes reports any more.
    pub fn say(&self, report: Report) -> bool {
        if let Report::Made(_, image) = &report {
            self.ahead.wait(image.len());
        }
        let is_taken = self.to.send(report).is_ok();
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // A queue that is full wakes too.
            _ = self.wake.send("", zmq::DONTWAIT);
        }
        is_taken
    }

    /// Says that there is no more to come, or why the thread cannot go on.
    pub fn end(&self, outcome: Result<(), Failure>) {
        self.say(outcome.map_or_else(Report::Broken, |()| Report::Ended));
    }
}

/// Reads files; waits when the channel is full.
pub fn read(stage: &Stage, reports: &Reports) {
    let files: Vec<PathBuf> = stage.files.iter().map(PathBuf::from).collect();
    let all = || {
        let images = Images::open(&files, None)?;
        let (shape, pixel) = (images.facts.shape, images.facts.pixel);
        for number in 0..images.facts.images {
            let Some(pixels) = images.read(number)? else { continue };
            if !reports.say(Report::Made(number, Image { shape, pixel, pixels: &pixels }.encode())) {
                return Ok(());
            }
        }
        Ok(())
    };
    reports.end(all());
}

/// Calls a function of a user.
pub fn call(mut function: Function, orders: &Receiver<Order>, reports: &Reports) {
    while let Ok(order @ (Order::Image(..) | Order::Floor(_))) = orders.recv() {
        let Order::Image(id, image) = order else { continue };
        let report = match function.call(id, &image) {
            Made::Image(made) => Report::Made(id, made),
            Made::Nothing => Report::Done(id),
            Made::Failed(why) => Report::Refused(id, why),
        };
        if !reports.say(report) {
            return;
        }
    }
    reports.end(Ok(()));
}

/// Writes a file, in the order of the numbers.
pub struct FileOfImages {
    output: PathBuf,
    writer: Option<ImageWriter>,
    /// Images that came before an older one: at most as many as the stage that reads keeps.
    early: BTreeMap<u64, zmq::Message>,
    /// One past the newest number that was written, or that is finished otherwise.
    next: u64,
    /// Images from the floor on that cannot be written, and why.
    refused: BTreeMap<u64, String>,
}

impl FileOfImages {
    /// The file of a stage.
    pub fn new(stage: &Stage) -> Self {
        Self { output: PathBuf::from(&stage.file), writer: None, early: BTreeMap::new(), next: 0, refused: BTreeMap::new() }
    }

    /// Takes images until the end.
    pub fn write(mut self, orders: &Receiver<Order>, reports: &Reports) {
        let outcome = self.all(orders, reports);
        let broken = outcome.as_ref().err().map(|failure| failure.what.clone());
        let closed = self.writer.map_or(Ok(()), |writer| writer.close(broken));
        reports.end(outcome.and(closed));
    }

    fn all(&mut self, orders: &Receiver<Order>, reports: &Reports) -> Result<(), Failure> {
        loop {
            match orders.recv() {
                Ok(Order::Image(id, _)) if id < self.next => {
                    let known = self.refused.get(&id).map(|why| Report::Refused(id, why.clone()));
                    reports.say(known.unwrap_or(Report::Done(id)));
                }
                Ok(Order::Image(id, image)) => {
                    self.early.insert(id, image);
                    reports.say(Report::Kept(id));
                }
                Ok(Order::Floor(floor)) => {
                    self.next = self.next.max(floor);
                    self.refused = self.refused.split_off(&floor);
                }
                Ok(Order::End) | Err(_) => break,
            }
            while let Some((&first, _)) = self.early.first_key_value()
                && first <= self.next
            {
                self.next = self.next.max(first + 1);
                self.one(first, reports)?;
            }
        }
        while let Some((&first, _)) = self.early.first_key_value() {
            self.one(first, reports)?;
        }
        Ok(())
    }

    fn one(&mut self, id: u64, reports: &Reports) -> Result<(), Failure> {
        let Some(bytes) = self.early.remove(&id) else { return Ok(()) };
        let image = match Image::decode(&bytes) {
            Ok(image) => image,
            Err(why) => {
                self.refuse(id, why, reports);
                return Ok(());
            }
        };
        if self.writer.is_none() {
            self.writer = Some(ImageWriter::open(self.files(&image))?);
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let files = writer.files();
        if (files.shape, files.pixel) != (image.shape, image.pixel) {
            let (shape, pixel) = (files.shape, files.pixel);
            let why = format!("it is {:?} {}, and the file has images of {shape:?} {pixel}", image.shape, image.pixel);
            self.refuse(id, why, reports);
            return Ok(());
        }
        writer.append(id, image.pixels)?;
        reports.say(Report::Done(id));
        Ok(())
    }

    fn refuse(&mut self, id: u64, why: String, reports: &Reports) {
        self.refused.insert(id, why.clone());
        reports.say(Report::Refused(id, why));
    }

    fn files(&self, image: &Image<'_>) -> ImageFiles {
        ImageFiles {
            output: self.output.clone(),
            overwrite: false,
            shape: image.shape,
            pixel: image.pixel,
            compression: Compression::Bslz4,
            images_per_file: 1000,
            images: None,
            mask: None,
            metadata: Metadata::default(),
        }
    }
}

/// The error of a thread that cannot be started.
pub fn no_thread(error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Io,
        "a thread of a stage cannot be started",
        error.to_string(),
        "look at the limits of this user: ulimit -u",
    )
}
