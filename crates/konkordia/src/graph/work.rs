//! What the stages do with images, in a thread beside the one that serves the sockets.

use crossbeam_channel::{Receiver, Sender};
use konkordia_core::failure::{Exit, Failure};
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
    /// Not all images came from outside; in words.
    Short(String),
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

/// What an inner stage makes of an image.
pub enum Made {
    /// Another image.
    Image(Vec<u8>),
    /// Nothing: the image is not wanted.
    Nothing,
    /// It failed; why.
    Failed(String),
}

/// The work of an inner stage.
pub trait Work {
    /// Works on an image.
    ///
    /// # Errors
    /// It cannot work on any image.
    fn image(&mut self, id: u64, image: &[u8]) -> Result<Made, Failure>;
}

/// Works on one image after the other.
pub fn work(mut work: impl Work, orders: &Receiver<Order>, reports: &Reports) {
    while let Ok(order @ (Order::Image(..) | Order::Floor(_))) = orders.recv() {
        let Order::Image(id, image) = order else { continue };
        let report = match work.image(id, &image) {
            Ok(Made::Image(made)) => Report::Made(id, made),
            Ok(Made::Nothing) => Report::Done(id),
            Ok(Made::Failed(why)) => Report::Refused(id, why),
            Err(failure) => return reports.end(Err(failure)),
        };
        if !reports.say(report) {
            return;
        }
    }
    reports.end(Ok(()));
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
