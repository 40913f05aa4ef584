//! The stream path: takes whole images from streams and folders, puts them in order, changes them where asked, and
//! gives them to sinks. It knows no socket and no file: sources and sinks come as traits. Read
//! [`konkordia_wire::message`] first, then [`open`].

mod budget;
mod chip_gaps;
mod control;
mod join;
pub mod merge;
mod moved;
mod notice;
mod pieces;
pub mod protocols;
mod pull;
mod rules;
mod run;
mod sort;
mod spec;
mod sum;
pub mod transform;
mod work;

pub use control::{Progress, SeriesControl, UpstreamProgress};
pub use konkordia_core::protocol::Protocol;
pub use konkordia_core::series::{Accept, Positions};
pub use moved::start_of_changed;
pub use notice::{ArmOrder, Notice};
pub use pull::Upstream;
pub use run::{OpenError, Series, open};
pub use spec::{AnalysisFactory, Join, SeriesSpec};
pub use sum::sum_element;
pub use transform::{Transform, TransformFactory};
