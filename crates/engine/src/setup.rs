//! What the streams of a run have seen, held against its plan.

use crate::control::Control;
use konkordia_core::plan::Plan;
use konkordia_core::setup::{Finding, Look, Seen, judge};
use konkordia_wire::sls_udp::{HEADER_BYTES, HEADER_VERSION, detector_type};

/// What is wrong with the set-up as far as a run that goes on knows it; files are what they are.
pub fn findings(plan: &Plan, control: &Control) -> Vec<Finding> {
    compare(plan, &control.seen(), false)
}

/// Compares what the streams have seen with the plan.
pub(crate) fn compare(plan: &Plan, seen: &[Seen], has_ended: bool) -> Vec<Finding> {
    if plan.lossless_source {
        return Vec::new();
    }
    let format = plan.geometry.format();
    judge(&Look {
        rules: &plan.setup,
        format,
        header_bytes: HEADER_BYTES as u32,
        detector_type: detector_type(format.kind),
        version: HEADER_VERSION,
        seen,
        has_ended,
    })
}
