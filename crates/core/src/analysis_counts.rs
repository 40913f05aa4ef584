//! What became of the images of a run or series at their analysis.

use crate::text;
use std::fmt::Debug;
use std::sync::Arc;

/// Counts images at their analysis.
pub trait AnalysisCounter: Debug + Send + Sync {
    /// What was counted so far.
    fn read(&self) -> AnalysisTally;
}

/// What became of images at their analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnalysisTally {
    /// Images that were analysed.
    pub analysed: u64,
    /// Images that passed without analysis, which was too slow for them.
    pub skipped: u64,
    /// Images that could not be analysed.
    pub failed: u64,
    /// Those of the analysed ones that are hits.
    pub hits: u64,
    /// Those of the analysed ones that the veto rejects.
    pub rejected: u64,
    /// Those of the rejected ones that were dropped.
    pub vetoed: u64,
    /// Those of the analysed ones that the indexing program indexed.
    pub indexed: u64,
    /// Those of the analysed ones of which it was asked and gave no answer that can be used.
    pub unanswered: u64,
    /// Those of the analysed ones that have no score by the model.
    pub unscored: u64,
    /// Time that all threads together have worked, ns.
    pub busy_ns: u64,
    /// Why the newest of the failed ones could not be analysed.
    pub problem: Option<String>,
    /// Why the newest of the unanswered ones was not answered.
    pub indexing_problem: Option<String>,
    /// Why the newest of the unscored ones has none.
    pub model_problem: Option<String>,
    /// What the sender does not say of its images, although it should ([`crate::image_metadata`]).
    pub unsaid: Option<String>,
}

/// The counts of a run or series, shared by all who read them. By default images are not analysed.
#[derive(Clone, Debug, Default)]
pub struct AnalysisCounts {
    counter: Option<Arc<dyn AnalysisCounter>>,
    is_analysed: bool,
}

/// Two starts of series are the same whoever counts their images.
impl PartialEq for AnalysisCounts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl AnalysisTally {
    /// Names and numbers of images.
    pub fn rows(&self) -> [(&'static str, u64); 9] {
        [
            ("analysed", self.analysed),
            ("skipped", self.skipped),
            ("failed", self.failed),
            ("hits", self.hits),
            ("rejected", self.rejected),
            ("vetoed", self.vetoed),
            ("indexed", self.indexed),
            ("unanswered", self.unanswered),
            ("unscored", self.unscored),
        ]
    }

    /// What a person should know: images that were not analysed, why, and what to do.
    pub fn warning(&self) -> Option<String> {
        let all = text::count(self.analysed + self.skipped + self.failed);
        let too_slow = (self.skipped > 0).then(|| {
            format!(
                "{} of {all} images were not analysed: too many came for the threads of the analysis; give it more [analysis] \
                 workers, a larger queue_images, or ask for less in the recipe",
                text::count(self.skipped)
            )
        });
        let failed = (self.failed > 0).then(|| {
            let why = self.problem.as_deref().unwrap_or_default();
            format!("{} of {all} images could not be analysed: {why}", text::count(self.failed))
        });
        let unanswered = (self.unanswered > 0).then(|| {
            let why = self.indexing_problem.as_deref().unwrap_or_default();
            format!("the indexing program gave no answer for {} images: {why}", text::count(self.unanswered))
        });
        let unscored = (self.unscored > 0).then(|| {
            let why = self.model_problem.as_deref().unwrap_or_default();
            format!("the model gave no score for {} images: {why}", text::count(self.unscored))
        });
        let of_programs = unanswered.into_iter().chain(unscored);
        let all: Vec<String> = failed.into_iter().chain(too_slow).chain(of_programs).chain(self.unsaid.clone()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl AnalysisCounts {
    /// Those of `counter`. The images of which it knows may be ones that are not analysed.
    pub fn new(counter: Arc<dyn AnalysisCounter>, is_analysed: bool) -> Self {
        Self { counter: Some(counter), is_analysed }
    }

    /// What was counted so far; `None` if images are not analysed.
    pub fn read(&self) -> Option<AnalysisTally> {
        self.counter.as_ref().filter(|_| self.is_analysed).map(|counter| counter.read())
    }

    /// As [`AnalysisTally::warning`].
    pub fn warning(&self) -> Option<String> {
        self.counter.as_ref().and_then(|counter| counter.read().warning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_analysed_is_said_with_its_cause() {
        let tally = AnalysisTally { analysed: 2, ..AnalysisTally::default() };
        assert_eq!((tally.warning(), AnalysisCounts::default().warning()), (None, None));
        let tally = AnalysisTally { skipped: 1, failed: 1, problem: Some("why".into()), ..tally };
        let warning = tally.warning().unwrap();
        assert!(warning.starts_with("1 of 4 images could not be analysed: why; 1 of 4 images were not"), "{warning}");
    }
}
