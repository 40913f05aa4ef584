//! The hand-over of spots to an indexing program of the user, and what it answers (docs/indexing.md). Each thread of
//! the analysis has a program of its own, which gets one image at a time. It cannot hold up an image for longer than
//! the time limit: what it does not answer in time is counted, and the image goes on without.

mod messages;
mod program;

use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::spot::Spot;
use konkordia_config::live_analysis::Indexing;
use konkordia_core::results::indexing as kinds;
use konkordia_engine::hand_over::Counter;
use messages::Answer;
use program::Program;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program that has ended is started again after this time, with the next image.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// A program that works on one image for longer than so many time limits is killed.
const LIMITS_MAX: u32 = 10;

/// Asks one program.
pub(super) struct Indexer {
    settings: Indexing,
    program: Option<Program>,
    /// When it was started.
    started: Instant,
    /// Why it does not run any more.
    end: String,
    /// Number of the newest request.
    asked: u64,
    /// Since when it has been late with the answer to it.
    late_since: Option<Instant>,
    counter: Arc<Counter>,
}

/// What comes of a request.
enum Reply {
    Answer(Answer),
    /// It makes no sense; why.
    Nonsense(String),
    /// Nothing within the time limit.
    Late,
    /// The program has ended or cannot be talked to; why.
    Ended(String),
}

impl Indexer {
    /// Starts the program. If it cannot be started, says why, and is tried again with later images.
    pub(super) fn new(settings: &Indexing, counter: &Arc<Counter>) -> (Self, Option<String>) {
        let (program, end) = match Program::start(&settings.program) {
            Ok(program) => (Some(program), String::new()),
            Err(why) => (None, why),
        };
        let problem = program.is_none().then(|| format!("the indexing program {}: {end}", settings.program.join(" ")));
        let (settings, counter, started) = (settings.clone(), Arc::clone(counter), Instant::now());
        (Self { settings, program, started, end, asked: 0, late_since: None, counter }, problem)
    }

    /// Asks about an image with these spots, and writes what comes of it into `bits`, those of [`kinds::ALL`].
    pub(super) fn index(&mut self, spots: &[Spot], geometry: Option<&Geometry>, bits: &mut [u64]) {
        let (decisions, lattice) = bits.split_at_mut(2);
        decisions.fill(0);
        lattice.fill(f64::NAN.to_bits());
        if (spots.len() as u64) < self.settings.spots_min {
            return;
        }
        match self.ask(spots, geometry) {
            Ok(Answer { is_indexed, cell, orientation_matrix, .. }) => {
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

    fn ask(&mut self, spots: &[Spot], geometry: Option<&Geometry>) -> Result<Answer, String> {
        if let Some(since) = self.late_since
            && !self.has_answered_late()
        {
            if since.elapsed() < self.settings.answer_timeout * LIMITS_MAX {
                return Err(format!("it still works on an earlier image; its time limit is {} ms", self.limit_ms()));
            }
            self.give_up("it worked on one image for ten time limits and was killed");
        }
        self.asked += 1;
        let request = messages::request(self.asked, spots, geometry);
        let program = self.running()?;
        let reply = match program.ask(request) {
            Ok(()) => self.wait(),
            Err(why) => Reply::Ended(why),
        };
        match reply {
            Reply::Answer(answer) => Ok(answer),
            Reply::Nonsense(why) => Err(why),
            Reply::Late => {
                self.late_since = Some(Instant::now());
                Err(format!("it did not answer within {} ms", self.limit_ms()))
            }
            // It is started again.
            Reply::Ended(why) => {
                self.give_up(&why);
                Err(why)
            }
        }
    }

    /// Ends the program.
    fn give_up(&mut self, why: &str) {
        (self.program, self.late_since) = (None, None);
        self.end = why.to_owned();
    }

    fn limit_ms(&self) -> u128 {
        self.settings.answer_timeout.as_millis()
    }

    /// The program; started if there is none.
    fn running(&mut self) -> Result<&mut Program, String> {
        match &mut self.program {
            Some(program) => Ok(program),
            None if self.started.elapsed() < RESTART_PAUSE => Err(format!("{}; it is started again after a second", self.end)),
            none => {
                self.started = Instant::now();
                let program = Program::start(&self.settings.program).inspect_err(|why| self.end.clone_from(why))?;
                Ok(none.insert(program))
            }
        }
    }

    /// Waits for the answer to the newest request.
    fn wait(&mut self) -> Reply {
        let until = Instant::now() + self.settings.answer_timeout;
        let Some(program) = &mut self.program else { return Reply::Late };
        loop {
            let answer = match program.line(until) {
                Ok(Some(line)) => messages::answer(&line),
                Ok(None) => return Reply::Late,
                Err(why) => return Reply::Ended(why),
            };
            match answer {
                Ok(answer) if answer.id < self.asked => {}
                Ok(answer) if answer.id > self.asked => return Reply::Nonsense(format!("it answered request {}", answer.id)),
                Ok(answer) => return Reply::Answer(answer),
                Err(why) => return Reply::Nonsense(why),
            }
        }
    }

    /// True if the answer that was late has come; what it says is not used.
    fn has_answered_late(&mut self) -> bool {
        let Some(program) = &mut self.program else { return true };
        let now = Instant::now();
        loop {
            match program.line(now) {
                Ok(Some(line)) if messages::answer(&line).is_ok_and(|answer| answer.id < self.asked) => {}
                Ok(Some(_)) => break,
                Ok(None) => return false,
                Err(why) => {
                    self.give_up(&why);
                    break;
                }
            }
        }
        self.late_since = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::analysis_counts::{AnalysisCounter, AnalysisTally};

    /// A time limit that no program exceeds on a busy machine.
    const PATIENT_MS: u64 = 60_000;
    const ANSWER: &str = r#"print(json.dumps({"id": json.loads(line)["id"], "is_indexed": True, "cell": [1, 2, 3, 80, 90, 100], "orientation_matrix": list(range(9))}), flush=True)"#;

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
            all.push(bits);
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
        // Late with the first image only: its answer is not taken for that of a later one.
        let late = format!("time.sleep(3 if json.loads(line)['id'] == 1 else 0); {ANSWER}");
        let (all, tally) = index(&late, 1000, 2, 4000);
        assert_eq!((all[0][1], all[1][..2].to_vec(), tally.unanswered), (kinds::UNANSWERED, vec![1, kinds::ANSWERED], 1));
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
