//! The committer: gives every image its state, in image order, and enters it in the ledger.

use crate::control::{Control, FailGuard};
use konkordia_core::ledger::{ImageLedger, ImageStatus};
use konkordia_core::plan::Plan;
use konkordia_memory::ring::Committer;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Commits images until the end of the run.
pub(crate) fn run(control: &Control, plan: &Plan, mut committer: Committer) -> ImageLedger {
    let _guard = FailGuard(control);
    let expected = plan.packets_per_image() as u32;
    let mut ledger = ImageLedger::default();
    while !control.has_failed() && committer.next() < control.end.load(Ordering::Acquire) {
        if !committer.wait(Duration::from_millis(20)) {
            continue;
        }
        let mut placed = 0;
        let status = committer.commit(|tiles| {
            placed = tiles.map(u32::from).sum();
            ImageStatus::of(placed, expected, plan.missing)
        });
        ledger.enter(status, placed, expected);
    }
    ledger
}
