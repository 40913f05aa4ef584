//! What the stages do with images, in a thread beside the one that serves the sockets.

use crossbeam_channel::{Receiver, Sender};
use konkordia_core::failure::{Exit, Failure};

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

/// Where reports go; each wakes the thread that serves the sockets.
pub struct Reports {
    /// The reports.
    pub to: Sender<Report>,
    /// Becomes readable at the other side.
    pub wake: zmq::Socket,
}

impl Reports {
    /// False if nobody takes reports any more.
    pub fn say(&self, report: Report) -> bool {
        let is_taken = self.to.send(report).is_ok();
        // A queue that is full wakes too.
        _ = self.wake.send("", zmq::DONTWAIT);
        is_taken
    }

    /// The last report.
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
