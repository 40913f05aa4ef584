//! `konkordia model`: gives lines of numbers a score by a model. `[model]` of a recipe starts it (docs/analysis.md).

pub mod args;
#[cfg(feature = "onnx")]
mod onnx;
#[cfg(not(feature = "onnx"))]
mod without;

#[cfg(feature = "onnx")]
pub use onnx::Model;
#[cfg(not(feature = "onnx"))]
pub use without::Model;

use crate::{console, contained};
use args::ModelArgs;
use konkordia_acquire::analysis::model;
use konkordia_analysis::model::ModelTask;
use konkordia_core::failure::{Exit, Failure};
use serde::Deserialize;
use serde_json::json;
use std::io::{BufRead, Read};
use std::path::Path;

/// Longest line that is read: the input of a model has at most 16 384 numbers.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A line of the input.
#[derive(Deserialize)]
struct Request {
    id: u64,
    inputs: Vec<f32>,
}

/// `konkordia model`: a line of JSON for each line of JSON.
pub fn command(args: &ModelArgs) -> Result<Exit, Failure> {
    let (bytes, sha256) = model::read(&args.file).map_err(refused)?;
    if let Some(wanted) = args.sha256.as_ref().filter(|wanted| !wanted.eq_ignore_ascii_case(&sha256)) {
        let why = format!("the model {} was replaced: its SHA-256 is {sha256}, not {wanted}", args.file.display());
        return Err(refused(why));
    }
    contained::restrict_to_reading();
    let mut stdin = std::io::stdin().lock();
    // The first request says how many numbers an input has.
    let mut loaded: Option<Model> = None;
    loop {
        let mut line = Vec::new();
        match (&mut stdin).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return Ok(Exit::Complete),
            Ok(_) => {}
            Err(error) => return Err(Failure::io("cannot read", Path::new("standard input"), &error)),
        }
        let request = serde_json::from_slice::<Request>(&line);
        let Request { id, inputs } = request
            .map_err(|error| refused(format!("a line of the input is not {{\"id\": 1, \"inputs\": [numbers]}}: {error}")))?;
        let model = match &loaded {
            Some(model) if model.numbers() == inputs.len() => model,
            _ => {
                let model = Model::load(&bytes, inputs.len(), args.output.as_deref());
                loaded.insert(model.map_err(|why| refused(format!("the model {}: {why}", args.file.display())))?)
            }
        };
        let answer = match model.score(&inputs) {
            Ok(score) => json!({ "id": id, "score": score }),
            Err(why) => json!({ "id": id, "problem": why }),
        };
        console::json(&answer, true);
    }
}

/// The model of a recipe, for this process.
///
/// # Errors
/// It cannot be used, or was replaced since.
pub fn of_recipe(task: &ModelTask, numbers: usize) -> Result<Model, Failure> {
    let of = |why: String| refused(format!("the model {}: {why}", task.file.display()));
    let (bytes, sha256) = model::read(&task.file).map_err(refused)?;
    if sha256 != task.sha256 {
        return Err(of("it was replaced just now; try again".into()));
    }
    Model::load(&bytes, numbers, task.output.as_deref()).map_err(of)
}

fn refused(why: String) -> Failure {
    let fix = "give a model with one input, the numbers of an image, and one number as its score (docs/analysis.md)";
    Failure::new(Exit::Configuration, "images cannot be given a score", why, fix)
}
