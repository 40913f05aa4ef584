//! Transformations of images, and their recipes as the workers run them.

use super::moved::start_of_changed;
use konkordia_core::array::{Element, Shape};
use konkordia_core::geometry::Orientation;
use konkordia_core::image::CommittedImage;
use konkordia_core::series::SeriesStart;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{Compiled, Recipe, Scratch};
use std::sync::Arc;

/// Forms of channels (shape and type) for which one worker keeps its recipe compiled; one more replaces the oldest.
const FORMS: usize = 4;

/// Changes images; each worker has its own.
pub trait Transform: Send {
    /// Returns the image after the change, turned by `turn` if this transformation makes turns. Its parts are joined
    /// already; its number, state and times are not looked at.
    ///
    /// # Errors
    /// The pixels cannot be read; in words for people. The image counts as malformed then.
    fn run(&mut self, image: CommittedImage, turn: Orientation) -> Result<CommittedImage, String>;

    /// Adapts the start of a series, which describes the sender's images, to the images after the change.
    fn start(&self, start: &mut SeriesStart);
}

/// Makes the [`Transform`] of each worker.
pub type TransformFactory = Box<dyn Fn() -> Box<dyn Transform> + Send + Sync>;

/// Makes the workers run `recipe` on every channel; [`super::SeriesSpec::compression`] says how images leave. Turns
/// that a series asks for are not made.
pub fn by_recipe(recipe: Recipe) -> TransformFactory {
    let recipe = Arc::new(recipe);
    Box::new(move || {
        Box::new(ByRecipe { recipe: Arc::clone(&recipe), compiled: Vec::new(), scratch: Scratch::new(Isa::detect()) })
    })
}

struct ByRecipe {
    recipe: Arc<Recipe>,
    /// One per form of the input; mostly one.
    compiled: Vec<Compiled>,
    scratch: Scratch,
}

impl ByRecipe {
    fn compiled(&mut self, shape: Shape, element: Element) -> Result<usize, String> {
        if let Some(index) = self.compiled.iter().position(|compiled| compiled.input() == (shape, element)) {
            return Ok(index);
        }
        let compiled = Compiled::new(&self.recipe, shape, element)?;
        if self.compiled.len() == FORMS {
            self.compiled.remove(0);
        }
        self.compiled.push(compiled);
        Ok(self.compiled.len() - 1)
    }
}

impl Transform for ByRecipe {
    fn run(&mut self, mut image: CommittedImage, _turn: Orientation) -> Result<CommittedImage, String> {
        for channel in &mut image.channels {
            let index = self.compiled(channel.array.shape, channel.array.element)?;
            channel.array = self.compiled[index].array(&channel.array, &mut self.scratch)?;
        }
        Ok(image)
    }

    fn start(&self, start: &mut SeriesStart) {
        start_of_changed(start, &self.recipe);
    }
}
