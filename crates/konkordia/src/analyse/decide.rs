//! Results of an image as numbers, and what model and rules say of it.

use super::order::Done;
use crate::model::{self, Model};
use konkordia_analysis::analyser::{Results, Tasks};
use konkordia_analysis::figures::{Decisions, Figures};
use konkordia_analysis::model::ModelInputs;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::results::{self, ResultKind};

/// What decides about an image: its numbers, the model of the recipe, the rules, in this order. Threads share it.
pub struct Deciders {
    figures: Figures,
    /// What is known of an image, and behind it what analysis makes.
    kinds: Vec<ResultKind>,
    /// Where the numbers of the analysis begin.
    own_at: usize,
    scorer: Option<(Model, ModelInputs)>,
    decisions: Decisions,
}

impl Deciders {
    /// For images of which `known` is known.
    ///
    /// # Errors
    /// The recipe asks for too much, or its rules cannot be followed.
    pub fn new(tasks: &Tasks, has_geometry: bool, known: &[ResultKind]) -> Result<Self, Failure> {
        let fix = "set a smaller spots_max or fewer bins (of the cake, azimuth_bins x bins), or correct the rules of the recipe";
        let cannot = |why: String| Failure::new(Exit::Configuration, "this recipe cannot be followed", why, fix);
        // Files of results have the pixels above the level as a sparse matrix beside the other numbers.
        let figures = Figures::of(&Tasks { keep_above: None, ..tasks.clone() }, has_geometry).map_err(cannot)?;
        let kinds: Vec<ResultKind> = known.iter().chain(figures.kinds()).copied().collect();
        let decisions = Decisions::new(tasks, &kinds).map_err(cannot)?;
        let scorer = tasks.model.as_ref().map(|task| {
            let inputs = ModelInputs::new(task, &kinds).map_err(cannot)?;
            Ok::<_, Failure>((model::of_recipe(task, inputs.numbers())?, inputs))
        });
        Ok(Self { figures, own_at: results::numbers(known), kinds, scorer: scorer.transpose()?, decisions })
    }

    /// What is known of an image, and behind it what analysis makes.
    pub fn kinds(&self) -> &[ResultKind] {
        &self.kinds
    }

    /// `known`: what is known of the image.
    pub fn decided(&self, results: Results, known: Vec<u64>) -> Done {
        let mut numbers = known;
        numbers.resize(self.own_at + self.figures.numbers(), 0);
        self.figures.fill(&results, &mut numbers[self.own_at..]);
        let score = self.scorer.as_ref().map(|(model, inputs)| {
            let score = model.score(&inputs.gather(&numbers));
            inputs.put(score.as_ref().ok().copied(), &mut numbers);
            score
        });
        let decision = self.decisions.decide(&mut numbers);
        Done { results, figures: numbers, score, decision }
    }
}
