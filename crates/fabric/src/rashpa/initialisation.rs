//! The order in which a system is set up (EUCALL D5.2, Fig. 16): B of each receiver, M of each module, S1, S2, R1, R2,
//! R3, D1, D2, and then, ours, arm, start and stop. What is out of order is refused with the step that is missing.
//!
//! A step may be repeated while nothing runs; all later steps have then to be done again. So an acquisition may begin
//! again with `Arm`, and one with other transfers with D1.

use super::terms::{ModuleId, ReceiverId};
use std::fmt;

/// A step of the initialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// B: a receiver initialises itself and says what it can.
    Receiver(ReceiverId),
    /// M: a module initialises itself and says what it can.
    Module(ModuleId),
    /// S1: switches and links.
    Links,
    /// S2: receivers learn how they are reached.
    Communication,
    /// R1: receivers define their local buffers.
    Buffers,
    /// R2: the map of the address space is generated.
    Map,
    /// R3: modules get the map.
    UploadMap,
    /// D1: the transfers are generated.
    Transfers,
    /// D2: modules get their transfers.
    UploadTransfers,
    /// All is ready for a run.
    Arm,
    /// Modules send.
    Start,
    /// Modules stop.
    Stop,
}

/// The steps behind B and M, in their order.
const STEPS: [Step; 10] = [
    Step::Links,
    Step::Communication,
    Step::Buffers,
    Step::Map,
    Step::UploadMap,
    Step::Transfers,
    Step::UploadTransfers,
    Step::Arm,
    Step::Start,
    Step::Stop,
];

impl Step {
    /// The step behind this one, among those behind B and M; `None` behind the last one.
    pub fn after(step: Self) -> Option<Self> {
        let at = STEPS.iter().position(|other| *other == step)?;
        STEPS.get(at + 1).copied()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receiver(id) => write!(f, "B (initialise {id})"),
            Self::Module(id) => write!(f, "M (initialise {id})"),
            Self::Links => f.write_str("S1 (initialise switches and links)"),
            Self::Communication => f.write_str("S2 (send the communication configuration)"),
            Self::Buffers => f.write_str("R1 (define the buffers of the receivers)"),
            Self::Map => f.write_str("R2 (generate the map of the address space)"),
            Self::UploadMap => f.write_str("R3 (upload the map to the modules)"),
            Self::Transfers => f.write_str("D1 (generate the transfers)"),
            Self::UploadTransfers => f.write_str("D2 (upload the transfers to the modules)"),
            Self::Arm => f.write_str("arm"),
            Self::Start => f.write_str("start"),
            Self::Stop => f.write_str("stop"),
        }
    }
}

/// Why a step is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfOrder {
    /// An earlier step is missing.
    #[error("{step} comes after {missing}, which was not done; do that first")]
    Missing {
        /// What was tried.
        step: Step,
        /// The first step that is missing.
        missing: Step,
    },
    /// Modules are sending.
    #[error("{step} is not possible while the modules send; stop them first")]
    Running {
        /// What was tried.
        step: Step,
    },
    /// Not one of the system.
    #[error("{step}: the system has no such member; name it when the system is made")]
    Unknown {
        /// What was tried.
        step: Step,
    },
}

/// How far a system is set up.
#[derive(Clone, Debug)]
pub struct Initialisation {
    receivers: Vec<(ReceiverId, bool)>,
    modules: Vec<(ModuleId, bool)>,
    /// How many of [`STEPS`] are done.
    done: usize,
}

impl Initialisation {
    /// A system of these members, before its first step.
    pub fn new(receivers: &[ReceiverId], modules: &[ModuleId]) -> Self {
        let receivers = receivers.iter().map(|id| (*id, false)).collect();
        Self { receivers, modules: modules.iter().map(|id| (*id, false)).collect(), done: 0 }
    }

    /// True between start and stop.
    pub fn is_running(&self) -> bool {
        self.last() == Some(Step::Start)
    }

    /// The last step behind B and M that was done.
    pub fn last(&self) -> Option<Step> {
        self.done.checked_sub(1).map(|last| STEPS[last])
    }

    /// May this step be done now?
    ///
    /// # Errors
    /// [`OutOfOrder`].
    pub fn check(&self, step: Step) -> Result<(), OutOfOrder> {
        if self.is_running() && step != Step::Stop {
            return Err(OutOfOrder::Running { step });
        }
        let missing = match step {
            Step::Receiver(id) if self.receivers.iter().all(|(known, _)| *known != id) => {
                return Err(OutOfOrder::Unknown { step });
            }
            Step::Module(id) if self.modules.iter().all(|(known, _)| *known != id) => {
                return Err(OutOfOrder::Unknown { step });
            }
            Step::Receiver(_) => None,
            Step::Module(_) => self.missing_receiver(),
            _ => self.missing_receiver().or_else(|| self.missing_module()).or_else(|| self.missing_before(step)),
        };
        missing.map_or(Ok(()), |missing| Err(OutOfOrder::Missing { step, missing }))
    }

    fn missing_receiver(&self) -> Option<Step> {
        self.receivers.iter().find(|(_, is_done)| !is_done).map(|(id, _)| Step::Receiver(*id))
    }

    fn missing_module(&self) -> Option<Step> {
        self.modules.iter().find(|(_, is_done)| !is_done).map(|(id, _)| Step::Module(*id))
    }

    fn missing_before(&self, step: Step) -> Option<Step> {
        // Stop ends a run; behind a stop there is none to end.
        if step == Step::Stop && self.done == STEPS.len() {
            return Some(Step::Start);
        }
        STEPS.iter().take_while(|other| **other != step).nth(self.done).copied()
    }

    /// Notes that a step was done. Later steps count as not done from here on.
    ///
    /// # Errors
    /// [`OutOfOrder`]; nothing changes.
    pub fn done(&mut self, step: Step) -> Result<(), OutOfOrder> {
        self.check(step)?;
        match step {
            Step::Receiver(id) => {
                self.receivers.iter_mut().filter(|(known, _)| *known == id).for_each(|(_, is_done)| *is_done = true);
                self.modules.iter_mut().for_each(|(_, is_done)| *is_done = false);
                self.done = 0;
            }
            Step::Module(id) => {
                self.modules.iter_mut().filter(|(known, _)| *known == id).for_each(|(_, is_done)| *is_done = true);
                self.done = 0;
            }
            _ => self.done = 1 + STEPS.iter().position(|other| *other == step).unwrap_or(0),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> (Initialisation, Vec<Step>) {
        let (receivers, modules) = ([ReceiverId(0), ReceiverId(1)], [ModuleId(7), ModuleId(8)]);
        let first =
            [Step::Receiver(receivers[1]), Step::Receiver(receivers[0]), Step::Module(modules[0]), Step::Module(modules[1])];
        (Initialisation::new(&receivers, &modules), first.into_iter().chain(STEPS).collect())
    }

    /// From each state that the order leads through, each step is tried: it is accepted if it is the next one or was
    /// done before, and refused otherwise.
    #[test]
    fn each_step_at_each_place() {
        for reached in 0..=system().1.len() {
            let (mut state, order) = system();
            order[..reached].iter().for_each(|step| state.done(*step).expect("in order"));
            let runs = reached == order.len() - 1;
            for (n, step) in order.iter().enumerate() {
                let among_themselves = (n < 2 && reached < 2) || (n < 4 && (2..4).contains(&reached));
                let is_over = *step == Step::Stop && reached == order.len();
                let accepted = if runs { *step == Step::Stop } else { !is_over && (n <= reached || among_themselves) };
                assert_eq!(state.check(*step).is_ok(), accepted, "{step} after {:?}", &order[..reached]);
            }
        }
    }

    #[test]
    fn refusals_name_the_missing_step() {
        let (mut state, order) = system();
        let text = |state: &Initialisation, step: Step| state.check(step).expect_err("refused").to_string();
        assert_eq!(text(&state, Step::Start), "start comes after B (initialise receiver 0), which was not done; do that first");
        order[..8].iter().for_each(|step| state.done(*step).expect("in order"));
        assert_eq!(
            text(&state, Step::UploadTransfers),
            "D2 (upload the transfers to the modules) comes after R3 (upload the map to the modules), which was not done; \
             do that first"
        );
        order[8..13].iter().for_each(|step| state.done(*step).expect("in order"));
        assert_eq!(text(&state, Step::Arm), "arm is not possible while the modules send; stop them first");
        let unknown = Step::Module(ModuleId(9));
        state.done(Step::Stop).expect("it runs");
        assert_eq!(
            text(&state, unknown),
            "M (initialise module 9): the system has no such member; name it when the system is made"
        );
        assert!(text(&state, Step::Stop).starts_with("stop comes after start"));
    }

    #[test]
    fn a_repeated_step_undoes_the_later_ones() {
        let (mut state, order) = system();
        order.iter().for_each(|step| state.done(*step).expect("in order"));
        state.done(Step::Arm).expect("a second acquisition");
        state.done(Step::Start).expect("armed");
        state.done(Step::Stop).expect("running");
        state.done(Step::Transfers).expect("other transfers");
        assert_eq!(state.check(Step::Arm), Err(OutOfOrder::Missing { step: Step::Arm, missing: Step::UploadTransfers }));
        state.done(Step::Receiver(ReceiverId(0))).expect("a receiver that began anew");
        let missing = Step::Module(ModuleId(7));
        assert_eq!(state.check(Step::Links), Err(OutOfOrder::Missing { step: Step::Links, missing }));
    }
}
