//! `konkordia analyse`: looks for spots, makes the powder profile and more, on the images of any file. Results are the
//! same for any number of threads.

pub mod args;
pub mod images;
mod report;
mod tasks;

use crate::console::Progress;
use args::AnalyseArgs;
use images::Images;
use konkordia_analysis::Plane;
use konkordia_analysis::analyser::{Analyser, Results, Tasks};
use konkordia_analysis::azimuthal::Summed;
use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::poni::Poni;
use konkordia_config::recipe::{self, Recipe};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_core::text;
use konkordia_kernels::Isa;
use report::Report;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

/// Results that may be ready before those of an earlier image, for each thread.
const AHEAD_PER_WORKER: u64 = 4;

/// `konkordia analyse`
pub fn command(args: &AnalyseArgs) -> Result<Exit, Failure> {
    let recipe = match &args.recipe {
        Some(path) => Recipe::load(path)?,
        None => Recipe::parse(recipe::EXAMPLE, Path::new("the recipe of this program"))?,
    };
    let images = Images::open(&args.files)?;
    let geometry = geometry(args, &images)?;
    let usage = |why: String| Failure::new(Exit::Usage, "this cannot be analysed", why, "correct the recipe or the geometry");
    let tasks = tasks::of(&recipe, geometry.as_ref().ok()).map_err(usage)?;
    let shape = images.facts.shape;
    let (analyser, left_out) = Analyser::new(&tasks, geometry.as_ref().ok(), &images.facts.usable, shape).map_err(usage)?;
    let all = images.facts.images;
    let (from, to) = args.images.map_or((0, all), |(from, to)| (from.min(all), to.saturating_add(1).min(all)));
    if from >= to {
        let why = format!("the files have {all} images, counted from 0");
        return Err(Failure::new(Exit::Usage, "there is no image to analyse", why, "give another range, or other files"));
    }
    let workers = args.workers.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let workers = workers.min(usize::try_from(to - from).unwrap_or(usize::MAX));
    let mut report = Report::new(args.json, analyser.regions());
    report.begin(&images.facts, geometry.as_ref(), &tasks, &analyser, &left_out);
    let mut progress = Progress::new(args.quiet || args.json);
    let order = Order::new(from, workers);
    let work = Work { args, geometry: geometry.as_ref().ok(), tasks: &tasks, to, order: &order };
    std::thread::scope(|scope| -> Result<(), Failure> {
        let _end = StopOnDrop(&order);
        let mut own = Some((images, analyser));
        for worker in 0..workers {
            let (work, own) = (&work, own.take());
            let named = std::thread::Builder::new().name(format!("analyse-{worker}"));
            let spawned = named.spawn_scoped(scope, move || work.run(own));
            spawned.map_err(|e| Failure::io("cannot start a thread for", Path::new("the analysis"), &e))?;
        }
        for image in from..to {
            report.image(image, &order.take(image)?);
            progress.update(|| format!("{} of {} images", text::count(image + 1 - from), text::count(to - from)));
        }
        Ok(())
    })?;
    progress.end();
    Ok(report.end())
}

/// The geometry that holds: that of the command line, otherwise that of the files; or why there is none.
fn geometry(args: &AnalyseArgs, images: &Images) -> Result<Result<Geometry, String>, Failure> {
    let Some(path) = &args.poni else { return Ok(images.facts.geometry.clone()) };
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io("cannot read", path, &error))?;
    let of = |why: String| {
        Failure::new(Exit::Configuration, format!("{} is no geometry for these images", path.display()), why, "correct the file")
    };
    let geometry = text.parse::<Poni>().and_then(|poni| poni.geometry(images.facts.shape)).map_err(of)?;
    Ok(Ok(geometry))
}

/// What came of an image.
#[derive(Debug)]
enum Outcome {
    Done(Box<Results>),
    /// It was never written.
    Absent,
    Failed(String),
}

/// What the threads need.
struct Work<'a> {
    args: &'a AnalyseArgs,
    geometry: Option<&'a Geometry>,
    tasks: &'a Tasks,
    /// Behind the last image.
    to: u64,
    order: &'a Order,
}

impl Work<'_> {
    /// One thread: an image after the other, with files and an analyser of its own.
    fn run(&self, own: Option<(Images, Analyser)>) {
        let made = own.map_or_else(
            || {
                let images = Images::open(&self.args.files)?;
                let made = Analyser::new(self.tasks, self.geometry, &images.facts.usable, images.facts.shape);
                let (analyser, _) = made.map_err(|why| Failure::new(Exit::Bug, "this cannot be analysed", why, "report this"))?;
                Ok((images, analyser))
            },
            Ok,
        );
        let (images, mut analyser) = match made {
            Ok(made) => made,
            Err(failure) => return self.order.fail(failure),
        };
        while let Some(image) = self.order.next(self.to) {
            let outcome = match images.read(image) {
                Ok(Some(bytes)) => {
                    let mut results = analyser.results();
                    match analyse(&mut analyser, &images, &bytes, &mut results) {
                        Ok(()) => Outcome::Done(Box::new(results)),
                        Err(why) => Outcome::Failed(why),
                    }
                }
                Ok(None) => Outcome::Absent,
                Err(failure) => Outcome::Failed(format!("{}: {}", failure.what, failure.why)),
            };
            self.order.give(image, outcome);
        }
    }
}

/// Analyses the pixels of an image by their type.
fn analyse(analyser: &mut Analyser, images: &Images, bytes: &[u8], out: &mut Results) -> Result<(), String> {
    macro_rules! as_type {
        ($($name:ident: $from:ty => $to:ty),*) => {
            match images.facts.pixel {
                $(PixelType::$name => {
                    let numbers = bytes.as_chunks().0.iter().map(|number| <$to>::from(<$from>::from_le_bytes(*number)));
                    let pixels: Vec<$to> = numbers.collect();
                    let limits = images.facts.valid.map(|(low, high)| (low as $to, high as $to));
                    let special = PixelType::$name.special();
                    let own = (special.valid_min as $to, special.valid_max as $to);
                    look(analyser, &pixels, images.facts.shape[1], limits.unwrap_or(own), out)
                })*
                other => Err(format!("pixels of type {other} cannot be analysed")),
            }
        };
    }
    as_type!(
        Int8: i8 => i16, Uint8: u8 => u16, Int16: i16 => i16, Uint16: u16 => u16, Int32: i32 => i32, Uint32: u32 => u32,
        Float32: f32 => f32
    )
}

fn look<P: Summed>(
    analyser: &mut Analyser,
    pixels: &[P],
    columns: usize,
    (low, high): (P, P),
    out: &mut Results,
) -> Result<(), String> {
    analyser.analyse(Isa::detect(), &Plane::new(pixels, columns, low, high), out)
}

/// Hands images out in their order, and takes results back in any order.
struct Order {
    state: Mutex<State>,
    changed: Condvar,
    ahead_max: u64,
}

struct State {
    /// The next image that a thread gets.
    next: u64,
    /// The image that is reported next.
    wanted: u64,
    ready: BTreeMap<u64, Outcome>,
    failure: Option<Failure>,
    is_over: bool,
}

impl Order {
    fn new(from: u64, workers: usize) -> Self {
        let state = State { next: from, wanted: from, ready: BTreeMap::new(), failure: None, is_over: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), ahead_max: AHEAD_PER_WORKER * workers as u64 }
    }

    fn wait_while(&self, is_waiting: impl Fn(&State) -> bool) -> std::sync::MutexGuard<'_, State> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.wait_while(state, |state| is_waiting(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next image for a thread, when it is not too far ahead; `None` at the end.
    fn next(&self, to: u64) -> Option<u64> {
        let mut state = self.wait_while(|s| !s.is_over && s.next < to && s.next >= s.wanted + self.ahead_max);
        let image = state.next;
        let has_image = !state.is_over && image < to;
        state.next += u64::from(has_image);
        has_image.then_some(image)
    }

    fn give(&self, image: u64, outcome: Outcome) {
        self.wait_while(|_| false).ready.insert(image, outcome);
        self.changed.notify_all();
    }

    fn fail(&self, failure: Failure) {
        self.wait_while(|_| false).failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    /// The result of an image, when it is ready.
    fn take(&self, image: u64) -> Result<Outcome, Failure> {
        let mut state = self.wait_while(|s| s.failure.is_none() && !s.ready.contains_key(&image));
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.wanted = image + 1;
        self.changed.notify_all();
        Ok(state.ready.remove(&image).expect("it is ready"))
    }
}

/// Ends the threads, whatever happens to the one that reports.
struct StopOnDrop<'a>(&'a Order);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wait_while(|_| false).is_over = true;
        self.0.changed.notify_all();
    }
}
