//! The hand-over of spots to an indexing program of the user, and what it answers (docs/indexing.md). Each thread of
//! the analysis has a program of its own, which gets one image at a time. It cannot hold up an image for longer than
//! the time limit: what it does not answer in time is counted, and the image goes on without.

mod messages;

use super::programs::Asker;
use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::spot::Spot;
use konkordia_config::live_analysis::Indexing;
use konkordia_core::results::indexing as kinds;
use konkordia_engine::hand_over::Counter;
use messages::Answer;
use std::sync::Arc;

/// Asks one program.
pub(super) struct Indexer {
    asker: Asker,
    spots_min: u64,
    counter: Arc<Counter>,
}

impl Indexer {
    /// Starts the program. If it cannot be started, says why, and is tried again with later images.
    pub(super) fn new(settings: &Indexing, counter: &Arc<Counter>) -> (Self, Option<String>) {
        let (asker, problem) = Asker::new(&settings.program, settings.answer_timeout);
        let problem = problem.map(|why| format!("the indexing program {why}"));
        (Self { asker, spots_min: settings.spots_min, counter: Arc::clone(counter) }, problem)
    }

    /// Asks about an image with these spots, and writes what comes of it into `bits`, those of [`kinds::ALL`].
    pub(super) fn index(&mut self, spots: &[Spot], geometry: Option<&Geometry>, bits: &mut [u64]) {
        let (decisions, lattice) = bits.split_at_mut(2);
        decisions.fill(0);
        lattice.fill(f64::NAN.to_bits());
        if (spots.len() as u64) < self.spots_min {
            return;
        }
        match self.asker.ask(|id| messages::request(id, spots, geometry), messages::answer) {
            Ok(Answer { is_indexed, cell, orientation_matrix }) => {
                self.counter.index_answered(is_indexed);
                decisions.copy_from_slice(&[u64::from(is_indexed), kinds::ANSWERED]);
                let numbers = cell.into_iter().flatten().chain(orientation_matrix.into_iter().flatten());
                if is_indexed {
                    lattice.iter_mut().zip(numbers).for_each(|(bits, number)| *bits = number.to_bits());
                }
            }
            Err(why) => {
                self.counter.index_unanswered(why);
                decisions[1] = kinds::UNANSWERED;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::analysis_counts::{AnalysisCounter, AnalysisTally};
    use std::time::Duration;

    /// A time limit that no program exceeds on a busy machine.
    const PATIENT_MS: u64 = 60_000;
    const ANSWER: &str = r#"print(json.dumps({"id": json.loads(line)["id"], "is_indexed": True, "cell": [1, 2, 3, 80, 90, 100], "orientation_matrix": list(range(9))}), flush=True)"#;

    /// So many images that the program answers one of them; the first answer is the end.
    const ANSWERED_ONCE: usize = 200;

    /// What comes of images with three spots, with pauses between them. `script` runs for each line that the program
    /// gets.
    fn index(script: &str, limit_ms: u64, images: usize, pause_ms: u64) -> (Vec<Vec<u64>>, AnalysisTally) {
        let script = format!("import json, os, sys, time\nfor line in sys.stdin:\n    {script}");
        let program = ["python3", "-c", &script].map(str::to_owned).to_vec();
        let settings = Indexing { program, spots_min: 3, answer_timeout: Duration::from_millis(limit_ms) };
        let counter = Arc::default();
        let (mut indexer, problem) = Indexer::new(&settings, &counter);
        assert_eq!(problem, None);
        let mut all = Vec::new();
        for n in 0..images {
            std::thread::sleep(Duration::from_millis(if n > 0 { pause_ms } else { 0 }));
            let mut bits = vec![5; kinds::NUMBERS];
            indexer.index(&[Spot::default(); 3], None, &mut bits);
            let is_answered = bits[1] == kinds::ANSWERED;
            all.push(bits);
            if images == ANSWERED_ONCE && is_answered {
                break;
            }
        }
        (all, counter.read())
    }

    fn problem(tally: &AnalysisTally) -> &str {
        tally.indexing_problem.as_deref().unwrap_or_default()
    }

    #[test]
    fn the_answer_of_a_program_becomes_results() {
        let (all, tally) = index(ANSWER, PATIENT_MS, 3, 0);
        let numbers: Vec<f64> = all[2][2..].iter().map(|bits| f64::from_bits(*bits)).collect();
        assert_eq!((all[2][0], all[2][1]), (1, kinds::ANSWERED));
        assert_eq!(numbers, [1., 2., 3., 80., 90., 100., 0., 1., 2., 3., 4., 5., 6., 7., 8.]);
        assert_eq!((tally.indexed, tally.unanswered), (3, 0));
        let (all, tally) =
            index(r#"print('{"id": %d, "is_indexed": false}' % json.loads(line)["id"], flush=True)"#, PATIENT_MS, 1, 0);
        assert_eq!((all[0][0], all[0][1], tally.indexed, tally.unanswered), (0, kinds::ANSWERED, 0, 0));
        assert!(f64::from_bits(all[0][2]).is_nan());
    }

    #[test]
    fn few_spots_are_not_handed_over() {
        let settings = Indexing { program: vec!["cat".into()], spots_min: 4, answer_timeout: Duration::from_secs(9) };
        let counter = Arc::default();
        let mut bits = vec![5; kinds::NUMBERS];
        Indexer::new(&settings, &counter).0.index(&[Spot::default(); 3], None, &mut bits);
        assert_eq!((bits[0], bits[1], counter.read().unanswered), (0, 0, 0));
    }

    #[test]
    fn a_program_that_hangs_or_is_late_holds_up_nothing() {
        let (all, tally) = index("time.sleep(600)", 1000, 3, 1);
        assert!(all.iter().all(|bits| bits[..2] == [0, kinds::UNANSWERED]), "{all:?}");
        assert_eq!((tally.indexed, tally.unanswered), (0, 3));
        assert!(problem(&tally).contains("still works on an earlier image"), "{}", problem(&tally));
        // Late with the first image only: its answer is not taken for that of a later one. On a busy machine it is late
        // with some more.
        let late = format!("time.sleep(3 if json.loads(line)['id'] == 1 else 0); {ANSWER}");
        let (all, tally) = index(&late, 1000, ANSWERED_ONCE, 500);
        let (last, late) = all.split_last().unwrap();
        assert!(last[..2] == [1, kinds::ANSWERED] && !late.is_empty(), "{all:?}");
        assert!(late.iter().all(|bits| bits[..2] == [0, kinds::UNANSWERED]), "{all:?}");
        assert_eq!((tally.indexed, tally.unanswered), (1, late.len() as u64));
    }

    #[test]
    fn a_program_that_crashes_is_started_again() {
        let crash = format!("if json.loads(line)['id'] % 2: sys.exit('no licence')\n    {ANSWER}");
        let (all, tally) = index(&crash, PATIENT_MS, 2, 1100);
        assert_eq!((all[0][1], all[1][1]), (kinds::UNANSWERED, kinds::ANSWERED));
        // On a busy machine the program may not have ended yet when its output has.
        let how = problem(&tally).strip_suffix(" and said: no licence");
        assert!(matches!(how, Some("it ended with exit status: 1" | "it closed its output")), "{}", problem(&tally));
    }

    #[test]
    fn nonsense_and_lines_without_an_end_are_refused() {
        let (all, tally) = index("print('Error: ?', flush=True)", PATIENT_MS, 2, 0);
        assert_eq!((all[1][1], tally.unanswered), (kinds::UNANSWERED, 2));
        assert!(problem(&tally).contains("it answered \"Error: ?\""), "{}", problem(&tally));
        let (_, tally) = index("sys.stdout.write('x' * 10_000_000)", PATIENT_MS, 1, 0);
        assert_eq!(problem(&tally), "it wrote a line of more than 64 KiB");
        let (_, tally) = index(&ANSWER.replace(r#"json.loads(line)["id"]"#, "7"), PATIENT_MS, 1, 0);
        assert_eq!(problem(&tally), "it answered request 7");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let settings = Indexing { program: vec!["/no/such".into()], spots_min: 1, answer_timeout: Duration::from_secs(1) };
        let (_, problem) = Indexer::new(&settings, &Arc::default());
        assert!(problem.unwrap().contains("/no/such: it cannot be started: "));
    }
}
