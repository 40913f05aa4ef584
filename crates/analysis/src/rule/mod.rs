//! Rules over the results of an image: whether it is a hit, whether it is to be dropped.
//!
//! The language is CEL (Common Expression Language, <https://cel.dev>), read by the crate `cel`. A rule is checked
//! before the run: every name must be a result, and both sides of every operator must fit. All numbers are double
//! precision: counts are exact up to 2^53. Then nothing can go wrong with an image: an entry that a list does not have
//! is NaN, of which every comparison is false, except `!=`.
//!
//! | what | how |
//! |---|---|
//! | results | by their names: `spots`, `resolution_angstrom`; entries of lists: `region_sum[0]` |
//! | numbers | `+ - * / %`, `abs(x)`; of lists `size(list)`, `sum(list)`, `min(list)`, `max(list)` |
//! | comparisons | `< <= > >= == !=` |
//! | logic | `! && \|\|`, `a ? b : c`, `true`, `false` |

mod compile;
mod tree;

pub use compile::RULE_CHARACTERS_MAX;
use konkordia_core::results::{self, ResultKind};
use tree::{Flag, Results};

/// A rule over the results of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    flag: Flag,
    numbers: usize,
}

impl Rule {
    /// Checks a rule over results of these kinds.
    ///
    /// # Errors
    /// What is wrong with it and what is possible, in words.
    pub fn new(text: &str, kinds: &[ResultKind]) -> Result<Self, String> {
        let numbers = results::numbers(kinds);
        Ok(Self { text: text.into(), flag: compile::compile(text, kinds)?, numbers })
    }

    /// The rule as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for an image with these results: the bits of all numbers, kind after kind.
    ///
    /// # Panics
    /// If there are more or fewer numbers than the kinds have.
    pub fn holds(&self, bits: &[u64]) -> bool {
        assert_eq!(bits.len(), self.numbers, "the results are of the kinds of the rule");
        self.flag.of(Results(bits))
    }
}

#[cfg(test)]
mod tests;
