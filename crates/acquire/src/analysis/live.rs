//! The analysis of a run or series while it is measured, from its recipe.

use super::indexing::Indexer;
use super::model::Scorer;
use super::{metadata, tasks};
use crate::shapes::ShapeBoard;
use konkordia_analysis::analyser::{Analyser, Results, Tasks};
use konkordia_analysis::figures::{Decision, Decisions, Figures};
use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::pixels::Pixels;
use konkordia_config::image_metadata::ImageMetadataKeys;
use konkordia_config::live_analysis::LiveAnalysis;
use konkordia_config::recipe::{Recipe, RegionKeys};
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image_metadata::ImageMetadata;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::AnalysisPlan;
use konkordia_core::results::{self, PixelPlace, ResultKind};
use konkordia_core::series::SeriesStart;
use konkordia_engine::hand_over::{ImageAnalyser, Looked, SeriesAnalysis, Veto};
use konkordia_engine::plane::PixelPlane;
use konkordia_engine::series::AnalysisFactory;
use konkordia_sinks::hdf5::{SeriesFacts, facts_of_series, limits_of_series};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Memory of a thread for each pixel: the image in two types, rings, the matrix of the profile, and masks.
const THREAD_PIXEL_BYTES: u64 = 64;

/// What is known of the images of a run or series.
pub struct ImageFacts {
    /// Where the detector stands, and the energy.
    pub metadata: Metadata,
    /// NXmx mask bits, row by row; empty: no bit is set.
    pub pixel_mask: Vec<u32>,
    /// Lowest and highest value that is a measurement.
    pub valid: (f64, f64),
}

/// Says what is known of images of this size and type.
pub type FactsOf = Box<dyn Fn([usize; 2], PixelType) -> ImageFacts + Send + Sync>;

/// The analysis of one run or series, and what is known of each of its images.
#[derive(Default)]
pub struct Prepared {
    /// The analysis.
    pub analysis: SeriesAnalysis,
    /// What cannot be done, in words.
    pub notes: Vec<String>,
    /// What the file says of it: names and texts.
    pub texts: Vec<(String, String)>,
    memory_bytes: u64,
}

impl Prepared {
    /// What the plan of a run must know.
    pub fn plan(&self) -> AnalysisPlan {
        let SeriesAnalysis { kinds, queue_images, .. } = &self.analysis;
        AnalysisPlan { kinds: kinds.clone(), queue_images: *queue_images as u64, memory_bytes: self.memory_bytes }
    }
}

/// Prepares the analysis of images that have the results `before` already, with the regions `drawn`. Their size and
/// type are `None` if the sender does not announce them: then each thread makes its tables when it gets its first
/// image.
///
/// # Errors
/// The recipe cannot be read, is wrong, or makes no sense for these images.
pub fn prepare(
    options: &LiveAnalysis,
    announced: (Option<[usize; 2]>, Option<PixelType>),
    before: &[ResultKind],
    drawn: &[RegionKeys],
    facts_of: FactsOf,
) -> Result<Prepared, Failure> {
    let (mut recipe, text) = Recipe::load_with_text(&options.recipe)?;
    let wrong = |why: String| refused(&options.recipe, why);
    recipe.draw(drawn).map_err(wrong)?;
    // Where the beam meets the detector does not depend on the size of the image.
    let (size, pixel) = (announced.0.unwrap_or([1, 1]), announced.1.unwrap_or(PixelType::Uint16));
    let geometry = Geometry::of_run(size, &facts_of(size, pixel).metadata);
    let mut tasks = tasks::of(&recipe, geometry.as_ref().ok()).map_err(wrong)?;
    if PixelPlace::find(before).is_none() {
        // Where it is not known whether pixels are integers, their values are floats.
        tasks.of_pixels = Some(results::pixel_results(announced.1.unwrap_or(PixelType::Float32)));
    }
    let figures = Figures::of(&tasks, geometry.is_ok()).map_err(wrong)?;
    let counter = Arc::default();
    let hands_over = tasks.spots.as_ref().is_some_and(|spots| spots.spots_max > 0);
    if options.indexing.is_some() && !hands_over {
        return Err(wrong("[indexing] needs spots: add [spots] to the recipe, with spots_max above 0".into()));
    }
    let of_indexing = options.indexing.iter().flat_map(|_| results::indexing::ALL);
    let kinds: Vec<_> = figures.kinds().iter().copied().chain(of_indexing).collect();
    let all: Vec<_> = before.iter().chain(&kinds).copied().collect();
    let decisions = Decisions::new(&tasks, &all).map_err(wrong)?;
    let own_at = results::numbers(before);
    let veto = recipe.veto.as_ref().map_or_else(Veto::default, |keys| Veto { drops: keys.drops, keep_one_in: keys.keep_one_in });
    let scene = Arc::new(Scene { tasks, figures, decisions, own_at, facts_of });
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = options.workers.unwrap_or(processors.div_ceil(2).max(2));
    let mut analysers: Vec<LiveAnalyser> = (0..workers).map(|_| LiveAnalyser::new(&scene)).collect();
    let (mut notes, mut texts) = (Vec::new(), vec![("analysis_recipe".to_owned(), text)]);
    if !scene.tasks.regions.is_empty() {
        // In the order of their results; some may be drawn and not in the recipe.
        let names: Vec<&String> = scene.tasks.regions.iter().map(|(name, _)| name).collect();
        texts.push(("analysis_regions".to_owned(), json!(names).to_string()));
    }
    let mut problem = None;
    if let Some(settings) = &options.indexing {
        for analyser in &mut analysers {
            let (indexer, why) = Indexer::new(settings, &counter);
            (analyser.indexer, problem) = (Some(indexer), why.or(problem));
        }
        texts.push(("analysis_indexing_program".to_owned(), json!(settings.program).to_string()));
    }
    if let (Some(task), Some(keys)) = (&scene.tasks.model, &recipe.model) {
        for analyser in &mut analysers {
            analyser.scorer = Some(Scorer::new(task, keys.answer_timeout, &all, &counter).map_err(wrong)?);
        }
    }
    if let (Some(size), Some(pixel)) = announced {
        notes = make_all(&mut analysers, size, pixel).map_err(wrong)?;
        texts.extend(analysers.first().map_or_else(Vec::new, LiveAnalyser::texts));
        notes.extend(geometry.err().filter(|_| !notes.is_empty()));
    }
    notes.extend(problem);
    let memory_bytes = workers as u64 * THREAD_PIXEL_BYTES * (size[0] * size[1]) as u64;
    let analysers = analysers.into_iter().map(|analyser| Box::new(analyser) as Box<dyn ImageAnalyser>).collect();
    let (metadata, channel, queue_images) = (ImageMetadata::default(), options.channel.clone(), options.queue_images);
    let analysis = SeriesAnalysis { kinds, metadata, analysers, channel, queue_images, veto, counter };
    Ok(Prepared { analysis, notes, texts, memory_bytes })
}

/// Adds what is known of each image, in front of the results of the analysis, which was prepared for images that have
/// these values already.
pub fn with_metadata(metadata: ImageMetadata, analysis: Option<Prepared>) -> Option<Prepared> {
    if metadata.is_empty() {
        return analysis;
    }
    let mut prepared = analysis.unwrap_or_default();
    prepared.analysis.kinds.splice(..0, metadata.kinds());
    prepared.analysis.metadata = metadata;
    Some(prepared)
}

fn refused(recipe: &Path, why: String) -> Failure {
    let what = format!("images cannot be analysed by the recipe {}", recipe.display());
    Failure::new(Exit::Configuration, what, why, "correct the recipe or the geometry, or remove [analysis]")
}

/// Makes the tables of all threads at the same time. Returns what is left out.
fn make_all(analysers: &mut [LiveAnalyser], size: [usize; 2], pixel: PixelType) -> Result<Vec<String>, String> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = analysers.iter_mut().map(|analyser| scope.spawn(move || analyser.make(size, pixel))).collect();
        let made: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a table is made without panic")).collect();
        made.into_iter().reduce(Result::and).unwrap_or_else(|| Ok(Vec::new()))
    })
}

/// What is added to each series of a stream and to its images.
pub struct OfSeries {
    /// How they are analysed, if they are.
    pub options: Option<LiveAnalysis>,
    /// What is known of each.
    pub metadata: ImageMetadataKeys,
    /// Frames that are summed for an image.
    pub sum_frames: u32,
    /// The facts of the configuration or of the command that armed it.
    pub given: Box<dyn Fn() -> Metadata + Send + Sync>,
    /// The mask and the regions that people have drawn.
    pub shapes: Arc<ShapeBoard>,
}

impl OfSeries {
    /// Prepares a series. What is left out is said in its warnings.
    fn prepare(&self, start: &mut SeriesStart) -> Option<Prepared> {
        let (given, drawing) = ((self.given)(), self.shapes.drawing());
        start.user_mask.clone_from(&drawing.mask);
        start.notes.extend(drawing.note(self.options.is_some()));
        // The goniometer does not depend on the size of the image.
        let goniometer = facts_of_series(&given, start).experiment.goniometer.in_steps_of(self.sum_frames);
        let known = metadata::of(&self.metadata, &goniometer, None).unwrap_or_else(|why| {
            start.warnings.push(why);
            ImageMetadata::default()
        });
        let analysis = self.options.as_ref().and_then(|options| {
            let of_series = start.clone();
            let facts_of = move |size: [usize; 2], pixel| {
                let SeriesFacts { metadata, pixel_mask } = SeriesFacts::new(&given, &of_series, size.map(|edge| edge as u64));
                let (underload, saturation) = limits_of_series(&of_series, pixel);
                ImageFacts { metadata, pixel_mask, valid: pixel.valid_range(underload, saturation) }
            };
            let size = start.image_size.map(|size| size.map(|edge| usize::try_from(edge).unwrap_or(usize::MAX)));
            let announced = (size, start.element.and_then(|element| element.pixel()));
            let before = known.behind(&start.results);
            let prepared = prepare(options, announced, &before, &drawing.regions, Box::new(facts_of));
            let warn = |failure: Failure| start.warnings.push(format!("images are not analysed: {}", failure.detail()));
            prepared.map_err(warn).ok()
        });
        with_metadata(known, analysis)
    }

    /// Prepares each series.
    pub fn factory(self) -> AnalysisFactory {
        Arc::new(move |start: &mut SeriesStart| {
            let Prepared { analysis, notes, texts, .. } = self.prepare(start)?;
            start.results.extend(&analysis.kinds);
            start.analysis = analysis.counts();
            start.warnings.extend(notes);
            start.notes.extend(texts);
            Some(analysis)
        })
    }
}

/// What the threads of a run or series share.
struct Scene {
    tasks: Tasks,
    figures: Figures,
    decisions: Decisions,
    /// Where the figures begin among the results of an image.
    own_at: usize,
    facts_of: FactsOf,
}

/// The analyser of one thread.
struct LiveAnalyser {
    scene: Arc<Scene>,
    pixels: Pixels,
    /// For images of one size and type.
    made: Option<Made>,
    indexer: Option<Indexer>,
    scorer: Option<Scorer>,
}

struct Made {
    size: [usize; 2],
    pixel: PixelType,
    valid: (f64, f64),
    analyser: Analyser,
    results: Results,
    geometry: Option<Geometry>,
}

impl LiveAnalyser {
    fn new(scene: &Arc<Scene>) -> Self {
        Self { scene: Arc::clone(scene), pixels: Pixels::new(), made: None, indexer: None, scorer: None }
    }

    /// What the columns of a file mean, where that depends on the images: names, and JSON.
    fn texts(&self) -> Vec<(String, String)> {
        let Some(Made { analyser, .. }) = &self.made else { return Vec::new() };
        let text = |name: &str, value: Value| (format!("analysis_{name}"), value.to_string());
        let axis = analyser.profile_axis().zip(self.scene.tasks.profile_unit());
        let axis = axis.map(|(axis, unit)| [text("profile_axis", json!(axis)), text("profile_unit", json!(unit))]);
        let azimuths = analyser.cake_azimuth_deg().map(|azimuths| text("cake_azimuth_deg", json!(azimuths)));
        axis.into_iter().flatten().chain(azimuths).collect()
    }

    /// Makes the tables for images of this size and type. Returns what is left out.
    fn make(&mut self, size: [usize; 2], pixel: PixelType) -> Result<Vec<String>, String> {
        self.made = None;
        let ImageFacts { metadata, pixel_mask, valid } = (self.scene.facts_of)(size, pixel);
        let geometry = Geometry::of_run(size, &metadata).ok();
        let pixels = size[0].checked_mul(size[1]).ok_or("the image is too large")?;
        let mut usable = vec![true; pixels];
        if !pixel_mask.is_empty() {
            if pixel_mask.len() != pixels {
                return Err(format!("a mask of {} pixels for images of {size:?}", pixel_mask.len()));
            }
            usable.iter_mut().zip(&pixel_mask).for_each(|(usable, bits)| *usable = *bits == 0);
        }
        let (analyser, left_out) = Analyser::new(&self.scene.tasks, geometry.as_ref(), &usable, size)?;
        let results = analyser.results();
        self.made = Some(Made { size, pixel, valid, analyser, results, geometry });
        Ok(left_out)
    }
}

impl ImageAnalyser for LiveAnalyser {
    fn analyse(&mut self, plane: &PixelPlane<'_>, results: &mut [u64]) -> Result<Looked, String> {
        let (rows, columns) = plane.size();
        let pixel = plane.element.pixel().ok_or_else(|| format!("pixels of type {} cannot be analysed", plane.element.name()))?;
        if !self.made.as_ref().is_some_and(|made| made.size == [rows, columns] && made.pixel == pixel) {
            self.make([rows, columns], pixel)?;
        }
        let made = self.made.as_mut().ok_or("there are no tables for it")?;
        self.pixels.analyse(&mut made.analyser, (pixel, plane.bytes), (columns, made.valid), &mut made.results)?;
        let (own, of_indexing) = results[self.scene.own_at..].split_at_mut(self.scene.figures.numbers());
        self.scene.figures.fill(&made.results, own);
        if let Some(indexer) = &mut self.indexer {
            let spots = made.results.spots.as_ref().map_or(&[][..], |spots| &spots.list.spots);
            indexer.index(spots, made.geometry.as_ref(), of_indexing);
        }
        if let Some(scorer) = &mut self.scorer {
            scorer.score(results);
        }
        let Decision { is_hit, is_rejected } = self.scene.decisions.decide(results);
        Ok(Looked { is_hit, is_rejected })
    }
}
