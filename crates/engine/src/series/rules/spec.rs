//! The bounds and options on which the rules depend.

use crate::series::spec::{Join, SeriesSpec};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::series::{Accept, Positions};

/// See [`SeriesSpec`], whose fields of the same names these are.
#[derive(Clone, Debug)]
pub(crate) struct RulesSpec {
    pub join: Join,
    pub positions: Positions,
    pub sum_frames: u32,
    pub window_images: u64,
    pub wait_ns: u64,
    pub drain_ns: u64,
    pub stall_timeout_ns: u64,
    pub start_timeout_ns: u64,
    pub missing: MissingPolicy,
    pub accept: Accept,
    pub images: Option<u64>,
    /// Images that may be at the workers, or wait to be committed behind one that is; `None` = there are no workers.
    pub work_images_max: Option<usize>,
}

impl RulesSpec {
    pub fn of(spec: &SeriesSpec, work_images_max: Option<usize>) -> Self {
        Self {
            join: spec.join.clone(),
            positions: spec.positions,
            sum_frames: spec.sum_frames,
            window_images: spec.window_images,
            wait_ns: spec.wait_ns,
            drain_ns: spec.drain_ns,
            stall_timeout_ns: spec.stall_timeout_ns,
            start_timeout_ns: spec.start_timeout_ns,
            missing: spec.missing,
            accept: spec.accept,
            images: spec.images,
            work_images_max,
        }
    }
}
