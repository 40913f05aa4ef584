//! The score of an image by the model of the recipe. It runs in a process of its own (`konkordia model`), one for each
//! thread of the analysis: one that hangs, crashes or is late costs an image its score and nothing else.

use super::programs::Asker;
use crate::machine;
use konkordia_analysis::model::{ModelInputs, ModelTask};
use konkordia_core::failure::reason;
use konkordia_core::results::ResultKind;
use konkordia_engine::hand_over::Counter;
use konkordia_input::sha256;
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// So long may a model take to be loaded.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest file of a model: the format has no larger ones.
const FILE_BYTES_MAX: u64 = 1 << 31;

/// The bytes of the file of a model, and their SHA-256, hexadecimal.
///
/// # Errors
/// It cannot be read, or is too large; in words.
pub fn read(file: &Path) -> Result<(Vec<u8>, String), String> {
    let cannot = |error: std::io::Error| format!("the model {}: {}", file.display(), reason(&error));
    let bytes = file.metadata().map_err(cannot)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!("the model {} has {bytes} bytes; at most {FILE_BYTES_MAX} are possible", file.display()));
    }
    let bytes = std::fs::read(file).map_err(cannot)?;
    let sha256 = sha256(&bytes);
    Ok((bytes, sha256))
}

/// Asks the process of one thread.
pub(super) struct Scorer {
    asker: Asker,
    inputs: ModelInputs,
    counter: Arc<Counter>,
}

#[derive(Deserialize)]
struct Answer {
    score: Option<f32>,
    problem: Option<String>,
}

impl Scorer {
    /// Starts the process, and asks it about an image of zeros.
    ///
    /// # Errors
    /// A result that it gets does not exist, or the model gives no score; in words.
    pub(super) fn new(
        task: &ModelTask,
        answer_timeout: Duration,
        kinds_of_all: &[ResultKind],
        counter: &Arc<Counter>,
    ) -> Result<Self, String> {
        let inputs = ModelInputs::new(task, kinds_of_all)?;
        let program = machine::own_program();
        let mut command: Vec<String> = vec![program.display().to_string(), "model".into(), task.file.display().to_string()];
        // It is started again if it ends; the file must be the same then.
        command.extend(["--sha256".into(), task.sha256.clone()]);
        command.extend(task.output.iter().flat_map(|name| ["--output".to_owned(), name.clone()]));
        let (asker, problem) = Asker::new(&command, LOAD_TIMEOUT);
        let mut scorer = Self { asker, inputs, counter: Arc::clone(counter) };
        let zeros = vec![0.0; scorer.inputs.numbers()];
        let first = problem.map_or_else(|| scorer.ask(&zeros), Err);
        first.map_err(|why| format!("the model {}: {why}", task.file.display()))?;
        scorer.asker.set_answer_timeout(answer_timeout);
        Ok(scorer)
    }

    /// Writes the score of an image into its results.
    pub(super) fn score(&mut self, bits: &mut [u64]) {
        let score = self.ask(&self.inputs.gather(bits));
        let score = score.map_err(|why| self.counter.unscored(why)).ok();
        self.inputs.put(score, bits);
    }

    fn ask(&mut self, inputs: &[f32]) -> Result<f32, String> {
        let request = |id: u64| format!("{}\n", json!({ "id": id, "inputs": inputs })).into_bytes();
        let read = |line: &[u8]| serde_json::from_slice::<Answer>(line).map_err(|error| error.to_string());
        let Answer { score, problem } = self.asker.ask(request, read)?;
        score.ok_or_else(|| problem.unwrap_or_else(|| "it gave no score".into()))
    }
}
