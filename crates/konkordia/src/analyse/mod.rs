//! `konkordia analyse`: looks for spots, makes the powder profile and more, on the images of any file. Results are the
//! same for any number of threads.

pub mod args;
mod decide;
mod order;
mod output;
mod reflections;
mod report;

use crate::console::Progress;
use args::{AnalyseArgs, FramesChoice};
pub use decide::Deciders;
use konkordia_acquire::analysis::tasks;
use konkordia_analysis::analyser::{Analyser, Tasks};
use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::pixels::Pixels;
use konkordia_analysis::poni::Poni;
use konkordia_config::recipe::{self, Recipe};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_input::images::{Frames, Images};
use order::{Order, Outcome, StopOnDrop};
use output::Output;
use reflections::Reflections;
use report::Report;
use std::path::Path;

/// `konkordia analyse`
pub fn command(args: &AnalyseArgs) -> Result<Exit, Failure> {
    let recipe = match &args.recipe {
        Some(path) => Recipe::load(path)?,
        None => Recipe::parse(recipe::EXAMPLE, Path::new("the recipe of this program"))?,
    };
    let images = Images::open(&args.files, args.channel.as_deref())?;
    let geometry = geometry(args, &images)?;
    let usage = |why: String| Failure::new(Exit::Usage, "this cannot be analysed", why, "correct the recipe or the geometry");
    let mut tasks = tasks::of(&recipe, geometry.as_ref().ok()).map_err(usage)?;
    tasks.of_pixels = images.facts.of_pixels;
    let deciders = Deciders::new(&tasks, geometry.is_ok(), &images.facts.known)?;
    let kinds = deciders.kinds();
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
    // Before anything is said: a file that cannot be created ends the analysis before it begins.
    let output = args.output.as_deref().map(|path| Output::create(path, &args.files, &tasks, kinds, &analyser, shape));
    let mut output = output.transpose()?;
    let mut reflections = reflections(args, &analyser, images.facts.frames)?;
    let mut report = Report::new(args.json, analyser.regions(), kinds);
    report.begin(&images.facts, geometry.as_ref(), &tasks, &analyser, &left_out);
    let mut progress = Progress::new(args.quiet || args.json);
    let order = Order::new(from, workers);
    let work = Work { args, geometry: geometry.as_ref().ok(), tasks: &tasks, deciders: &deciders, to, order: &order };
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
            let outcome = order.take(image)?;
            if let Some(output) = &mut output {
                output.image(image, &outcome)?;
            }
            if let (Some(table), Outcome::Done(done)) = (&mut reflections, &outcome) {
                done.results.spots.iter().try_for_each(|spots| table.image(image, &spots.list.spots))?;
            }
            report.image(image, &outcome);
            progress.update(|| format!("{} of {} images", text::count(image + 1 - from), text::count(to - from)));
        }
        Ok(())
    })?;
    progress.end();
    output.map_or(Ok(()), Output::finish)?;
    reflections.map_or(Ok(()), Reflections::finish)?;
    Ok(report.end())
}

/// The table for DIALS, if one is asked for.
fn reflections(args: &AnalyseArgs, analyser: &Analyser, frames_of_files: Frames) -> Result<Option<Reflections>, Failure> {
    if args.reflections.is_some() && analyser.results().spots.is_none() {
        let (what, why) = ("there are no spots for --reflections", "the recipe asks for none, or they cannot be looked for");
        return Err(Failure::new(Exit::Usage, what, why, "add [spots] to the recipe; peakfinder8 needs a geometry"));
    }
    let frames = match (args.frames, frames_of_files) {
        (Some(FramesChoice::Stills), _) => Frames::Stills,
        (Some(FramesChoice::Rotation), Frames::Stills) => Frames::Rotation { first: 0 },
        (_, frames) => frames,
    };
    args.reflections.as_deref().map(|path| Reflections::new(path, frames)).transpose()
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

/// What the threads need.
struct Work<'a> {
    args: &'a AnalyseArgs,
    geometry: Option<&'a Geometry>,
    tasks: &'a Tasks,
    deciders: &'a Deciders,
    /// Behind the last image.
    to: u64,
    order: &'a Order,
}

impl Work<'_> {
    /// One thread: an image after the other, with files and an analyser of its own.
    fn run(&self, own: Option<(Images, Analyser)>) {
        let made = own.map_or_else(
            || {
                let images = Images::open(&self.args.files, self.args.channel.as_deref())?;
                let made = Analyser::new(self.tasks, self.geometry, &images.facts.usable, images.facts.shape);
                let (analyser, _) = made.map_err(|why| Failure::new(Exit::Bug, "this cannot be analysed", why, "report this"))?;
                Ok((images, analyser))
            },
            Ok,
        );
        let (mut images, mut analyser) = match made {
            Ok(made) => made,
            Err(failure) => return self.order.fail(failure),
        };
        let (mut pixels, facts) = (Pixels::new(), images.facts.clone());
        while let Some(image) = self.order.next(self.to) {
            let outcome = match images.read(image) {
                Ok(Some(bytes)) => {
                    let (mut results, mut known) = (analyser.results(), Vec::new());
                    let image_of = (facts.shape[1], facts.valid);
                    let looked = pixels.analyse(&mut analyser, (facts.pixel, &bytes), image_of, &mut results);
                    match looked.and_then(|()| images.add_known(image, &mut known).map_err(|failure| failure.to_string())) {
                        Ok(()) => Outcome::Done(Box::new(self.deciders.decided(results, known))),
                        Err(why) => Outcome::Failed(why),
                    }
                }
                Ok(None) => Outcome::Absent,
                Err(failure) => Outcome::Failed(failure.detail()),
            };
            self.order.give(image, outcome);
        }
    }
}
