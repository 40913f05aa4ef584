//! The checks: each is a function of a [`Snapshot`]. The numbers that are wanted come from the documentation of the SLS
//! detectors (slsDetectorPackage, troubleshooting) and of the kernel (networking/scaling, ip-sysctl), and from the
//! configuration where there is one.

mod card;
mod container;
mod counters;
mod disk;
mod kernel;
mod machine;
mod memory;
mod network;
mod processors;
mod receive;

use crate::finding::Finding;
use crate::snapshot::Snapshot;

/// All findings: the host first, then each interface, then the folder for files.
pub fn all(snapshot: &Snapshot) -> Vec<Finding> {
    let host =
        [kernel::check, processors::check, memory::check, receive::check, machine::check, container::check, counters::check];
    let mut found: Vec<Finding> = host.iter().flat_map(|check| check(snapshot)).collect();
    for interface in &snapshot.interfaces {
        found.extend(network::check(snapshot, interface));
        found.extend(card::check(snapshot, interface));
        found.push(receive::af_xdp(snapshot, interface));
    }
    found.extend(disk::check(snapshot));
    found
}
