//! The state machine of a detector as one table: which commands and events each state accepts, and what follows.
//!
//! [`next`] is a pure function. The caller passes it the commands of users and the events of threads. Only commands
//! have an [`Action`]; the caller carries it out and reports its outcome as a further event: `Drain` and `Discard` end
//! in `EndOfData`, then `Closed` or `Fault`. The events `Arm` and `Trigger` are raised only when what can fail has been
//! done, so that an arm or a trigger that fails does not change the state.

/// State of a detector, and of its stream path, which is never in error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is armed.
    #[default]
    Idle,
    /// Everything that can fail has been done; data may come.
    Armed,
    /// Data come.
    Receiving,
    /// No further data are taken; what has come is being written.
    Draining,
    /// Something failed.
    Error,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Armed, Self::Receiving, Self::Draining, Self::Error];

    /// For people and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Armed => "armed",
            Self::Receiving => "receiving",
            Self::Draining => "draining",
            Self::Error => "error",
        }
    }

    /// True while a run is armed, in progress or being closed.
    pub const fn has_run(self) -> bool {
        matches!(self, Self::Armed | Self::Receiving | Self::Draining)
    }
}

/// What may happen to a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Command to arm; everything has been made ready.
    Arm,
    /// Command: the timeout for the first data begins. If nothing is armed yet, the event arms, and must be sent again.
    Start,
    /// Command: make the detector expose.
    Trigger,
    /// The first data of an armed run have come.
    Data,
    /// A series has begun because its sender began it, not because of a command.
    SeriesStart,
    /// Command: end the run, keep everything that has come.
    Stop,
    /// Command: end the run at once.
    Cancel,
    /// No further data come: all data have come, they stopped coming, or a command ended the run.
    EndOfData,
    /// All files of the run are closed.
    Closed,
    /// A source or a sink failed for good.
    Fault,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Arm,
        Self::Start,
        Self::Trigger,
        Self::Data,
        Self::SeriesStart,
        Self::Stop,
        Self::Cancel,
        Self::EndOfData,
        Self::Closed,
        Self::Fault,
    ];
}

/// What the caller must do because of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Begin the timeout that ends a run without data.
    BeginClock,
    /// Take the data that are on the way, and nothing after them.
    Drain,
    /// Take nothing more.
    Discard,
    /// End what may still go on: after an error of one source, others may still deliver a series.
    Release,
}

/// What follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state from now on.
    pub to: State,
    /// What is to be done.
    pub action: Option<Action>,
}

/// Why a state does not accept an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub why: &'static str,
    /// What to do.
    pub fix: &'static str,
}

const NOTHING_ARMED: Refused = Refused { why: "the detector is not armed", fix: "arm first, or send start, which arms too" };
const ARMED: Refused = Refused { why: "the detector is already armed", fix: "start or trigger it; to arm again, cancel first" };
const RUNNING: Refused = Refused { why: "a run is in progress", fix: "wait for its end, or stop or cancel it first" };
const DRAINING: Refused = Refused {
    why: "the last images of the run are still being written",
    fix: "wait until it is idle (wait), then send it again",
};
const IN_ERROR: Refused = Refused { why: "the last run failed", fix: "remove the cause and arm again, or cancel to become idle" };
/// For reports of threads that belong to no run; the callers ignore it.
const NO_SUCH_RUN: Refused = Refused { why: "no run is active", fix: "ignore it" };

/// The transition table.
///
/// # Errors
/// The state does not accept this event; nothing changes.
pub const fn next(state: State, event: Event) -> Result<Transition, Refused> {
    use Action as A;
    use Event as E;
    use State as S;
    const fn go(to: State, action: Option<Action>) -> Result<Transition, Refused> {
        Ok(Transition { to, action })
    }
    match (state, event) {
        // Begin.
        (S::Idle | S::Error, E::Arm | E::Start) => go(S::Armed, None),
        (S::Idle | S::Armed | S::Receiving | S::Draining | S::Error, E::SeriesStart) => go(S::Receiving, None),
        (S::Armed, E::Start) => go(S::Armed, Some(A::BeginClock)),
        // The data came before the command.
        (S::Receiving, E::Start) => go(S::Receiving, None),
        (S::Armed | S::Receiving, E::Trigger) => go(state, None),
        (S::Armed, E::Data) => go(S::Receiving, None),
        (S::Idle | S::Receiving | S::Draining | S::Error, E::Data) => go(state, None),
        // End. A stop after the end of the run has nothing to do.
        (S::Armed | S::Receiving, E::Stop) => go(S::Draining, Some(A::Drain)),
        (S::Idle | S::Draining | S::Error, E::Stop) => go(state, None),
        (S::Armed | S::Receiving | S::Draining, E::Cancel) => go(S::Draining, Some(A::Discard)),
        (S::Idle | S::Error, E::Cancel) => go(S::Idle, Some(A::Release)),
        (S::Armed | S::Receiving | S::Draining, E::EndOfData) => go(S::Draining, None),
        (S::Draining, E::Closed) => go(S::Idle, None),
        // Threads also report their end after a fault.
        (S::Error, E::EndOfData | E::Closed | E::Fault) => go(S::Error, None),
        (S::Idle | S::Armed | S::Receiving | S::Draining, E::Fault) => go(S::Error, None),
        // Not accepted.
        (S::Armed, E::Arm) => Err(ARMED),
        (S::Receiving, E::Arm) => Err(RUNNING),
        (S::Draining, E::Arm | E::Start | E::Trigger) => Err(DRAINING),
        (S::Idle, E::Trigger) => Err(NOTHING_ARMED),
        (S::Error, E::Trigger) => Err(IN_ERROR),
        (S::Idle, E::EndOfData | E::Closed) | (S::Armed | S::Receiving, E::Closed) => Err(NO_SUCH_RUN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole contract, one row per event, one column per state: the state that follows and what is to be done;
    /// `-` = refused.
    const TABLE: &str = "
        event        idle             armed             receiving         draining          error
        Arm          armed            -                 -                 -                 armed
        Start        armed            armed+BeginClock  receiving         -                 armed
        Trigger      -                armed             receiving         -                 -
        Data         idle             receiving         receiving         draining          error
        SeriesStart  receiving        receiving         receiving         receiving         receiving
        Stop         idle             draining+Drain    draining+Drain    draining          error
        Cancel       idle+Release     draining+Discard  draining+Discard  draining+Discard  idle+Release
        EndOfData    -                draining          draining          draining          error
        Closed       -                -                 -                 idle              error
        Fault        error            error             error             error             error
    ";

    fn cell(state: State, event: Event) -> String {
        match next(state, event) {
            Err(_) => "-".into(),
            Ok(Transition { to, action: None }) => to.name().into(),
            Ok(Transition { to, action: Some(action) }) => format!("{}+{action:?}", to.name()),
        }
    }

    #[test]
    fn every_state_and_event_does_what_the_contract_says() {
        let mut rows = TABLE.lines().map(str::trim).filter(|line| !line.is_empty());
        let states: Vec<&str> = rows.next().unwrap().split_whitespace().skip(1).collect();
        assert_eq!(states, State::ALL.map(State::name));
        let mut events = 0;
        for (row, event) in rows.zip(Event::ALL) {
            let cells: Vec<&str> = row.split_whitespace().collect();
            assert_eq!(cells[0], format!("{event:?}"));
            for (n, state) in State::ALL.into_iter().enumerate() {
                assert_eq!(cell(state, event), cells[n + 1], "{event:?} in {state:?}");
            }
            events += 1;
        }
        assert_eq!(events, Event::ALL.len());
    }

    #[test]
    fn cancel_is_accepted_everywhere_and_leads_to_idle_whatever_threads_still_report() {
        for state in State::ALL {
            let first = next(state, Event::Cancel).unwrap();
            assert_eq!(next(first.to, Event::Cancel).unwrap().to, first.to, "a second cancel changes nothing");
            // The run answers a discard with the end of its data, and a close with closed; data may come in between.
            let mut now = first.to;
            for event in [Event::Data, Event::EndOfData, Event::Data, Event::Closed] {
                if let Ok(transition) = next(now, event) {
                    now = transition.to;
                }
            }
            assert_eq!(now, State::Idle, "from {state:?}");
        }
    }

    #[test]
    fn refusals_change_nothing_and_say_what_to_do() {
        for state in State::ALL {
            for event in Event::ALL {
                if let Err(refused) = next(state, event) {
                    assert!(!refused.why.is_empty() && !refused.fix.is_empty(), "{event:?} in {state:?}");
                }
            }
        }
    }

    #[test]
    fn only_commands_have_actions_and_an_arm_is_accepted_only_without_a_run() {
        for state in State::ALL {
            for event in Event::ALL {
                let Ok(Transition { action, .. }) = next(state, event) else { continue };
                assert!(
                    action.is_none() || matches!(event, Event::Start | Event::Stop | Event::Cancel),
                    "{event:?} in {state:?}"
                );
            }
            assert_eq!(next(state, Event::Arm).is_err(), state.has_run(), "{state:?}");
        }
    }
}
