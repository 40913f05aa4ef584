//! The layout of a machine for those who place threads and memory: NUMA nodes, processors, network cards and their
//! interrupts.

use crate::files::Files;
use crate::parse::{cpus, interrupts, word_after};
use crate::{interfaces, sys};
use konkordia_core::affinity::{Card, Cpus, Topology};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

/// Files whose texts are read.
const READ: &[&str] = &[
    "proc/interrupts",
    "proc/self/status",
    "proc/irq/*/smp_affinity_list",
    "proc/irq/*/effective_affinity_list",
    "sys/class/net/*/flags",
    "sys/class/net/*/device/numa_node",
    "sys/class/net/*/device/../numa_node",
    "sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
    "sys/devices/system/node/node*/cpulist",
];

/// Files of which only the names matter. Devices of a bus within a bus (virtio) have their interrupts one folder up.
pub(crate) const LISTED: &[&str] =
    &["sys/class/net/*/queues/rx-*", "sys/class/net/*/device/msi_irqs/*", "sys/class/net/*/device/../msi_irqs/*"];

/// That of this host, with the cards at which packets for the `wanted` addresses arrive.
pub fn of_host(wanted: &[IpAddr]) -> Topology {
    read(Path::new("/"), &sys::addresses(), wanted)
}

/// As [`of_host`], from the files below `root`. `local` has the addresses of the host.
pub fn read(root: &Path, local: &[(String, IpAddr)], wanted: &[IpAddr]) -> Topology {
    let mut files = Files::default();
    files.read(root, READ);
    files.list(root, LISTED);
    files.list(root, &["sys/class/net/*/device"]);
    files.list(root, interfaces::LOWER);
    let names = interfaces::choose(&files, local, wanted, &[]).unwrap_or_default();
    // Bonds, VLANs, tunnels and the loopback are no devices; the cards below them are.
    let is_card = |name: &&String| files.has(&format!("sys/class/net/{name}/device"));
    let cards = names.iter().filter(is_card).map(|name| card(&files, name)).collect();
    let node = |name: &str| {
        let list = files.text(&format!("sys/devices/system/node/{name}/cpulist")).ok().and_then(cpus)?;
        Some((name.strip_prefix("node")?.parse::<u32>().ok()?, list))
    };
    let nodes = files.below("sys/devices/system/node").into_iter().filter_map(node).filter(|(_, cpus)| !cpus.is_empty());
    Topology { nodes: nodes.collect(), allowed: allowed_cpus(&files).unwrap_or_default(), cards }
}

fn card(files: &Files, name: &str) -> Card {
    let node = |folder: &str| files.number::<i64>(&format!("sys/class/net/{name}/{folder}/numa_node")).ok();
    let serving = irqs(files, name).into_iter().filter_map(|irq| cpus_of_irq(files, irq)).flatten();
    let whole_core = |cpu: usize| {
        let list = files.text(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        list.ok().and_then(cpus).unwrap_or_else(|| Cpus::from([cpu]))
    };
    Card {
        interface: name.to_owned(),
        // -1 stands for none.
        node: node("device").or_else(|| node("device/..")).and_then(|node| u32::try_from(node).ok()),
        interrupts: serving.flat_map(whole_core).collect(),
        queues: files.below(&format!("sys/class/net/{name}/queues")).len(),
    }
}

/// Processors that this process may use, by its affinity and its cpuset.
pub(crate) fn allowed_cpus(files: &Files) -> Result<Cpus, String> {
    let status = files.text("proc/self/status")?;
    let list = word_after(status, "Cpus_allowed_list").and_then(cpus);
    list.ok_or_else(|| "/proc/self/status does not say which processors may be used".into())
}

/// The numbers of the interrupts of a card, as its device lists them.
pub(crate) fn irqs(files: &Files, name: &str) -> Vec<u32> {
    let table = files.text("proc/interrupts").map(interrupts).unwrap_or_default();
    let of = |folder: &str| files.below(&format!("sys/class/net/{name}/{folder}"));
    let mut listed = of("device/msi_irqs");
    listed.extend(of("device/../msi_irqs"));
    // Not of queues: the interrupts by which a card reports changes of its state.
    let is_queue = |irq: &u32| {
        table.get(irq).is_some_and(|name| !(name.ends_with("-config") || name.ends_with(":misc") || name.contains("async")))
    };
    let numbers: BTreeSet<u32> = listed.iter().filter_map(|irq| irq.parse().ok()).filter(is_queue).collect();
    numbers.into_iter().collect()
}

/// Processors that serve an interrupt: those that the kernel has chosen, or else those that it may choose.
pub(crate) fn cpus_of_irq(files: &Files, irq: u32) -> Option<Cpus> {
    let of = |file: &str| files.text(&format!("proc/irq/{irq}/{file}_affinity_list")).ok().and_then(cpus);
    of("effective").filter(|cpus| !cpus.is_empty()).or_else(|| of("smp"))
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
