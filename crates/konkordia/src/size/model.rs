//! A model of the pipeline: sockets, ring of frames, workers, ring of strips, pool, file, disk. It knows how long each
//! step takes for an image and how many images each buffer holds, and says what becomes of every image and how full the
//! buffers are. It does no I/O and reads no clock; a seed reproduces it.
//!
//! Each step takes images in their order, so an image depends on earlier images only, and one pass over the images is
//! enough. Times are seconds from the first packet. A stream's part of an image is read whole or lost whole: where the
//! real socket loses some packets of a part, the model loses all of them.

use konkordia_sim::rng::Rng;
use std::collections::VecDeque;

/// How long a step takes for an image: normal distribution, cut off at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Service {
    /// Mean.
    pub mean_s: f64,
    /// Standard deviation.
    pub spread_s: f64,
}

/// Times at which a thread does not run, or a disk does not write.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pauses {
    /// Mean time from the end of a pause to the next one, exponentially distributed; 0 = there are none.
    pub every_s: f64,
    /// Length of each.
    pub length_s: f64,
}

/// When images are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances, as a detector with a clock of its own does.
    Even,
    /// At random, as with independent triggers (a Poisson process).
    Random,
}

/// The pipeline and what flows through it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Images to send.
    pub images: u64,
    /// Mean time from image to image.
    pub period_s: f64,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// The packets of an image are spread over this time.
    pub sending_s: f64,
    /// Streams, each with a socket and a thread.
    pub streams: usize,
    /// Parts of images that a socket's buffer holds.
    pub socket_images: f64,
    /// One stream's part of an image: from the socket into the ring.
    pub receive: Service,
    /// Frames in the ring.
    pub slots: usize,
    /// Worker threads.
    pub workers: usize,
    /// One worker's part of an image.
    pub work: Service,
    /// Images in the ring of strips.
    pub strip_slots: usize,
    /// The strips of an image put together.
    pub join: Service,
    /// Images in the pool, from which the file is written.
    pub pool_images: usize,
    /// An image handed to the kernel.
    pub write: Service,
    /// Images that the kernel may keep before they are on the disk.
    pub cache_images: usize,
    /// An image from the kernel's memory to the disk.
    pub disk: Service,
    /// When each thread does not run.
    pub pauses: Pauses,
    /// When the disk does not write.
    pub stalls: Pauses,
    /// Of everything random.
    pub seed: u64,
}

/// What became of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Stored whole.
    Whole,
    /// Stored, with parts missing that sockets had no room for.
    Partial,
    /// No socket had room for its part.
    Lost,
    /// The ring had no slot.
    Refused,
}

/// When an image passed each step. Images that were lost or refused pass no step but the receivers.
#[derive(Clone, Copy, Debug)]
struct Passed {
    state: State,
    sent_s: f64,
    /// Its first packet is taken from a socket.
    begun_s: f64,
    /// It has left the ring, and so have all before it.
    committed_s: f64,
    /// A worker takes it up.
    work_s: f64,
    joining_s: f64,
    joined_s: f64,
    written_s: f64,
    stored_s: f64,
    /// Parts of images in the fullest socket when its last packet arrives.
    socket_images: f64,
}

/// A buffer over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// What it is.
    pub name: &'static str,
    /// Images that it holds.
    pub capacity: f64,
    /// Most images in it at once.
    pub images_max: f64,
    /// Most images in it at once in each interval, at equal distances from 0 to [`Outcome::seconds`].
    pub over_time: Vec<f64>,
}

/// What came of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Images sent.
    pub images: u64,
    /// Images stored whole.
    pub whole: u64,
    /// Images stored with parts missing.
    pub partial: u64,
    /// Images lost in the sockets.
    pub lost: u64,
    /// Images for which there was no slot.
    pub refused: u64,
    /// When the first image that is not whole was sent.
    pub first_loss_s: Option<f64>,
    /// From the first packet until the last image is stored.
    pub seconds: f64,
    /// Mean number of images in the ring.
    pub ring_mean: f64,
    /// From an image's first packet to the kernel: median, 99 % and the longest.
    pub latency_s: [f64; 3],
    /// The buffers in the order of the data.
    pub fills: Vec<Fill>,
}

impl Outcome {
    /// The part of the images that is not whole.
    pub fn loss(&self) -> f64 {
        if self.images == 0 { 0.0 } else { (self.images - self.whole) as f64 / self.images as f64 }
    }
}

/// A thread or a disk: does one thing after the other, except in its pauses.
struct Server {
    free_s: f64,
    pauses: Pauses,
    next_pause_s: f64,
    rng: Rng,
}

impl Server {
    fn new(pauses: Pauses, seed: u64, step: u64, number: u64) -> Self {
        let mut server = Self { free_s: 0.0, pauses, next_pause_s: f64::INFINITY, rng: Rng::keyed(seed, &[step, number]) };
        server.draw_pause(0.0);
        server
    }

    /// The next pause after `from_s`.
    fn draw_pause(&mut self, from_s: f64) {
        let is_any = self.pauses.every_s > 0.0 && self.pauses.length_s > 0.0;
        self.next_pause_s = if is_any { from_s - self.pauses.every_s * (1.0 - self.rng.uniform()).ln() } else { f64::INFINITY };
    }

    /// Begins at `ready_s`, or when it has done what came before; returns begin and end.
    fn serve(&mut self, ready_s: f64, service: Service) -> (f64, f64) {
        let spread = if service.spread_s > 0.0 { service.spread_s * self.rng.normal() } else { 0.0 };
        let mut left_s = (service.mean_s + spread).max(0.0);
        let begin_s = ready_s.max(self.free_s);
        let mut at_s = begin_s;
        // Without work no pause delays.
        while left_s > 0.0 {
            let pause_end_s = self.next_pause_s + self.pauses.length_s;
            if self.next_pause_s >= at_s + left_s {
                at_s += left_s;
                left_s = 0.0;
            } else {
                left_s -= (self.next_pause_s - at_s).max(0.0);
                at_s = at_s.max(pause_end_s);
                self.draw_pause(pause_end_s);
            }
        }
        self.free_s = at_s;
        (begin_s, at_s)
    }
}

/// A socket and the thread that reads it.
struct Stream {
    thread: Server,
    /// Begin and end of the reading of each part that may be unread.
    reading: VecDeque<(f64, f64)>,
}

impl Stream {
    /// Parts that are unread at `at_s`, all of which have arrived.
    fn unread(&mut self, at_s: f64) -> f64 {
        while self.reading.front().is_some_and(|(_, end)| *end <= at_s) {
            self.reading.pop_front();
        }
        let Some((begin, end)) = self.reading.front() else { return 0.0 };
        let of_first = if *begin < at_s { (end - at_s) / (end - begin) } else { 1.0 };
        (self.reading.len() - 1) as f64 + of_first
    }

    /// Takes a part whose packets arrive from `from_s` to `to_s`. Returns begin and end of the reading, `None` if there
    /// was no room; and how full the socket was.
    fn take(&mut self, from_s: f64, to_s: f64, model: &Model) -> (Option<(f64, f64)>, f64) {
        let unread = self.unread(to_s);
        if unread > 0.0 && unread + 1.0 > model.socket_images {
            return (None, unread);
        }
        let (begin, end) = self.thread.serve(from_s, model.receive);
        let end = end.max(to_s);
        self.reading.push_back((begin, end));
        (Some((begin, end)), if begin < to_s { unread } else { unread + 1.0 })
    }
}

/// All threads and what they have done so far.
struct Run<'a> {
    model: &'a Model,
    arrivals: Rng,
    streams: Vec<Stream>,
    workers: Vec<Server>,
    join: Server,
    write: Server,
    disk: Server,
    /// Of all images.
    all: Vec<Passed>,
    /// Places in `all` of the images that the ring took.
    taken: Vec<usize>,
}

impl Model {
    /// Runs it to the end: until the last image is stored. `intervals` is the resolution of [`Fill::over_time`].
    pub fn run(&self, intervals: usize) -> Outcome {
        let mut run = self.start();
        let mut sent_s = 0.0;
        for _ in 0..self.images {
            run.image(sent_s);
            sent_s += match self.arrivals {
                Arrivals::Even => self.period_s,
                Arrivals::Random => -self.period_s * (1.0 - run.arrivals.uniform()).ln(),
            };
        }
        run.outcome(intervals.max(1))
    }

    /// All threads before the first image.
    fn start(&self) -> Run<'_> {
        let thread = |step, number| Server::new(self.pauses, self.seed, step, number);
        let streams = (0..self.streams as u64).map(|n| Stream { thread: thread(1, n), reading: VecDeque::new() });
        Run {
            model: self,
            arrivals: Rng::keyed(self.seed, &[0]),
            streams: streams.collect(),
            workers: (0..self.workers as u64).map(|n| thread(2, n)).collect(),
            join: thread(3, 0),
            write: thread(4, 0),
            disk: Server::new(self.stalls, self.seed, 5, 0),
            all: Vec::with_capacity(self.images as usize),
            taken: Vec::new(),
        }
    }
}

impl Run<'_> {
    fn image(&mut self, sent_s: f64) {
        let model = self.model;
        let to_s = sent_s + model.sending_s;
        let (mut begun_s, mut sealed_s, mut parts, mut socket_images) = (f64::INFINITY, to_s, 0, 0.0f64);
        for stream in &mut self.streams {
            let (read, fill) = stream.take(sent_s, to_s, model);
            socket_images = socket_images.max(fill);
            if let Some((begin, end)) = read {
                begun_s = begun_s.min(begin);
                sealed_s = sealed_s.max(end);
                parts += 1;
            }
        }
        let committed_before_s = self.all.last().map_or(0.0, |image| image.committed_s);
        let slot_s = self.all.len().checked_sub(model.slots).map_or(0.0, |before| self.all[before].committed_s);
        let state = match parts {
            0 => State::Lost,
            _ if slot_s > begun_s => State::Refused,
            n if n < model.streams => State::Partial,
            _ => State::Whole,
        };
        let passed = Passed {
            state,
            sent_s,
            begun_s: begun_s.min(sealed_s),
            committed_s: committed_before_s.max(sealed_s),
            work_s: sealed_s,
            joining_s: sealed_s,
            joined_s: sealed_s,
            written_s: sealed_s,
            stored_s: sealed_s,
            socket_images,
        };
        let is_taken = matches!(state, State::Whole | State::Partial);
        let passed = if is_taken { self.process(passed, sealed_s) } else { passed };
        if is_taken {
            self.taken.push(self.all.len());
        }
        self.all.push(passed);
    }

    /// From the ring to the disk.
    fn process(&mut self, mut image: Passed, sealed_s: f64) -> Passed {
        let model = self.model;
        let (all, taken) = (&self.all, &self.taken);
        // When the image that had this place in a buffer before was done with it.
        let before = |places: usize, done: fn(&Passed) -> f64| {
            taken.len().checked_sub(places.max(1)).map_or(0.0, |n| done(&all[taken[n]]))
        };
        let ready_s = sealed_s.max(before(model.strip_slots, |image| image.joined_s));
        (image.work_s, image.committed_s) = (f64::INFINITY, image.committed_s.max(ready_s));
        for worker in &mut self.workers {
            let (begin, end) = worker.serve(ready_s, model.work);
            image.work_s = image.work_s.min(begin);
            image.committed_s = image.committed_s.max(end);
        }
        image.work_s = image.work_s.min(image.committed_s);
        let pool_s = before(model.pool_images, |image| image.written_s);
        (image.joining_s, image.joined_s) = self.join.serve(image.committed_s.max(pool_s), model.join);
        let (_, written_s) = self.write.serve(image.joined_s, model.write);
        // The file's thread waits in the kernel until there is room.
        image.written_s = written_s.max(before(model.cache_images, |image| image.stored_s));
        self.write.free_s = image.written_s;
        (_, image.stored_s) = self.disk.serve(image.written_s, model.disk);
        image
    }

    fn outcome(&self, intervals: usize) -> Outcome {
        let model = self.model;
        let count = |state| self.all.iter().filter(|image| image.state == state).count() as u64;
        let seconds = self.all.iter().map(|image| image.stored_s).fold(0.0, f64::max);
        let first_loss = self.all.iter().find(|image| image.state != State::Whole);
        let taken: Vec<&Passed> = self.taken.iter().map(|n| &self.all[*n]).collect();
        let fill = |name, capacity: usize, enters: fn(&Passed) -> f64, leaves: fn(&Passed) -> f64| {
            let sorted = |of: fn(&Passed) -> f64| {
                let mut times: Vec<f64> = taken.iter().map(|image| of(image)).collect();
                times.sort_unstable_by(f64::total_cmp);
                times
            };
            let over_time = most_at_once(&sorted(enters), &sorted(leaves), seconds, intervals);
            Fill { name, capacity: capacity as f64, images_max: over_time.iter().copied().fold(0.0, f64::max), over_time }
        };
        let mut latencies: Vec<f64> = taken.iter().map(|image| image.written_s - image.sent_s).collect();
        latencies.sort_unstable_by(f64::total_cmp);
        let quantile = |part: f64| latencies.get((part * latencies.len() as f64) as usize).or(latencies.last());
        let in_ring_s: f64 = taken.iter().map(|image| image.committed_s - image.begun_s).sum();
        Outcome {
            images: self.all.len() as u64,
            whole: count(State::Whole),
            partial: count(State::Partial),
            lost: count(State::Lost),
            refused: count(State::Refused),
            first_loss_s: first_loss.map(|image| image.sent_s),
            seconds,
            ring_mean: if seconds > 0.0 { in_ring_s / seconds } else { 0.0 },
            latency_s: [0.5, 0.99, 1.0].map(|part| quantile(part).copied().unwrap_or(0.0)),
            fills: vec![
                self.sockets(seconds, intervals),
                fill("ring of frames", model.slots, |image| image.begun_s, |image| image.committed_s),
                fill("ring of strips", model.strip_slots, |image| image.work_s, |image| image.joined_s),
                fill("pool", model.pool_images, |image| image.joining_s, |image| image.written_s),
                fill("kernel, before the disk", model.cache_images, |image| image.written_s, |image| image.stored_s),
            ],
        }
    }

    /// The fullest socket.
    fn sockets(&self, seconds: f64, intervals: usize) -> Fill {
        let mut over_time = vec![0.0f64; intervals];
        for image in &self.all {
            let interval = interval_of(image.sent_s + self.model.sending_s, seconds, intervals);
            over_time[interval] = over_time[interval].max(image.socket_images);
        }
        let images_max = over_time.iter().copied().fold(0.0, f64::max);
        Fill { name: "sockets, the fullest", capacity: self.model.socket_images, images_max, over_time }
    }
}

fn interval_of(at_s: f64, seconds: f64, intervals: usize) -> usize {
    if seconds > 0.0 { ((at_s / seconds * intervals as f64) as usize).min(intervals - 1) } else { 0 }
}

/// Most images that are inside at once, in each interval. `enters` and `leaves` are sorted; who leaves when another
/// enters is outside.
fn most_at_once(enters: &[f64], leaves: &[f64], seconds: f64, intervals: usize) -> Vec<f64> {
    let mut most = vec![0.0f64; intervals];
    let inside = |entered: usize, at_s: f64| entered.saturating_sub(leaves.partition_point(|leave| *leave <= at_s)) as f64;
    for (n, enter) in enters.iter().enumerate() {
        // Of those that enter at the same time, the last one sees them all.
        let interval = interval_of(*enter, seconds, intervals);
        most[interval] = most[interval].max(inside(n + 1, *enter));
    }
    for (n, most) in most.iter_mut().enumerate() {
        let begin_s = n as f64 * seconds / intervals as f64;
        *most = most.max(inside(enters.partition_point(|enter| *enter <= begin_s), begin_s));
    }
    most
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
