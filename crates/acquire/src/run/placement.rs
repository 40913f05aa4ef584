//! Where the threads and the memory of a run go on this machine: what `auto` stands for, and what the kernel refuses.

use konkordia_config::Config;
use konkordia_core::affinity::{Affinity, Choice, Cpus, Pins, Priority, RESERVED_PAGE_BYTES, Topology, choose};
use konkordia_core::plan::Plan;
use konkordia_doctor::files::Files;
use konkordia_doctor::topology;
use konkordia_engine::affinity::{PreferredNode, check_priority};
use std::path::Path;

/// Completes the plan of a run over UDP with the processors and the node of this machine. Returns notes: what the user
/// asked for and does not get, and what can be done.
pub fn place(config: &Config, plan: &mut Plan) -> Vec<String> {
    let machine = topology::of_host(&[config.address]);
    choose_for(&machine, config, plan);
    let mut notes = Vec::new();
    if !config.address.is_unspecified() {
        notes.extend(queues_note(&machine, plan.streams()));
    }
    notes.extend(priority_note(&mut plan.affinity));
    notes.extend(pages_note(Path::new("/"), plan));
    notes
}

/// Fills in what `auto` stands for. Where the number of workers is open too, there are as many as the processors that
/// were chosen have room for.
fn choose_for(machine: &Topology, config: &Config, plan: &mut Plan) {
    let (streams, affinity) = (plan.streams(), &mut plan.affinity);
    let (is_auto, is_auto_work) = (config.pin_streams == Pins::Auto, config.pin_workers == Pins::Auto);
    let named: Cpus = config.pin_streams.named().iter().copied().collect();
    affinity.memory_node = machine.node_of(&named);
    if !is_auto && !is_auto_work {
        return;
    }
    // A GPU needs its threads, whatever the number of processors.
    let workers_asked = config.gpu.map(|_| plan.workers).or(config.workers);
    let Choice { receivers, workers, node, why } = choose(machine, streams, workers_asked);
    if is_auto_work {
        if let (Some(cpus), None) = (&workers, workers_asked) {
            plan.workers = cpus.len().saturating_sub(streams).max(1);
        }
        affinity.workers = workers.into_iter().collect();
    }
    if is_auto {
        affinity.receivers = receivers.into_iter().collect();
    }
    affinity.memory_node = affinity.memory_node.or(node);
    affinity.why = why;
}

/// Streams in one queue of the card are served by one processor, one after the other.
fn queues_note(machine: &Topology, streams: usize) -> Option<String> {
    let queues: usize = machine.cards.iter().map(|card| card.queues).sum();
    let names = machine.cards.iter().map(|card| card.interface.as_str()).collect::<Vec<_>>().join(", ");
    let first = machine.cards.first().filter(|_| (1..streams).contains(&queues))?;
    Some(format!(
        "{names} has {queues} receive queue(s) for {streams} streams, so streams share one; to see how many it can have, and to set them:\n  ethtool -l {0}; sudo ethtool -L {0} combined {streams}",
        first.interface
    ))
}

/// The priority is given up if the kernel does not permit it.
fn priority_note(affinity: &mut Affinity) -> Option<String> {
    let error = check_priority(affinity.priority).err()?;
    let wanted = std::mem::take(&mut affinity.priority);
    let program = std::env::current_exe().map_or("konkordia".into(), |path| path.display().to_string());
    let limit = match wanted {
        Priority::RealTime(level) => format!("LimitRTPRIO={level}"),
        Priority::Nice(nice) => format!("LimitNICE={nice}"),
        Priority::Normal => return None,
    };
    Some(format!(
        "the kernel refuses {wanted} ({error}), so the threads run at normal priority; to permit it (setcap replaces the rights that the file has, so name those too):\n  sudo setcap cap_sys_nice+ep {program}\n  or, in the unit of a service: {limit}"
    ))
}

/// The note if memory cannot be bound to its node.
fn node_note(node: u32, error: &std::io::Error) -> String {
    format!(
        "memory of node {node} cannot be preferred ({error}), so the kernel takes it from the node of the thread that arms the run; in a container this needs CAP_SYS_NICE"
    )
}

/// Prefers the node of the plan for all memory that this thread takes while the result lives.
pub(super) fn prefer_node(plan: &Plan, notes: &mut Vec<String>) -> Option<PreferredNode> {
    let node = plan.affinity.memory_node?;
    PreferredNode::new(node).map_err(|error| notes.push(node_note(node, &error))).ok()
}

/// Reserved huge pages that are free, and all that are reserved.
fn pages(root: &Path) -> (u64, u64) {
    const FOLDER: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let number = |name: &str| {
        let (mut files, path) = (Files::default(), format!("{FOLDER}/{name}"));
        files.add(root, &path);
        files.number(&path).unwrap_or(0)
    };
    (number("free_hugepages"), number("nr_hugepages"))
}

/// Reserved pages that the raw tiles of a run take if they are to have any.
fn pages_needed(plan: &Plan) -> u64 {
    let raw = plan.memory().into_iter().find(|item| item.what == "ring, raw tiles").map_or(0, |item| item.bytes);
    if plan.affinity.reserved_pages { raw.div_ceil(RESERVED_PAGE_BYTES as u64) } else { 0 }
}

/// Bytes of the run that are reserved already and so are no part of the memory that is free.
pub(super) fn reserved_bytes(root: &Path, plan: &Plan) -> u64 {
    let needed = pages_needed(plan);
    if needed <= pages(root).0 { needed * RESERVED_PAGE_BYTES as u64 } else { 0 }
}

fn pages_note(root: &Path, plan: &Plan) -> Option<String> {
    let (needed, (free, all)) = (pages_needed(plan), pages(root));
    let missing = needed.checked_sub(free).filter(|missing| *missing > 0)?;
    Some(format!(
        "the ring needs {needed} reserved huge pages of 2 MiB and {free} are free, so it lies in other memory; to reserve {missing} more:\n  sudo sysctl -w vm.nr_hugepages={}",
        all + missing
    ))
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
