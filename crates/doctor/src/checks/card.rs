//! The network card behind an interface: ring, queues, interrupts, bus.

use crate::finding::{Finding, Verdict, quoted};
use crate::parse::{cpus, cpus_text, pcie_gbit};
use crate::snapshot::{Coalescing, Interface, Ring, Snapshot};
use crate::topology::{cpus_of_irq, irqs};
use konkordia_core::text::count;
use std::collections::BTreeSet;

/// An interrupt sooner after a packet than this costs one for each packet.
const COALESCE_USECS_MIN: u32 = 30;
/// An interrupt later than this may be too late for the ring.
const COALESCE_USECS_MAX: u32 = 250;

/// Ring, interrupts, pause frames, queues, node, bus, counters.
pub(super) fn check(snapshot: &Snapshot, interface: &Interface) -> Vec<Finding> {
    vec![
        ring(interface),
        coalescing(interface),
        pause(interface),
        queues(snapshot, interface),
        irq_affinity(snapshot, interface),
        node(snapshot, interface),
        bus(snapshot, interface),
        drops(snapshot, interface),
    ]
}

fn ring(interface: &Interface) -> Finding {
    let name = &interface.name;
    let most = interface.ring.as_ref().map_or(0, |ring| ring.entries_max);
    let wanted =
        if most > 0 { format!("{most} entries, the most that the card has") } else { "the most that the card has".into() };
    let why = "packets that come while the processor is busy with others wait here; if it is full the card drops them";
    Finding::of("ring", wanted, why)
        .at(name)
        .judge(interface.ring.clone(), |finding, Ring { entries, entries_max }| {
            finding.is(if entries >= entries_max { Verdict::Pass } else { Verdict::Warn }, format!("{entries} entries"))
        })
        .fix(format!("ethtool -G {} rx {most}", quoted(name)))
}

fn coalescing(interface: &Interface) -> Finding {
    let name = &interface.name;
    let why = "an interrupt for each packet leaves no time for the packets; one that comes too late lets the ring run over";
    let wanted = format!("adaptive, or {COALESCE_USECS_MIN} to {COALESCE_USECS_MAX} us");
    Finding::of("coalescing", wanted, why)
        .at(name)
        .judge(interface.coalescing.clone(), |finding, Coalescing { is_adaptive, usecs, frames }| {
            let is_right =
                is_adaptive || (COALESCE_USECS_MIN..=COALESCE_USECS_MAX).contains(&usecs) || (usecs == 0 && frames > 8);
            let measured = if is_adaptive { "adaptive".into() } else { format!("{usecs} us, {frames} packets") };
            finding.is(if is_right { Verdict::Pass } else { Verdict::Warn }, measured)
        })
        .fix(format!("ethtool -C {0} adaptive-rx on || ethtool -C {0} rx-usecs 100", quoted(name)))
}

fn pause(interface: &Interface) -> Finding {
    let name = &interface.name;
    let why =
        "with pause frames the switch holds packets back while the card is full; without them a burst of several modules is lost";
    Finding::of("pause", "on", why)
        .at(name)
        .judge(interface.takes_pause.clone(), |finding, is_on| {
            finding.is(if is_on { Verdict::Pass } else { Verdict::Warn }, if is_on { "on" } else { "off" })
        })
        .fix(format!("ethtool -A {} rx on tx on", quoted(name)))
        .fix("# the port of the switch must permit pause frames too")
}

fn queues(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let found = used_queues(snapshot, interface);
    let streams = snapshot.demand.streams;
    let most = interface.queues.as_ref().map_or(0, |queues| u64::from(queues.most));
    let wanted = match streams {
        Some(streams) => format!("as many as there are streams ({streams}), if the card has them"),
        None => "as many as there are streams, if the card has them".into(),
    };
    let why = "each queue has a processor of its own; streams in one queue share it";
    Finding::of("queues", wanted, why)
        .at(name)
        .judge(found, |finding, (used, most)| {
            let verdict = match (streams, most) {
                (_, Some(most)) if used >= most => Verdict::Pass,
                (Some(streams), _) if u64::from(used) >= streams => Verdict::Pass,
                (Some(_), Some(_)) => Verdict::Warn,
                _ => Verdict::Skip,
            };
            let of = match most {
                Some(most) => format!(" of {most}"),
                None if verdict == Verdict::Pass => String::new(),
                None => "; how many there could be is not known".into(),
            };
            let is_unknown = verdict == Verdict::Skip && streams.is_none();
            let unknown = if is_unknown { "; how many are needed is not known (--config)" } else { "" };
            finding.is(verdict, format!("{used}{of}{unknown}"))
        })
        .fix(format!("ethtool -L {0} combined {1} || ethtool -L {0} rx {1}", quoted(name), streams.unwrap_or(1).min(most)))
}

/// The queues in use, and the most that there could be if the driver says so; otherwise the kernel lists those in use.
pub(super) fn used_queues(snapshot: &Snapshot, interface: &Interface) -> Result<(u32, Option<u32>), String> {
    match &interface.queues {
        Ok(queues) => Ok((queues.used, Some(queues.most))),
        Err(reason) => match snapshot.files.below(&format!("sys/class/net/{}/queues", interface.name)).len() {
            0 => Err(reason.clone()),
            listed => Ok((listed as u32, None)),
        },
    }
}

/// Processors near the card: those of its memory node, or all where the machine has one node only.
fn near(snapshot: &Snapshot, name: &str) -> Result<BTreeSet<usize>, String> {
    let files = &snapshot.files;
    let node = files.number::<i32>(&format!("sys/class/net/{name}/device/numa_node")).ok().filter(|node| *node >= 0);
    let list = match (node, files.below("sys/devices/system/node").len()) {
        (Some(node), _) => files.text(&format!("sys/devices/system/node/node{node}/cpulist")),
        (None, 0) => Err("the kernel does not list the memory nodes of this machine".into()),
        (None, 1) => files.text("sys/devices/system/cpu/online"),
        (None, _) => Err("the interface belongs to no memory node, and this machine has several".into()),
    };
    list.and_then(|list| cpus(list).ok_or_else(|| "a list of processors has another form".into()))
}

fn irq_affinity(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let (irqs, near) = (irqs(&snapshot.files, name), near(snapshot, name));
    let list = near.as_ref().map(cpus_text).unwrap_or_default();
    let places = near.iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let allowed = |irq: &u32| Some((*irq, cpus_of_irq(&snapshot.files, *irq)?));
    let found: Vec<(u32, BTreeSet<usize>)> = irqs.iter().filter_map(allowed).collect();
    let all: BTreeSet<usize> = found.iter().flat_map(|(_, cpus)| cpus.iter().copied()).collect();
    let reason = if irqs.is_empty() { "the interface has no interrupts of its own" } else { "no /proc/irq/*/smp_affinity_list" };
    let value = if found.is_empty() { Err(reason.into()) } else { near };
    let wanted =
        if list.is_empty() { "processors of the card's node".into() } else { format!("processors {list}, more than one") };
    let why = "packets that another node takes cross the link between the nodes; queues on one processor wait for each other";
    let numbers = found.iter().map(|(irq, _)| irq.to_string()).collect::<Vec<_>>().join(" ");
    // One after the other, each interrupt on the next processor.
    let command = format!(
        "cpus=({places}); n=0; for irq in {numbers}; do echo \"${{cpus[n++ % ${{#cpus[@]}}]}}\" > \"/proc/irq/$irq/smp_affinity_list\"; done"
    );
    Finding::of("irq_affinity", wanted, why)
        .at(name)
        .judge(value, |finding, near| {
            let (is_far, is_one) = (!all.is_subset(&near), found.len() > 1 && all.len() == 1 && near.len() > 1);
            let measured = format!("{} interrupts on processors {}", found.len(), cpus_text(&all));
            finding.is(if is_far || is_one { Verdict::Warn } else { Verdict::Pass }, measured)
        })
        .fix(command)
}

fn node(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let both = near(snapshot, name).and_then(|near| Ok((near, snapshot.allowed_cpus()?)));
    let pinned: BTreeSet<usize> = snapshot.demand.pinned.iter().copied().collect();
    let node = snapshot.files.number::<i32>(&format!("sys/class/net/{name}/device/numa_node")).unwrap_or(-1);
    let why = "memory and processors of another node are slower to reach from the card";
    Finding::of("numa", "this process and its pinned threads on processors of the card's node", why)
        .at(name)
        .judge(both, |finding, (near, allowed)| {
            let is_far = near.is_disjoint(&allowed) || !pinned.is_subset(&near);
            let of = if node < 0 { "no node of its own".into() } else { format!("node {node}") };
            let pins = if pinned.is_empty() { String::new() } else { format!(", pins {}", cpus_text(&pinned)) };
            let measured = format!("{of} (processors {}); this process may use {}{pins}", cpus_text(&near), cpus_text(&allowed));
            finding.is(if is_far { Verdict::Warn } else { Verdict::Pass }, measured)
        })
        .fix("# [run] pin_streams and pin_workers: auto, or processors of the card's node; under systemd: CPUAffinity= and NUMAPolicy=")
}

fn bus(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let text =
        |file: &str| Ok::<_, String>(snapshot.files.text(&format!("sys/class/net/{name}/device/{file}"))?.trim().to_owned());
    let read = || {
        let lanes = |file| text(file).and_then(|text| text.parse::<u32>().map_err(|_| format!("{file} is no number")));
        Ok::<_, String>((
            (text("current_link_speed")?, lanes("current_link_width")?),
            (text("max_link_speed")?, lanes("max_link_width")?),
        ))
    };
    let line_gbit = snapshot.files.number::<f64>(&format!("sys/class/net/{name}/speed")).ok().map(|mbit| mbit / 1000.0);
    // Without a link it is -1.
    let line_gbit = line_gbit.filter(|gbit| *gbit > 0.0);
    let why = "a card in a slot with fewer lanes, or on a slower link than it could have, cannot move all its packets to memory";
    Finding::of("pcie", "the speed and the lanes that the card could have, and more than the line", why)
        .at(name)
        .judge(read(), |finding, (now, most)| {
            let gbit = |(speed, lanes): &(String, u32)| pcie_gbit(speed, *lanes);
            let line = line_gbit.map_or(", line not known".into(), |gbit| format!(", line {gbit:.0} Gbit/s"));
            let measured = format!("{} x{} of {} x{}{line}", now.0, now.1, most.0, most.1);
            let Some((is, could)) = gbit(&now).zip(gbit(&most)) else { return finding.skip("the link speed has another form") };
            let verdict = match line_gbit {
                Some(line) if is < line => Verdict::Fail,
                _ if is < could => Verdict::Warn,
                Some(_) => Verdict::Pass,
                None => Verdict::Skip,
            };
            finding.is(verdict, measured)
        })
        .fix("# put the card into a slot with as many lanes of its own; `lspci -vv` shows LnkCap and LnkSta")
}

fn drops(snapshot: &Snapshot, interface: &Interface) -> Finding {
    let name = &interface.name;
    let of = |counter: &str| snapshot.files.number::<u64>(&format!("sys/class/net/{name}/statistics/{counter}"));
    let read = || {
        let full = of("rx_missed_errors")?.max(of("rx_fifo_errors")?).max(of("rx_over_errors")?);
        let bad = of("rx_crc_errors")?.max(of("rx_frame_errors")?).max(of("rx_length_errors")?);
        Ok::<_, String>((full, bad, of("rx_dropped")?, of("rx_packets")?))
    };
    let why =
        "the card had no room, or frames were damaged on the way (cable, optics); the counts are since the interface came up";
    Finding::of("nic_drops", "0 packets without room, 0 damaged", why)
        .at(name)
        .judge(read(), |finding, (full, bad, dropped, taken)| {
            let measured = format!(
                "{} without room, {} damaged, {} dropped otherwise, {} taken",
                count(full),
                count(bad),
                count(dropped),
                count(taken)
            );
            finding.is(if full == 0 && bad == 0 { Verdict::Pass } else { Verdict::Warn }, measured)
        })
        .fix(format!(
            "# `ethtool -S {}` names each counter of the card: without room: a longer ring, more queues; damaged: cable, optics",
            quoted(name)
        ))
}
