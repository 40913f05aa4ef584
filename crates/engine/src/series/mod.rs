//! The stream path: takes whole images from streams and folders, puts them in order, changes them where asked, and
//! gives them to sinks. It knows no socket and no file: sources and sinks come as traits. Read [`event`] first, then
//! [`open`].

mod budget;
mod control;
pub mod decoder;
pub mod encode;
pub mod event;
mod join;
pub mod merge;
mod moved;
mod notice;
mod pieces;
mod pull;
mod rules;
mod run;
mod sort;
mod spec;
mod sum;
pub mod transform;
mod unpack;
mod work;

pub use control::{Progress, SeriesControl, UpstreamProgress};
pub use konkordia_core::series::{Accept, Positions, Protocol};
pub use moved::start_of_changed;
pub use notice::{ArmOrder, Notice};
pub use pull::Upstream;
pub use run::{OpenError, Series, open};
pub use spec::{Join, SeriesSpec};
pub use sum::sum_element;
pub use transform::{Transform, TransformFactory};
