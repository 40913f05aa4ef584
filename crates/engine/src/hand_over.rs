//! Hands the images of a run or series to the output queues, in order. Where images are to be analysed, they wait in a
//! line while threads look at them, so that every output gets an image together with its results.
//!
//! The line is bounded, and who hands images over waits for no analysis. If `queue_images` images wait to be analysed
//! or are in work and another one comes, the oldest that waits passes as it is. When twice as many stand in the line,
//! the first is not waited for any more. Both are counted as skipped. From then on the threads take the newest image,
//! until none waits: the older ones would be passed by while they are in work, and the work on them be lost. Images
//! leave the line in the order in which they came: whoever is done with the first one hands over all that are done.

pub use crate::analysis_counter::{Counter, Looked};
use crate::contain::{Panic, contain};
use crate::output_queue::OutputQueues;
use crate::plane::{PixelPlane, PlaneBuffer};
use crate::sys;
use konkordia_core::affinity::Priority;
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::image::CommittedImage;
use konkordia_core::image_metadata::ImageMetadata;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::results::{ImageResults, ResultKind, numbers};
use konkordia_core::series::SeriesStart;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often a waiting thread looks whether it must give up.
const GRAIN: Duration = Duration::from_millis(20);
/// At the end of a run, so long is waited for an image that is being analysed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Priority of the threads that analyse.
const PRIORITY: Priority = Priority::Nice(NICE);
/// The priority of threads and programs that look at images: below all others.
pub const NICE: i32 = 10;

/// Looks at images, one after the other.
pub trait ImageAnalyser: Send {
    /// Analyses a channel of an image. `results` are the bits of all its results, kind after kind; those of the
    /// analysis are to be written, those before them are there already.
    ///
    /// # Errors
    /// The image cannot be analysed, in words.
    fn analyse(&mut self, plane: &PixelPlane<'_>, results: &mut [u64]) -> Result<Looked, String>;
}

/// What is to be added to the images of one run or series.
#[derive(Default)]
pub struct SeriesAnalysis {
    /// All that is added. These results follow those that the images have already.
    pub kinds: Vec<ResultKind>,
    /// What is known of each image; the first of `kinds`.
    pub metadata: ImageMetadata,
    /// One for each thread. Without any, images are not analysed.
    pub analysers: Vec<Box<dyn ImageAnalyser>>,
    /// The channel that is analysed, of images with several; `None` = the first.
    pub channel: Option<String>,
    /// Images that may wait to be analysed or be in work, at least 1.
    pub queue_images: usize,
    /// What becomes of images that are rejected.
    pub veto: Veto,
    /// Counts what becomes of the images.
    pub counter: Arc<Counter>,
}

impl SeriesAnalysis {
    /// What becomes of the images.
    pub fn counts(&self) -> AnalysisCounts {
        AnalysisCounts::new(Arc::clone(&self.counter) as _, !self.analysers.is_empty())
    }
}

/// What becomes of images that the rule of a veto rejects. Images that miss something are never dropped, so that every
/// loss stays visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Veto {
    /// They lose their pixels.
    pub drops: bool,
    /// Every how many-th of them, in the order of the images, is kept anyway; 0 = none.
    pub keep_one_in: u64,
}

impl Veto {
    /// Whether the image that is the `count`-th rejected one, from 1, is dropped.
    fn drops_rejected(self, count: u64) -> bool {
        let is_kept = self.keep_one_in > 0 && count.is_multiple_of(self.keep_one_in);
        self.drops && !is_kept
    }
}

/// True: nobody waits for consumers or analysis any more.
pub(crate) type GiveUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// See the top of this module. Used by one thread.
pub(crate) struct HandOver {
    output_queues: Arc<OutputQueues>,
    give_up: GiveUp,
    label: Option<Label>,
    line: Option<AnalysisLine>,
}

/// Adds to each image what is known of it.
struct Label {
    metadata: ImageMetadata,
    /// All results of an image.
    kinds: Arc<[ResultKind]>,
    /// Where those of the metadata begin.
    at: usize,
    /// Images that miss a value, for each.
    missing: Vec<u64>,
    counter: Arc<Counter>,
}

impl Label {
    fn add(&mut self, image: &mut Arc<CommittedImage>) {
        if !image.status.has_pixels() {
            return;
        }
        let image = Arc::make_mut(image);
        if image.results.bits().is_empty() {
            image.results = ImageResults::new(Arc::clone(&self.kinds));
        }
        let mut results = std::mem::take(&mut image.results);
        self.metadata.fill(image, &mut results.fill()[self.at..], &mut self.missing);
        image.results = results;
    }
}

impl Drop for Label {
    fn drop(&mut self) {
        if let Some(what) = self.metadata.unsaid(&self.missing) {
            self.counter.unsaid(what);
        }
    }
}

/// The line of a run or series, and the threads that work on it.
struct AnalysisLine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    output_queues: Arc<OutputQueues>,
    give_up: GiveUp,
    start: Arc<SeriesStart>,
    /// All results of an image.
    kinds: Arc<[ResultKind]>,
    channel: Option<String>,
    queue_images: usize,
    veto: Veto,
    counter: Arc<Counter>,
    line: Mutex<Line>,
    /// There is work, or none any more.
    work: Condvar,
    /// The line has become shorter, or a thread has ended its image.
    shorter: Condvar,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// Images that have left it, which makes the number of its first one.
    left: u64,
    /// Images come faster than they are analysed.
    is_behind: bool,
    /// Images that wait to be analysed or are in work.
    wanted: usize,
    /// Threads that have an image.
    in_work: usize,
    /// Rejected images that have left it.
    rejected: u64,
    /// Somebody is handing over.
    is_leaving: bool,
    /// No image will come any more.
    is_closed: bool,
    /// Images pass as they are: an analyser panicked.
    is_off: bool,
    /// Handing over panicked, which is a mistake in the program.
    broken: Option<Panic>,
}

struct Waiting {
    image: Arc<CommittedImage>,
    is_lent: bool,
    state: State,
    is_rejected: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Wanted,
    InWork,
    Done,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is complete before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HandOver {
    /// Hands over to these queues.
    pub fn new(output_queues: Arc<OutputQueues>, give_up: GiveUp) -> Self {
        Self { output_queues, give_up, label: None, line: None }
    }

    /// Begins a run or series. `analysis` is what is added to its images: their results are `start.results`, those that
    /// are added the last ones.
    pub fn start(&mut self, start: &Arc<SeriesStart>, analysis: Option<SeriesAnalysis>) {
        self.finish();
        self.output_queues.start(start, &*self.give_up);
        let Some(SeriesAnalysis { kinds, metadata, analysers, channel, queue_images, veto, counter }) = analysis else { return };
        let all: Arc<[ResultKind]> = start.results.clone().into();
        if !metadata.is_empty() {
            let (at, missing) = (numbers(&all) - numbers(&kinds), vec![0; metadata.kinds().count()]);
            let (kinds, counter) = (Arc::clone(&all), Arc::clone(&counter));
            self.label = Some(Label { metadata, kinds, at, missing, counter });
        }
        if analysers.is_empty() {
            return;
        }
        let shared = Arc::new(Shared {
            output_queues: Arc::clone(&self.output_queues),
            give_up: Arc::clone(&self.give_up),
            start: Arc::clone(start),
            kinds: all,
            channel,
            queue_images: queue_images.max(1),
            veto,
            counter,
            line: Mutex::new(Line::default()),
            work: Condvar::new(),
            shorter: Condvar::new(),
        });
        let mut threads = Vec::new();
        for (n, analyser) in analysers.into_iter().enumerate() {
            let own = Arc::clone(&shared);
            match Builder::new().name(format!("analyse-{n}")).spawn(move || own.run(analyser)) {
                Ok(thread) => threads.push(thread),
                Err(error) => shared.counter.note(format!("the system cannot start a thread: {error}")),
            }
        }
        lock(&shared.line).is_off = threads.is_empty();
        self.line = Some(AnalysisLine { shared, threads });
    }

    /// Hands over an image, see [`OutputQueues::image`].
    pub fn image(&mut self, image: Arc<CommittedImage>) {
        self.hand_over(image, false);
    }

    /// Hands over an image in a buffer of the run, see [`OutputQueues::lend`].
    pub fn lend(&mut self, image: Arc<CommittedImage>) {
        self.hand_over(image, true);
    }

    fn hand_over(&mut self, mut image: Arc<CommittedImage>, is_lent: bool) {
        if let Some(label) = &mut self.label {
            label.add(&mut image);
        }
        match &self.line {
            Some(line) => line.shared.enter(image, is_lent),
            None => leave(&self.output_queues, &image, is_lent, &*self.give_up),
        }
    }

    /// The queues.
    pub fn output_queues(&self) -> &Arc<OutputQueues> {
        &self.output_queues
    }

    /// Waits until all images are handed over, and ends the analysis. To be called before the end of the run or series
    /// is handed over.
    pub fn finish(&mut self) {
        self.label = None;
        if let Some(line) = self.line.take() {
            line.shared.drain();
            line.end();
            self.output_queues.flush();
        }
    }
}

fn leave(output_queues: &OutputQueues, image: &Arc<CommittedImage>, is_lent: bool, give_up: &dyn Fn() -> bool) {
    if is_lent { output_queues.lend(image, give_up) } else { output_queues.image(image, give_up) }
}

/// An image without its pixels, with everything that is known of it.
fn vetoed(image: &CommittedImage) -> CommittedImage {
    CommittedImage { status: ImageStatus::Vetoed, channels: Vec::new(), ..image.clone() }
}

impl AnalysisLine {
    /// Ends the threads. One that does not come back from its image is left to itself.
    fn end(self) {
        let mut line = lock(&self.shared.line);
        line.is_closed = true;
        self.shared.work.notify_all();
        let still = |line: &mut Line| line.in_work > 0;
        let (line, waited) =
            self.shared.shorter.wait_timeout_while(line, PATIENCE, still).unwrap_or_else(PoisonError::into_inner);
        drop(line);
        if !waited.timed_out() {
            self.threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

impl Shared {
    /// The thread of an analyser.
    fn run(&self, mut analyser: Box<dyn ImageAnalyser>) {
        // Receiving and writing come first. A kernel that refuses this lets all be equal.
        let _ = sys::set_priority(PRIORITY);
        let mut buffer = PlaneBuffer::new(usize::MAX);
        buffer.reserve(&self.start);
        let mut line = lock(&self.line);
        loop {
            let Some((number, image)) = line.take() else {
                if line.is_closed {
                    return;
                }
                line = self.work.wait(line).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(line);
            let began = Instant::now();
            let looked = contain(|| self.look(&mut *analyser, &mut buffer, &image));
            self.counter.worked(began.elapsed());
            drop(image);
            line = lock(&self.line);
            line.in_work -= 1;
            match looked {
                Ok(looked) => line = self.done(line, number, looked),
                Err(panic) => {
                    line = self.done(line, number, Err(panic.to_string()));
                    self.switch_off(line, &panic);
                    return;
                }
            }
        }
    }

    /// The image with its results.
    fn look(
        &self,
        analyser: &mut dyn ImageAnalyser,
        buffer: &mut PlaneBuffer,
        image: &CommittedImage,
    ) -> Result<(Arc<CommittedImage>, Looked), String> {
        let mut with_results = self.with_results(image);
        let plane = buffer.plane(&self.start, image, self.channel_of(image)?)?;
        let looked = analyser.analyse(&plane, with_results.results.fill())?;
        Ok((Arc::new(with_results), looked))
    }

    /// Which of its channels is analysed.
    fn channel_of(&self, image: &CommittedImage) -> Result<usize, String> {
        let Some(wanted) = &self.channel else { return Ok(0) };
        let found = image.channels.iter().position(|channel| *channel.name == **wanted);
        found.ok_or_else(|| {
            let names: Vec<&str> = image.channels.iter().map(|channel| &*channel.name).collect();
            format!("it has no channel {wanted:?} ([analysis] channel), but {names:?}")
        })
    }

    /// A copy of an image that shares its pixels, with zeros for the results of analysis.
    fn with_results(&self, image: &CommittedImage) -> CommittedImage {
        let mut copy = image.clone();
        if copy.results.bits().is_empty() {
            copy.results = ImageResults::new(Arc::clone(&self.kinds));
            copy.results.fill();
        }
        copy
    }

    /// The image of this number was looked at. If the line has not waited for it, what came of it is dropped.
    fn done<'a>(
        &'a self,
        mut line: MutexGuard<'a, Line>,
        number: u64,
        looked: Result<(Arc<CommittedImage>, Looked), String>,
    ) -> MutexGuard<'a, Line> {
        if let Some(waiting) = line.of(number).filter(|waiting| waiting.state == State::InWork) {
            waiting.state = State::Done;
            match looked {
                Ok((image, looked)) => {
                    (waiting.image, waiting.is_rejected) = (image, looked.is_rejected);
                    self.counter.analysed(looked);
                }
                Err(why) => {
                    waiting.image = Arc::new(self.with_results(&waiting.image));
                    self.counter.failed(format!("image {}: {why}", waiting.image.number));
                }
            }
            line.wanted -= 1;
        }
        self.shorter.notify_all();
        self.let_go(line)
    }

    /// After a panic in an analyser images pass as they are.
    fn switch_off(&self, mut line: MutexGuard<'_, Line>, panic: &Panic) {
        line.is_off = true;
        let Line { waiting, wanted, .. } = &mut *line;
        for waiting in waiting.iter_mut().filter(|waiting| waiting.state == State::Wanted) {
            waiting.image = Arc::new(self.with_results(&waiting.image));
            waiting.state = State::Done;
            *wanted -= 1;
            self.counter.failed(panic.to_string());
        }
        drop(self.let_go(line));
    }

    /// Hands over the images at the front that are done, unless somebody does so already.
    fn let_go<'a>(&'a self, mut line: MutexGuard<'a, Line>) -> MutexGuard<'a, Line> {
        if line.is_leaving {
            return line;
        }
        line.is_leaving = true;
        loop {
            let mut has_left = false;
            while let Some(Waiting { mut image, is_lent, is_rejected, .. }) = line.pop_done() {
                self.shorter.notify_all();
                line.rejected += u64::from(is_rejected);
                if is_rejected && image.status == ImageStatus::Complete && self.veto.drops_rejected(line.rejected) {
                    image = Arc::new(vetoed(&image));
                    self.counter.vetoed();
                }
                drop(line);
                let left = contain(|| leave(&self.output_queues, &image, is_lent, &*self.give_up));
                drop(image);
                has_left = true;
                line = lock(&self.line);
                if let Err(panic) = left {
                    line.broken.get_or_insert(panic);
                }
            }
            if !has_left {
                break;
            }
            drop(line);
            self.output_queues.flush();
            // Images may have been done meanwhile.
            line = lock(&self.line);
        }
        line.is_leaving = false;
        self.shorter.notify_all();
        line
    }

    /// The image at the front is not waited for any more.
    fn give_up_first(&self, line: &mut Line) {
        self.give_up(line, 0);
    }

    /// The oldest image that waits for a thread passes as it is. False: there is none.
    fn give_up_waiting(&self, line: &mut Line) -> bool {
        let place = line.waiting.iter().position(|waiting| waiting.state == State::Wanted);
        place.is_some_and(|place| self.give_up(line, place))
    }

    /// The image at this place is not waited for any more. False: it was not waited for.
    fn give_up(&self, line: &mut Line, place: usize) -> bool {
        let Some(waiting) = line.waiting.get_mut(place).filter(|waiting| waiting.state != State::Done) else { return false };
        waiting.image = Arc::new(self.with_results(&waiting.image));
        waiting.state = State::Done;
        line.wanted -= 1;
        line.is_behind = true;
        self.counter.skipped();
        true
    }

    /// Takes an image into the line.
    fn enter(&self, mut image: Arc<CommittedImage>, is_lent: bool) {
        let mut line = lock(&self.line);
        while line.waiting.len() >= 2 * self.queue_images {
            if line.is_leaving {
                // Consumers are waited for, as without analysis.
                line = self.shorter.wait_timeout(line, GRAIN).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                self.give_up_first(&mut line);
                line = self.let_go(line);
            }
        }
        let mut state = State::Done;
        if image.status.has_pixels() {
            let has_room = !line.is_off && (line.wanted < self.queue_images || self.give_up_waiting(&mut line));
            if has_room {
                (state, line.wanted) = (State::Wanted, line.wanted + 1);
                self.work.notify_one();
            } else {
                image = Arc::new(self.with_results(&image));
                if line.is_off { self.counter.failed_too() } else { self.counter.skipped() }
            }
        }
        line.waiting.push_back(Waiting { image, is_lent, state, is_rejected: false });
        line = self.let_go(line);
        // As it would be without the line, the thread of the run panics.
        assert!(line.broken.is_none(), "{}", line.broken.as_ref().map_or("", |panic| &panic.why));
    }

    /// Waits until the line is empty.
    fn drain(&self) {
        let mut line = lock(&self.line);
        let (mut left, mut since) = (line.left, Instant::now());
        while !line.waiting.is_empty() || line.is_leaving {
            if line.left != left {
                (left, since) = (line.left, Instant::now());
            }
            if !line.is_leaving && (since.elapsed() > PATIENCE || (self.give_up)()) {
                self.give_up_first(&mut line);
            }
            line = self.let_go(line);
            if !line.waiting.is_empty() || line.is_leaving {
                line = self.shorter.wait_timeout(line, GRAIN).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Line {
    /// The image that a thread takes next, with its number: the oldest one that waits, or the newest.
    fn take(&mut self) -> Option<(u64, Arc<CommittedImage>)> {
        let is_wanted = |waiting: &Waiting| waiting.state == State::Wanted;
        let place = match self.is_behind {
            true => self.waiting.iter().rposition(is_wanted),
            false => self.waiting.iter().position(is_wanted),
        };
        let Some(place) = place else {
            self.is_behind = false;
            return None;
        };
        let waiting = &mut self.waiting[place];
        waiting.state = State::InWork;
        self.in_work += 1;
        Some((self.left + place as u64, Arc::clone(&waiting.image)))
    }

    fn of(&mut self, number: u64) -> Option<&mut Waiting> {
        self.waiting.get_mut(usize::try_from(number.checked_sub(self.left)?).ok()?)
    }

    fn pop_done(&mut self) -> Option<Waiting> {
        let first = self.waiting.pop_front_if(|first| first.state == State::Done)?;
        self.left += 1;
        Some(first)
    }
}

#[cfg(test)]
#[path = "hand_over_tests.rs"]
mod tests;
