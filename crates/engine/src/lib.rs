//! Runs the threads that receive, process and deliver images: those of a run pass frames and images through rings,
//! those of a series of messages pass images through bounded queues.
//! It knows no file format, socket or configuration: sources and sinks come as traits, everything else from the plan.
//! Read [`run::Armed`] first.
//!
//! ```
//! use konkordia_core::image::CommittedImage;
//! use konkordia_core::ports::ServiceLevel;
//! use konkordia_core::series::SeriesStart;
//! use konkordia_engine::output_queue::{Item, OutputQueueSpec, OutputQueues};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! // What a consumer gets of a run or a series, on a thread of its own.
//! let queues = OutputQueues::new(None);
//! let (name, service) = ("analysis".into(), ServiceLevel::ReliableSkip);
//! let spec = OutputQueueSpec { name, service, queue_images: 8, queue_bytes: 1 << 24, borrows: false };
//! let mut reader = queues.add(spec);
//! queues.start(&Arc::new(SeriesStart::default()), &|| false);
//! queues.image(&Arc::new(CommittedImage::lost(0)), &|| false);
//! let mut items = Vec::new();
//! reader.take(Duration::from_secs(1), &mut items);
//! assert!(matches!(&items[..], [Item::Start(_), Item::Image(image)] if image.number == 0));
//! ```

pub mod affinity;
pub mod analysis_counter;
mod commit;
pub mod contain;
pub mod control;
mod copy;
pub mod deliver;
mod far_ahead_packets;
mod first;
mod gpu_tally;
pub mod hand_over;
mod held;
mod image_pool;
mod jump;
pub mod latency;
pub mod output_queue;
mod places;
mod plan_check;
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
