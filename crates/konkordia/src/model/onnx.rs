//! A model in a file of ONNX, run by the crate tract.

use std::sync::Arc;
use tract_onnx::prelude::*;

/// A model that gives the numbers of an image a score.
pub struct Model {
    plan: Arc<TypedRunnableModel>,
    shape: Vec<usize>,
    numbers: usize,
}

fn words(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}

impl Model {
    /// Loads it, for inputs of so many numbers: it has one input of shape [n], [1, n] or [any, n], float32. Its score
    /// is `output`, or its only output: one number, or two of which the second is the score (no and yes).
    ///
    /// # Errors
    /// The file is no such model; in words.
    pub fn load(mut bytes: &[u8], numbers: usize, output: Option<&str>) -> Result<Self, String> {
        // What a file says of shapes inside is for any number of images; here it is one.
        let mut model = tract_onnx::onnx().with_ignore_value_info(true).model_for_read(&mut bytes).map_err(words)?;
        let inputs = model.input_outlets().map_err(words)?.len();
        if inputs != 1 {
            return Err(format!("it has {inputs} inputs; it must have one, with {numbers} numbers"));
        }
        if let Some(name) = output {
            model.select_outputs_by_name([name]).map_err(words)?;
        }
        let outputs = model.output_outlets().map_err(words)?.len();
        if outputs != 1 {
            return Err(format!("it has {outputs} outputs; say which one is the score (output = \"NAME\")"));
        }
        let is_flat = model.input_fact(0).map_err(words)?.shape.dims().count() == 1;
        let shape = if is_flat { vec![numbers] } else { vec![1, numbers] };
        let fact = InferenceFact::dt_shape(f32::datum_type(), &shape);
        let plan = model.with_input_fact(0, fact).and_then(|m| m.into_optimized()).and_then(|m| m.into_runnable());
        let model = Self { plan: plan.map_err(words)?, shape, numbers };
        model.score(&vec![0.0; numbers])?;
        Ok(model)
    }

    /// Numbers of an input.
    pub fn numbers(&self) -> usize {
        self.numbers
    }

    /// The score of an image.
    ///
    /// # Errors
    /// The model fails, or its score is not a number; in words.
    pub fn score(&self, inputs: &[f32]) -> Result<f32, String> {
        let input = Tensor::from_shape(&self.shape, inputs).map_err(words)?;
        let outputs = self.plan.run(tvec![input.into()]).map_err(words)?;
        let output = outputs.first().ok_or("it has no output")?.cast_to::<f32>().map_err(words)?;
        let score = match output.try_as_plain_ram().and_then(|numbers| numbers.as_slice::<f32>()).map_err(words)? {
            [score] | [_, score] => *score,
            other => {
                let count = other.len();
                return Err(format!("its output has {count} numbers; it must have one, or two of which the second is the score"));
            }
        };
        if score.is_finite() { Ok(score) } else { Err(format!("its score is {score}")) }
    }
}
