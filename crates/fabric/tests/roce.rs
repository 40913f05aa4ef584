//! The responder against models, rule by rule, and against a million hostile packets.

#[path = "roce/datagrams_and_sends.rs"]
mod datagrams_and_sends;
#[path = "roce/hostile.rs"]
mod hostile;
#[path = "roce/refusals.rs"]
mod refusals;
#[path = "roce/reliable.rs"]
mod reliable;
#[path = "roce/side.rs"]
mod side;
#[path = "roce/unreliable.rs"]
mod unreliable;
