//! Settings of the kernel's network.

use crate::finding::{Finding, Verdict};
use crate::parse::{CAP_NET_ADMIN, Softnet, has_right, softnet};
use crate::snapshot::Snapshot;
use konkordia_core::text::{bytes, count};

/// Receive buffer that the documentation of the JUNGFRAU asks for.
const BUFFER_BYTES: u64 = 1 << 30;
/// What kernels have without any setting.
const DEFAULT_BUFFER_BYTES: u64 = 212_992;
const BACKLOG: u64 = 250_000;
/// Packets that a processor takes in one turn, as kernels have it without any setting, and twice as many.
const BUDGET: u64 = 300;
const BUDGET_RAISED: u64 = 600;
/// So many microseconds may a turn last.
const BUDGET_USECS: u64 = 8000;

/// Buffers, backlog, budget.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![rmem_max(snapshot), rmem_default(snapshot), backlog(snapshot), budget(snapshot)]
}

fn rmem_max(snapshot: &Snapshot) -> Finding {
    let configured = snapshot.demand.receive_buffer_bytes;
    let needed = configured.unwrap_or(BUFFER_BYTES);
    let of = if configured.is_some() { "[source] receive_buffer_mib" } else { "as for a JUNGFRAU" };
    let is_permitted = snapshot.files.text("proc/self/status").ok().and_then(|status| has_right(status, CAP_NET_ADMIN));
    let why = "the kernel drops packets while a receive thread pauses, unless the socket's buffer holds them all that time";
    Finding::of("rmem_max", format!("at least {} ({of})", bytes(needed)), why)
        .judge(snapshot.files.number("proc/sys/net/core/rmem_max"), |finding, limit: u64| {
            let measured = bytes(limit);
            match is_permitted {
                _ if limit >= needed => finding.is(Verdict::Pass, measured),
                Some(true) => finding
                    .is(Verdict::Warn, format!("{measured}; only processes with CAP_NET_ADMIN, as this one, may exceed it")),
                // Without a configuration nobody knows how much is needed: the smallest of the defaults is too little.
                _ if configured.is_none() && limit > DEFAULT_BUFFER_BYTES => finding.is(Verdict::Warn, measured),
                _ => finding.is(Verdict::Fail, measured),
            }
        })
        .sysctl("net.core.rmem_max", needed.max(BUFFER_BYTES))
}

fn rmem_default(snapshot: &Snapshot) -> Finding {
    let why = "programs that ask for no buffer of their own get this one; Konkordia asks for its own";
    Finding::of("rmem_default", format!("at least {}", bytes(DEFAULT_BUFFER_BYTES)), why)
        .judge(snapshot.files.number("proc/sys/net/core/rmem_default"), |finding, given: u64| {
            finding.is(if given >= DEFAULT_BUFFER_BYTES { Verdict::Pass } else { Verdict::Warn }, bytes(given))
        })
        .sysctl("net.core.rmem_default", DEFAULT_BUFFER_BYTES)
}

fn backlog(snapshot: &Snapshot) -> Finding {
    let why = "packets that change processors (RPS, tunnels, veth) wait here; if it is full they are dropped before the socket";
    Finding::of("netdev_max_backlog", format!("at least {} packets", count(BACKLOG)), why)
        .judge(snapshot.files.number("proc/sys/net/core/netdev_max_backlog"), |finding, packets: u64| {
            finding.is(if packets >= BACKLOG { Verdict::Pass } else { Verdict::Warn }, format!("{} packets", count(packets)))
        })
        .sysctl("net.core.netdev_max_backlog", BACKLOG)
}

fn budget(snapshot: &Snapshot) -> Finding {
    let files = &snapshot.files;
    let wanted = format!("at least {BUDGET} packets, and hardly a turn that it cuts short");
    let why = "a processor that gives up its turn leaves packets in the ring of the card, which overflows";
    let usecs = files.number::<u64>("proc/sys/net/core/netdev_budget_usecs");
    let Softnet { processed, squeezed, .. } = files.text("proc/net/softnet_stat").ok().and_then(softnet).unwrap_or_default();
    Finding::of("netdev_budget", wanted, why)
        .judge(files.number("proc/sys/net/core/netdev_budget"), |finding, packets: u64| {
            // One turn in a thousand takes at most some hundred packets, so one cut in 10 000 packets is many.
            let is_cut = squeezed > 10 && squeezed > processed / 10_000;
            let time = usecs.as_ref().map_or(String::new(), |usecs| format!(", {usecs} us"));
            let cut = format!("{packets} packets{time}; {} turns cut short in {} packets", count(squeezed), count(processed));
            finding.is(if packets < BUDGET || is_cut { Verdict::Warn } else { Verdict::Pass }, cut)
        })
        .sysctl("net.core.netdev_budget", BUDGET_RAISED)
        .sysctl("net.core.netdev_budget_usecs", BUDGET_USECS)
}
