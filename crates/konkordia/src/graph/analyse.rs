//! The stage that looks for spots and more, as `konkordia analyse` does.

use super::image::Image;
use super::read::{kind_of, named};
use super::work::{Made, Work};
use crate::analyse::Deciders;
use konkordia_acquire::analysis::tasks;
use konkordia_analysis::analyser::{Analyser, Tasks};
use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::pixels::Pixels;
use konkordia_config::recipe::Recipe;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_core::results::{self, ResultKind};
use konkordia_graph::file::Stage;
use std::path::PathBuf;

/// The work of a stage.
pub struct Analyse {
    recipe: PathBuf,
    name: String,
    /// From the first image on.
    open: Option<Open>,
}

/// For images of one form.
struct Open {
    shape: [usize; 2],
    pixel: PixelType,
    valid: (f64, f64),
    /// What is known of the images before.
    known: Vec<(String, String, usize)>,
    /// Of these, what the analysis takes along: names that only a program of a user knows stay beside it.
    known_kinds: Vec<Option<ResultKind>>,
    analyser: Analyser,
    pixels: Pixels,
    deciders: Deciders,
}

impl Analyse {
    /// The work of a stage.
    pub fn new(stage: &Stage) -> Self {
        Self { recipe: PathBuf::from(&stage.recipe), name: stage.name.clone(), open: None }
    }

    fn open(&self, image: &Image<'_>) -> Result<Open, Failure> {
        let what = || format!("stage '{}' cannot analyse these images", self.name);
        let wrong = |why: String| Failure::new(Exit::Configuration, what(), why, "correct the recipe, or the graph file");
        if image.about.words.is_some() {
            let fix = "put a stage with kind = \"convert\" before it";
            return Err(Failure::new(Exit::Configuration, what(), "they are words of a detector, and not photons", fix));
        }
        let recipe = Recipe::load(&self.recipe)?;
        let file = image.about.file().map_err(wrong)?;
        let geometry = Geometry::of_run(image.shape, &file.metadata);
        let usable = match image.mask().map_err(wrong)? {
            Some(mask) => mask.into_iter().map(|bits| bits == 0).collect(),
            None => vec![true; image.shape[0] * image.shape[1]],
        };
        let known = image.about.results.clone();
        let known_kinds: Vec<_> = known.iter().map(|(name, number, length)| kind_of(name, number, *length)).collect();
        let kinds: Vec<ResultKind> = known_kinds.iter().flatten().copied().collect();
        let has_pixel_results = kinds.iter().any(|kind| results::is_of_pixels(kind.name));
        let tasks = Tasks {
            of_pixels: (!has_pixel_results).then(|| results::pixel_results(image.pixel)),
            keep_above: None,
            ..tasks::of(&recipe, geometry.as_ref().ok()).map_err(wrong)?
        };
        let (analyser, left_out) = Analyser::new(&tasks, geometry.as_ref().ok(), &usable, image.shape).map_err(wrong)?;
        left_out.iter().for_each(|left| crate::console::note(&format!("{}: {left}", self.name)));
        let deciders = Deciders::new(&tasks, geometry.is_ok(), &kinds)?;
        let (low, high) = image.about.valid.unwrap_or_else(|| {
            let (low, high) = image.pixel.valid_range(file.underload, file.saturation);
            (Some(low), Some(high))
        });
        let valid = (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY));
        let (shape, pixel, pixels) = (image.shape, image.pixel, Pixels::new());
        Ok(Open { shape, pixel, valid, known, known_kinds, analyser, pixels, deciders })
    }
}

impl Open {
    /// Adds the results to an image.
    fn add(&mut self, image: &mut Image<'_>) -> Result<(), String> {
        if (image.shape, image.pixel) != (self.shape, self.pixel) || image.about.results != self.known {
            return Err("its shape, its type or its results are not those of the images before".into());
        }
        let (mut known, mut beside, mut beside_names) = (Vec::new(), Vec::new(), Vec::new());
        let mut rest = &image.numbers[..];
        for (kind, result) in self.known_kinds.iter().zip(&self.known) {
            let (own, after) = rest.split_at(result.2);
            rest = after;
            if kind.is_some() {
                known.extend_from_slice(own);
            } else {
                beside.extend_from_slice(own);
                beside_names.push(result.clone());
            }
        }
        let mut results = self.analyser.results();
        let image_of = (self.shape[1], self.valid);
        self.pixels.analyse(&mut self.analyser, (self.pixel, image.pixels), image_of, &mut results)?;
        let done = self.deciders.decided(results, known);
        image.numbers = done.figures;
        image.numbers.extend(beside);
        image.about.results = named(self.deciders.kinds());
        image.about.results.extend(beside_names);
        Ok(())
    }
}

impl Work for Analyse {
    fn image(&mut self, _: u64, image: &[u8]) -> Result<Made, Failure> {
        let mut image = match Image::decode(image) {
            Ok(image) => image,
            Err(why) => return Ok(Made::Failed(why)),
        };
        let open = match self.open.take() {
            Some(open) => self.open.insert(open),
            None => {
                let open = self.open(&image)?;
                self.open.insert(open)
            }
        };
        Ok(open.add(&mut image).map_or_else(Made::Failed, |()| Made::Image(image.encode())))
    }
}
