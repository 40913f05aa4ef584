//! The results of an image as the input of a model, and the place of its score. What the model is, and who runs it, is
//! not known here.

use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::analysis::{IS_HIT, IS_REJECTED, MODEL_SCORE};
use konkordia_core::results::{self, ResultKind};
use std::path::PathBuf;

/// A model of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTask {
    /// The file of the model (ONNX).
    pub file: PathBuf,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Names of the results that it gets.
    pub inputs: Vec<String>,
    /// Which of its outputs is the score; `None`: it has only one.
    pub output: Option<String>,
}

/// Where the input of a model stands among the numbers of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInputs {
    /// First number, how many, and their type.
    places: Vec<(usize, usize, ColumnType)>,
    score_at: usize,
}

impl ModelInputs {
    /// The places of these results among those of all `kinds`.
    ///
    /// # Errors
    /// One of them is not there, or is decided only after the model; in words.
    pub fn new(task: &ModelTask, kinds: &[ResultKind]) -> Result<Self, String> {
        let later = [IS_HIT, IS_REJECTED, MODEL_SCORE].map(|kind| kind.name);
        let names = || kinds.iter().map(|kind| kind.name).filter(|name| !later.contains(name)).collect::<Vec<_>>().join(", ");
        let place = |name: &String| {
            if later.contains(&name.as_str()) {
                return Err(format!("[model] inputs: '{name}' follows from the model; there are: {}", names()));
            }
            let at = results::place(kinds, name)
                .ok_or_else(|| format!("[model] inputs: there is no result '{name}'; there are: {}", names()))?;
            let kind = kinds.iter().find(|kind| kind.name == *name);
            Ok(kind.map_or((at, 0, ColumnType::U64), |kind| (at, kind.length, kind.number)))
        };
        let places = task.inputs.iter().map(place).collect::<Result<_, _>>()?;
        let score_at = results::place(kinds, MODEL_SCORE.name).ok_or("the results have no place for the score")?;
        Ok(Self { places, score_at })
    }

    /// Numbers of an input: lists count with all their entries.
    pub fn numbers(&self) -> usize {
        self.places.iter().map(|(_, length, _)| length).sum()
    }

    /// The input that belongs to the numbers of an image. A number that is not known (NaN) is 0; one beyond the range
    /// of float32 is the end of that.
    pub fn gather(&self, bits: &[u64]) -> Vec<f32> {
        let number = |bits: &u64, of: ColumnType| {
            let number = of.number(*bits).to_f64();
            if number.is_nan() { 0.0 } else { number.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32 }
        };
        let places = self.places.iter();
        places.flat_map(|(at, length, of)| bits[*at..at + length].iter().map(|bits| number(bits, *of))).collect()
    }

    /// Writes the score of an image; `None`: it has none.
    pub fn put(&self, score: Option<f32>, bits: &mut [u64]) {
        bits[self.score_at] = score.map_or(f64::NAN, f64::from).to_bits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::results::analysis as kinds;

    #[test]
    fn inputs_are_gathered_by_their_names() {
        let profile = ResultKind { length: 3, ..kinds::PROFILE };
        let all = [kinds::IS_ANALYSED, kinds::IS_HIT, kinds::SPOTS, kinds::RESOLUTION, profile, kinds::MODEL_SCORE];
        let task = |inputs: &[&str]| ModelTask {
            inputs: inputs.iter().map(|name| (*name).to_owned()).collect(),
            ..ModelTask::default()
        };
        let inputs = ModelInputs::new(&task(&["profile_intensity", "spots", "resolution_angstrom"]), &all).unwrap();
        let bits = |resolution: f64| {
            let profile = [1e300_f64, -2.5, 0.0].map(f64::to_bits);
            [&[1, 0, 7, resolution.to_bits()][..], &profile, &[0]].concat()
        };
        assert_eq!((inputs.numbers(), inputs.gather(&bits(1.5))), (5, vec![f32::MAX, -2.5, 0.0, 7.0, 1.5]));
        assert_eq!(inputs.gather(&bits(f64::NAN))[4], 0.0);
        let mut written = bits(1.0);
        inputs.put(Some(0.25), &mut written);
        assert_eq!((f64::from_bits(written[7]), &written[..7]), (0.25, &bits(1.0)[..7]));
        inputs.put(None, &mut written);
        assert!(f64::from_bits(written[7]).is_nan());
        for (name, why) in [("spotz", "no result 'spotz'; there are: is_analysed, spots, "), ("is_hit", "follows from the model")]
        {
            let error = ModelInputs::new(&task(&["spots", name]), &all).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
