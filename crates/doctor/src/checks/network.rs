//! Settings of one interface.

use crate::finding::{Finding, Verdict, quoted};
use crate::snapshot::{Interface, Snapshot};
use konkordia_core::backend::{Backend, Receive};

/// MTU of jumbo frames.
const JUMBO: u64 = 9000;
/// Headers of IPv4 and UDP.
const HEADERS: u64 = 28;

/// MTU, reverse path filter, joining, checksums, flow hash.
pub(super) fn check(snapshot: &Snapshot, interface: &Interface) -> Vec<Finding> {
    vec![
        mtu(snapshot, interface),
        rp_filter(snapshot, interface),
        gro(snapshot, interface),
        checksums(interface),
        flow_hash(snapshot, interface),
    ]
}

fn mtu(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let needed = snapshot.demand.datagram_bytes.map(|datagram| datagram + HEADERS);
    let wanted = match needed {
        Some(needed) => format!("at least {needed} (the detector's datagrams with their headers)"),
        None => format!("{JUMBO}"),
    };
    let why = "datagrams that are longer come in fragments or not at all; switch and detector must have the same MTU";
    Finding::of("mtu", wanted, why)
        .at(name)
        .judge(snapshot.files.number(&format!("sys/class/net/{name}/mtu")), |finding, mtu: u64| {
            let verdict = match needed {
                Some(needed) if mtu < needed => Verdict::Fail,
                None if mtu < JUMBO => Verdict::Warn,
                _ => Verdict::Pass,
            };
            finding.is(verdict, mtu.to_string())
        })
        .fix(format!("ip link set dev {} mtu {}", quoted(name), needed.unwrap_or(0).max(JUMBO)))
}

fn rp_filter(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let of = |name: &str| snapshot.files.number::<u8>(&format!("proc/sys/net/ipv4/conf/{name}/rp_filter"));
    // The kernel takes the larger one.
    let both = of("all").and_then(|all| Ok(all.max(of(name)?)));
    let why = "with 1, packets from an address that this host would answer over another interface are dropped without a count";
    // The dots of a name would be taken for slashes.
    let key =
        if name.contains('.') { format!("net/ipv4/conf/{name}/rp_filter") } else { format!("net.ipv4.conf.{name}.rp_filter") };
    Finding::of("rp_filter", "0 or 2", why)
        .at(name)
        .judge(both, |finding, both| finding.is(if both == 1 { Verdict::Warn } else { Verdict::Pass }, both.to_string()))
        .sysctl(key, 2)
}

fn gro(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let why = "the kernel hands several packets to a socket at once, which costs a fraction of the time for each";
    let has_sockets = snapshot.demand.receive.iter().any(|way| matches!(way, Receive::Auto | Receive::Only(Backend::Socket)));
    let is_used = snapshot.demand.receive.is_empty() || has_sockets;
    Finding::of("gro", "on, for sockets", why)
        .at(name)
        .judge(interface.gro.clone(), |finding, is_on| {
            finding.is(if is_on || !is_used { Verdict::Pass } else { Verdict::Warn }, if is_on { "on" } else { "off" })
        })
        .fix(format!("ethtool -K {} gro on", quoted(name)))
}

fn checksums(interface: &Interface) -> Finding {
    let name = &interface.name;
    let why = "otherwise a processor reads every packet once more to compare its checksum";
    Finding::of("checksums", "compared by the card", why)
        .at(name)
        .judge(interface.checksums.clone(), |finding, is_on| {
            let measured = if is_on { "compared by the card" } else { "compared by the processors" };
            finding.is(if is_on { Verdict::Pass } else { Verdict::Warn }, measured)
        })
        .fix(format!("ethtool -K {} rx on", quoted(name)))
}

fn flow_hash(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let why = "streams that differ only in their UDP port share one queue, and so one processor";
    let is_one = snapshot.demand.streams == Some(1) || interface.queues.as_ref().is_ok_and(|queues| queues.used <= 1);
    Finding::of("flow_hash", "addresses and UDP ports (sdfn), where there are several streams and queues", why)
        .at(name)
        .judge(interface.hashes_ports.clone(), |finding, is_by_port| {
            let measured = if is_by_port { "addresses and UDP ports" } else { "addresses only" };
            finding.is(if is_by_port || is_one { Verdict::Pass } else { Verdict::Warn }, measured)
        })
        .fix(format!("ethtool -N {} rx-flow-hash udp4 sdfn", quoted(name)))
}
