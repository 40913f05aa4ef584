//! What all simulated detectors share: where they send, and the faults of the link.

use super::fault_args::FaultArgs;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sim::fault::{FaultCounts, FaultModel};
use serde_json::{Value, json};
use std::net::{SocketAddr, ToSocketAddrs};

/// Largest number of packets by which a packet is delayed.
const REORDER_PACKETS_MAX: usize = 16;
/// Mean length of a burst of losses.
const BURST_PACKETS_MEAN: f64 = 20.0;

/// The faults that the link of every simulated detector can have.
pub fn fault_model_of(args: &FaultArgs) -> FaultModel {
    FaultModel {
        seed: args.seed,
        loss: args.loss,
        burst: args.burst,
        burst_packets_mean: BURST_PACKETS_MEAN,
        duplicate: args.duplicate,
        reorder: args.reorder,
        reorder_packets_max: REORDER_PACKETS_MAX,
        truncate: args.truncate,
        ..FaultModel::default()
    }
}

/// The address to which the first stream is sent.
pub fn address(text: &str) -> Result<SocketAddr, Failure> {
    let mut found = text.to_socket_addrs().map_err(|e| {
        let why = konkordia_core::failure::reason(&e);
        Failure::new(
            Exit::Usage,
            format!("'{text}' is not an address to send to"),
            why,
            "give HOST:PORT, for example 127.0.0.1:50010",
        )
    })?;
    found.next().ok_or_else(|| {
        Failure::new(Exit::Usage, format!("'{text}' is not an address to send to"), "the name has no address", "give HOST:PORT")
    })
}

/// What the link did, by name.
pub fn fault_json(c: &FaultCounts) -> Value {
    json!({
        "sent": c.sent, "delivered": c.delivered, "lost": c.lost, "lost_in_bursts": c.lost_in_bursts, "duplicated": c.duplicated,
        "reordered": c.reordered, "header_corrupted": c.header_corrupted, "payload_corrupted": c.payload_corrupted,
        "truncated": c.truncated, "renumbered": c.renumbered, "foreign": c.foreign_total(),
    })
}
