//! What the host counted during a run: where packets may be lost before they come to a socket.

use konkordia_doctor::counters::Counters;
use konkordia_doctor::lost::{FILE_WAITED_MS, RECEIVE_MS};
use konkordia_engine::run::RunOutcome;
use std::net::{IpAddr, SocketAddr};

/// The counters now, over the interfaces at which packets for these addresses arrive.
pub fn counters(addresses: &[SocketAddr]) -> Counters {
    let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    Counters::of_host(&addresses)
}

/// What was counted since `before`, for how long packets came, and how long the file held up the images: rows for the
/// totals of the ledger.
pub fn rows(before: &Counters, addresses: &[SocketAddr], outcome: &RunOutcome) -> Vec<(String, u64)> {
    let mut rows = counters(addresses).since(before);
    rows.push((RECEIVE_MS.into(), outcome.receive_time.as_millis() as u64));
    rows.push((FILE_WAITED_MS.into(), outcome.pool_waited.as_millis() as u64));
    rows
}
