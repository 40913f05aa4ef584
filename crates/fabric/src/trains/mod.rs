//! The rules of a train builder: packets of the modules of a detector of European XFEL become trains of all modules.
//! Nothing here opens a socket, starts a thread or reads a clock. Read [`Channel`] first: it collects the packets of
//! one module; then [`Builder`], which puts the modules of a train together by its id; [`order`] brings the pixels of
//! LPD into the order of the image, and [`Distributor`] decides which output a train goes to,
//! and [`Processing`] takes trains through programs of users. The layout of trains is
//! in docs/protocols.md 7, what the builder does in docs/trains.md.

mod builder;
mod channel;
mod distribute;
mod injected;
pub mod order;
mod pixels;
mod processing;
mod spec;

pub use builder::{Builder, BuilderCounts, BuilderSpec, BuiltTrain, IMAGE_INCOMPLETE, flags};
pub use channel::{Channel, ChannelCounts, ModuleTrain, Verdict};
pub use distribute::{CREDIT_BYTES, Credit, Distributor, Policy};
pub use injected::{Injected, put_number};
pub use processing::{Judgement, Processing, ProcessingCounts};
pub use spec::{BUILDER_BYTES_MAX, TrainSpec};

#[cfg(test)]
mod builder_tests;
#[cfg(test)]
mod channel_tests;
#[cfg(test)]
mod distribute_tests;
#[cfg(test)]
mod processing_tests;
