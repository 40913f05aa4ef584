//! How JSON, the metrics and the page of HTTP write a state: a word of four, and whether the last images are being
//! written. This file alone maps between them and the states of [`konkordia_core::state`].

use konkordia_core::state::State;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// State of a detector, as the arm contract has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DetectorState)]
pub enum StateWord {
    /// Nothing is armed.
    Idle,
    /// Everything that can fail has been done; data may come.
    Armed,
    /// Data come, or the last ones are being written (`draining`).
    Running,
    /// Something failed; `message` says what and what to do. `arm` tries again, `cancel` goes back to idle.
    Error,
}

impl StateWord {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Armed, Self::Running, Self::Error];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Armed => "armed",
            Self::Running => "running",
            Self::Error => "error",
        }
    }
}

impl From<State> for StateWord {
    fn from(state: State) -> Self {
        match state {
            State::Idle => Self::Idle,
            State::Armed => Self::Armed,
            State::Receiving | State::Draining => Self::Running,
            State::Error => Self::Error,
        }
    }
}

/// The two fields of a state in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublicState {
    /// State.
    pub state: StateWord,
    /// Data have ended and the last images are being written.
    pub draining: bool,
}

impl From<State> for PublicState {
    fn from(state: State) -> Self {
        Self { state: state.into(), draining: state == State::Draining }
    }
}

impl From<PublicState> for State {
    fn from(public: PublicState) -> Self {
        match public.state {
            StateWord::Idle => Self::Idle,
            StateWord::Armed => Self::Armed,
            StateWord::Running if public.draining => Self::Draining,
            StateWord::Running => Self::Receiving,
            StateWord::Error => Self::Error,
        }
    }
}

/// Writes the two fields, for `serde(flatten, with)`.
pub fn serialize<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    PublicState::from(*state).serialize(serializer)
}

/// Reads the two fields, for `serde(flatten, with)`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<State, D::Error> {
    PublicState::deserialize(deserializer).map(State::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_state_has_its_documented_words_and_comes_back() {
        let words = [("idle", false), ("armed", false), ("running", false), ("running", true), ("error", false)];
        for (state, (word, draining)) in State::ALL.into_iter().zip(words) {
            let public = PublicState::from(state);
            assert_eq!(json!(public), json!({ "state": word, "draining": draining }));
            assert_eq!((public.state.name(), State::from(public)), (word, state));
            assert!(StateWord::ALL.contains(&public.state));
        }
    }
}
