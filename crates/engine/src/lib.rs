//! Runs the threads that receive, process and deliver images: those of a run pass images through the ring, those of a
//! series of messages through bounded queues.
//! It knows no file format, socket or configuration: sources and sinks come as traits, everything else from the plan.
//! Read [`run::Armed`] first.

mod commit;
pub mod contain;
pub mod control;
mod copy;
pub mod deliver;
mod far_ahead_packets;
mod first;
mod held;
mod image_pool;
mod jump;
pub mod latency;
pub mod output_queue;
mod places;
pub mod plane;
mod preview;
mod receive;
mod results;
pub mod run;
pub mod series;
pub mod setup;
mod strips;
mod sys;
mod unpack;
pub mod whole_image;
mod work;
