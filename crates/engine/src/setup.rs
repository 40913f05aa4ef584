//! Compares what the streams of a run have seen with its plan.

use crate::control::Control;
use konkordia_core::plan::Plan;
use konkordia_core::setup::{Finding, Look, Seen, judge};
use konkordia_wire::formats::PacketFormat;

/// What is wrong with the set-up, as far as it is known while the run goes on. Empty for files, which are not checked.
pub fn findings(plan: &Plan, control: &Control) -> Vec<Finding> {
    compare(plan, control, &control.seen(), false)
}

/// Compares what the streams have seen with the plan.
pub(crate) fn compare(plan: &Plan, control: &Control, seen: &[Seen], has_ended: bool) -> Vec<Finding> {
    if plan.lossless_source {
        return Vec::new();
    }
    let format = plan.geometry.format();
    let packets = PacketFormat::of(format);
    judge(&Look {
        rules: &plan.setup,
        format,
        detector_type: packets.detector_type(format.kind),
        version: packets.description().version,
        first_frame: control.first_frame(),
        seen,
        since_first_ns: control.since_first_ns(),
        has_ended,
    })
}
