//! The threads of a run: one receiver per stream, the workers, the committer and one thread per sink, passing images through the ring.
//! It knows no file format, socket or configuration: sources and sinks come as traits, and everything else from the plan.
//! Read [`run::Armed`] first.

mod commit;
pub mod contain;
pub mod control;
mod copy;
mod deliver;
mod doubts;
mod first;
mod held;
pub mod latency;
pub mod outlet;
mod receive;
pub mod run;
pub mod run_tap;
pub mod series;
pub mod setup;
mod sys;
mod tap;
mod work;
