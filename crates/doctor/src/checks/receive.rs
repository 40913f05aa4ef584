//! The ways from the network card to the program: rights, what stands in between, and what AF_XDP needs.

use super::card::used_queues;
use super::memory::{in_bytes, locked_bytes_max};
use crate::finding::{Finding, Verdict};
use crate::parse::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, has_right, release};
use crate::snapshot::{Interface, Snapshot};
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::text::{bytes, count};

/// A right by its number and its name.
type Right = (u32, &'static str);

/// Name of AF_XDP.
const AF_XDP: &str = Backend::Xdp.name();
/// The rights that the ways need, each as the rights of which one is enough (docs/configuration.md, Receive backends;
/// docs/af-xdp.md).
const RIGHTS: [(&str, &[&[Right]]); 4] = [
    (Backend::Socket.name(), &[]),
    (Backend::Packet.name(), &[&[(CAP_NET_RAW, "CAP_NET_RAW")]]),
    (
        AF_XDP,
        &[
            &[(CAP_NET_RAW, "CAP_NET_RAW")],
            &[(CAP_NET_ADMIN, "CAP_NET_ADMIN")],
            &[(CAP_BPF, "CAP_BPF"), (CAP_SYS_ADMIN, "CAP_SYS_ADMIN")],
        ],
    ),
    (Backend::Verbs.name(), &[&[(CAP_NET_RAW, "CAP_NET_RAW")]]),
];

/// Kernels of this version have all that AF_XDP is used for; of the second, packets in several buffers too.
const AF_XDP_KERNEL: (u32, u32) = (5, 18);
const AF_XDP_JUMBO_KERNEL: (u32, u32) = (6, 6);
/// Packets of a larger MTU do not fit one buffer.
const AF_XDP_MTU: u32 = 3500;
/// Memory of a queue: for each stream, where no configuration says otherwise, and for the card.
const AF_XDP_BYTES: (u64, u64) = (256 << 20, 16 << 20);
/// `ARPHRD_ETHER` of `linux/if_arp.h`.
const ETHERNET: u32 = 1;

/// Rights and firewall.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![rights(snapshot), firewall(snapshot)]
}

/// Names of the rights that this process lacks for a way.
fn lacks(status: &str, rights: &[&[Right]]) -> Result<Vec<&'static str>, String> {
    let mut lacks = Vec::new();
    for either in rights {
        let has =
            either.iter().map(|(bit, _)| has_right(status, *bit).ok_or("/proc/self/status does not say which rights there are"));
        let has: Vec<bool> = has.collect::<Result<_, _>>()?;
        lacks.extend(either.first().filter(|_| !has.contains(&true)).map(|(_, name)| *name));
    }
    Ok(lacks)
}

/// The configuration names this way.
fn asks_for(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.demand.receive.iter().any(|way| matches!(way, Receive::Only(backend) if backend.name() == name))
}

fn rights(snapshot: &Snapshot) -> Finding {
    let demand = &snapshot.demand;
    let found = snapshot.files.text("proc/self/status").and_then(|status| {
        RIGHTS.iter().map(|(name, rights)| Ok((*name, lacks(status, rights)?))).collect::<Result<Vec<_>, String>>()
    });
    let asks_for_ring = asks_for(snapshot, Backend::Packet.name());
    let has_no_card = asks_for_ring && demand.addresses.iter().any(std::net::IpAddr::is_unspecified);
    let why = "without them arm refuses a way that [source] receive names; \"auto\" takes sockets, which need none. \
               They are those of this process: look as the user and with the program that will receive";
    let finding =
        Finding::of("receive", "the rights of the way that [source] receive names", why).judge(found, |finding, found| {
            let is_refused = found.iter().any(|(name, lacks)| asks_for(snapshot, name) && !lacks.is_empty());
            let each = found.iter().map(|(name, lacks)| match lacks.as_slice() {
                [] => format!("{name}: permitted"),
                lacks => format!("{name}: lacks {}", lacks.join(", ")),
            });
            let each = each.collect::<Vec<_>>().join("; ");
            let ring = if has_no_card { "; a ring needs the [source] address of one card" } else { "" };
            finding.is(if is_refused || has_no_card { Verdict::Fail } else { Verdict::Pass }, format!("{each}{ring}"))
        });
    finding.fix("# docs/configuration.md, Receive backends: setcap, or lines for the service; [source] address of one card; or receive = \"auto\"")
}

/// Only root sees the rules; what anybody sees is whether there can be any, and whether connections are tracked.
fn firewall(snapshot: &Snapshot) -> Finding {
    const FILTERS: [&str; 4] = ["nf_tables", "ip_tables", "ip6_tables", "ebtables"];
    let files = &snapshot.files;
    let tracked = files.number::<u64>("proc/sys/net/netfilter/nf_conntrack_count").unwrap_or(0);
    let loaded = files.text("proc/modules").and_then(|text| {
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        // A kernel without modules may have filters built in.
        if names.is_empty() { Err("the kernel has no modules".to_owned()) } else { Ok(names) }
    });
    let why = "what a firewall drops is counted nowhere here, and tracking connections costs time for each packet";
    let wanted = "no rule that drops the packets of the detector, and no tracking of their connections";
    let finding = Finding::of("firewall", wanted, why);
    let finding = match tracked {
        0 => finding.judge(loaded, |finding, names| match names.iter().find(|name| FILTERS.contains(name)) {
            None => finding.is(Verdict::Pass, "no packet filter is loaded, no connection is tracked"),
            Some(filter) => finding.skip(format!("{filter} is loaded, and only root sees its rules (nft list ruleset)")),
        }),
        _ => finding.is(Verdict::Warn, format!("{} connections are tracked", count(tracked))),
    };
    finding.fix("# no tracking for the ports of the detector (nft: `udp dport 50010-50017 notrack` in a prerouting chain of priority raw)")
}

/// What AF_XDP would need of an interface. Where nobody asks for it, it is no fault of a host that it cannot.
pub(super) fn af_xdp(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let wanted = format!(
        "for AF_XDP: kernel {}.{} ({}.{} for an MTU above {AF_XDP_MTU}), an Ethernet card, memory that may be locked",
        AF_XDP_KERNEL.0, AF_XDP_KERNEL.1, AF_XDP_JUMBO_KERNEL.0, AF_XDP_JUMBO_KERNEL.1
    );
    let why = "AF_XDP saves the way through the network stack; nothing takes it without being told to";
    let is_wanted = asks_for(snapshot, AF_XDP);
    Finding::of("af_xdp", wanted, why)
        .at(&interface.name)
        .judge(needs(snapshot, interface), |finding, (facts, missing)| {
            let verdict = if is_wanted && !missing.is_empty() { Verdict::Fail } else { Verdict::Pass };
            let asked = if is_wanted { "" } else { "not asked for; " };
            let missing = if missing.is_empty() { "possible".into() } else { format!("not possible: {}", missing.join(", ")) };
            finding.is(verdict, format!("{asked}{missing} ({facts}; the driver decides how much it saves)"))
        })
        .fix("# docs/af-xdp.md, What it needs")
}

/// What AF_XDP finds at an interface, and what is missing.
fn needs(snapshot: &Snapshot, interface: &Interface) -> Result<(String, Vec<String>), String> {
    let (files, name) = (&snapshot.files, &interface.name);
    let kernel = files.text("proc/sys/kernel/osrelease")?;
    let version = release(kernel).ok_or("/proc/sys/kernel/osrelease has another form")?;
    let mtu: u32 = files.number(&format!("sys/class/net/{name}/mtu"))?;
    let kind: u32 = files.number(&format!("sys/class/net/{name}/type"))?;
    let (queues, _) = used_queues(snapshot, interface)?;
    let streams = snapshot.demand.streams.unwrap_or(1);
    let of_stream = snapshot.demand.receive_buffer_bytes.unwrap_or(AF_XDP_BYTES.0);
    let locked = of_stream.saturating_mul(streams).saturating_add(AF_XDP_BYTES.1).saturating_mul(queues.into());
    let limit = locked_bytes_max(snapshot)?;
    let has_lower = files.below(&format!("sys/class/net/{name}")).iter().any(|link| link.starts_with("lower_"));
    let mut missing = Vec::new();
    if kind != ETHERNET {
        missing.push("it is no Ethernet card".to_owned());
    }
    if has_lower {
        missing.push("the driver is that of the card below".to_owned());
    }
    if version < AF_XDP_KERNEL || (mtu > AF_XDP_MTU && version < AF_XDP_JUMBO_KERNEL) {
        missing.push("the kernel is too old".to_owned());
    }
    if limit < locked {
        missing.push(format!("only {} may be locked", in_bytes(limit)));
    }
    let least = if snapshot.demand.streams.is_none() { "at least " } else { "" };
    let (major, minor) = version;
    let facts = format!("kernel {major}.{minor}, MTU {mtu}, queues {queues}, {least}{} to lock", bytes(locked));
    Ok((facts, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_of_every_backend_are_known() {
        for backend in Backend::ALL {
            assert!(RIGHTS.iter().any(|(name, _)| *name == backend.name()), "{}", backend.name());
        }
    }

    #[test]
    fn one_of_two_rights_is_enough() {
        let of = |mask: u64| format!("CapEff:\t{mask:016x}\n");
        let (raw, admin) = (1 << CAP_NET_RAW, 1 << CAP_NET_ADMIN);
        let xdp = RIGHTS[2].1;
        assert_eq!(lacks(&of(raw | admin | (1 << CAP_SYS_ADMIN)), xdp), Ok(vec![]));
        assert_eq!(lacks(&of(raw | admin | (1 << CAP_BPF)), xdp), Ok(vec![]));
        assert_eq!(lacks(&of(admin), xdp), Ok(vec!["CAP_NET_RAW", "CAP_BPF"]));
        assert!(lacks("", xdp).is_err());
        assert_eq!(lacks("", RIGHTS[0].1), Ok(vec![]));
    }
}
