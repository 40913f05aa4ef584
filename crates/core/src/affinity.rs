//! Where the threads of a run work and where its memory is: the choice from the layout of a machine, and its result.

use std::collections::{BTreeMap, BTreeSet};

/// Processors, by the numbers of the kernel.
pub type Cpus = BTreeSet<usize>;

/// Largest number of a processor that is believed.
const CPU_MAX: usize = 65_535;

/// Size of the reserved huge pages that are used; a kernel may have others too.
pub const RESERVED_PAGE_BYTES: usize = 2 << 20;

/// A list of processors such as `0-3,8`; an empty text is an empty list.
pub fn cpus(text: &str) -> Option<Cpus> {
    let mut found = Cpus::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

/// The list as the kernel writes it.
pub fn cpus_text(cpus: &Cpus) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Which processors a configuration names for a kind of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pins {
    /// Those near the network card ([`choose`]).
    Auto,
    /// These, one for each thread in turn; none = the scheduler decides.
    These(Vec<usize>),
}

impl Default for Pins {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl Pins {
    /// The processors that are named.
    pub fn named(&self) -> &[usize] {
        match self {
            Self::Auto => &[],
            Self::These(cpus) => cpus,
        }
    }
}

/// How the kernel weighs the threads that receive and work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// As other programs.
    #[default]
    Normal,
    /// -20 (most time) to 19.
    Nice(i32),
    /// Before all other programs: 1 to 99 of `SCHED_FIFO`.
    RealTime(i32),
}

impl std::fmt::Display for Priority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Normal => f.write_str("normal priority"),
            Self::Nice(nice) => write!(f, "nice {nice}"),
            Self::RealTime(level) => write!(f, "real-time priority {level}"),
        }
    }
}

/// Where the threads of a run work and where its memory is. The default leaves both to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Processors of the receivers: receiver n may run on those of entry n, in turn; none = the scheduler decides.
    pub receivers: Vec<Cpus>,
    /// The same for the workers.
    pub workers: Vec<Cpus>,
    /// The NUMA node that memory is taken from as long as it has some free.
    pub memory_node: Option<u32>,
    /// How the kernel weighs receivers and workers.
    pub priority: Priority,
    /// The ring of raw tiles is taken from the huge pages that are reserved (`vm.nr_hugepages`), if there are enough.
    pub reserved_pages: bool,
    /// Why, if `auto` decided.
    pub why: String,
}

impl Affinity {
    /// One processor for each entry.
    pub fn one_each(cpus: &[usize]) -> Vec<Cpus> {
        cpus.iter().map(|cpu| Cpus::from([*cpu])).collect()
    }

    /// The processors of receiver or worker n in its list.
    pub fn nth(list: &[Cpus], n: usize) -> Option<&Cpus> {
        n.checked_rem(list.len()).map(|n| &list[n])
    }

    /// In words; `None` where all is left to the kernel.
    pub fn to_text(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let on = |list: &[Cpus]| match list {
            [] => "where the scheduler puts them".to_owned(),
            [all] => format!("on {}", cpus_text(all)),
            list => format!("on {} in turn", list.iter().map(cpus_text).collect::<Vec<_>>().join(", ")),
        };
        let mut text = format!("rx {}; work {}", on(&self.receivers), on(&self.workers));
        if let Some(node) = self.memory_node {
            text.push_str(&format!("; memory of node {node}"));
        }
        if self.priority != Priority::Normal {
            text.push_str(&format!("; {}", self.priority));
        }
        if self.reserved_pages {
            text.push_str("; ring in reserved huge pages");
        }
        if !self.why.is_empty() {
            text.push_str(&format!(" ({})", self.why));
        }
        Some(text)
    }
}

/// A network card that receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Name of its interface.
    pub interface: String,
    /// Its NUMA node, if the kernel knows it.
    pub node: Option<u32>,
    /// Processors that serve its interrupts, with the other threads of their cores.
    pub interrupts: Cpus,
    /// Its receive queues.
    pub queues: usize,
}

/// The layout of a machine, as far as it matters here. What the kernel does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Processors of each NUMA node.
    pub nodes: BTreeMap<u32, Cpus>,
    /// Processors that this process may use (affinity and cpuset).
    pub allowed: Cpus,
    /// Cards through which packets may come.
    pub cards: Vec<Card>,
}

impl Topology {
    /// The node that has all these processors, if the machine has several nodes.
    pub fn node_of(&self, cpus: &Cpus) -> Option<u32> {
        let is_home = |(_, of_node): &(&u32, &Cpus)| !cpus.is_empty() && cpus.is_subset(of_node);
        self.nodes.iter().filter(|_| self.nodes.len() > 1).find(is_home).map(|(node, _)| *node)
    }

    /// Processors near the cards, their node if there are several, and what they are in words; or why there are none.
    fn near(&self) -> Result<(Cpus, Option<u32>, String), String> {
        if self.cards.is_empty() {
            return Err("packets come through no network card whose place is known".into());
        }
        if self.allowed.is_empty() {
            return Err("the kernel does not say which processors may be used".into());
        }
        let names = self.cards.iter().map(|card| card.interface.as_str()).collect::<Vec<_>>().join(", ");
        if self.nodes.len() < 2 {
            return Ok((self.allowed.clone(), None, format!("the processors for {names}")));
        }
        let nodes: BTreeSet<Option<u32>> = self.cards.iter().map(|card| card.node).collect();
        let Some(node) = nodes.first().copied().flatten().filter(|_| nodes.len() == 1) else {
            return Err(format!("{names}: not all on one known node; [source] address of one card decides"));
        };
        let near = self.nodes.get(&node).map(|of_node| of_node & &self.allowed).unwrap_or_default();
        if near.is_empty() {
            let allowed = cpus_text(&self.allowed);
            return Err(format!("{names} is on node {node}, of which this process may use no processor, only {allowed}"));
        }
        Ok((near, Some(node), format!("node {node} of {names}")))
    }
}

/// What `auto` makes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// For receivers; `None` = the scheduler decides.
    pub receivers: Option<Cpus>,
    /// For workers.
    pub workers: Option<Cpus>,
    /// For memory.
    pub node: Option<u32>,
    /// Why.
    pub why: String,
}

/// Chooses processors near the network card, without those that serve its interrupts if at least half remain, and
/// enough: one for each of the `streams` and of the `workers`; where their number is open, one worker. Where all
/// processors are equally near and none can be spared, the scheduler decides. Threads get all these processors in
/// common, so that several detectors can choose the same.
pub fn choose(machine: &Topology, streams: usize, workers: Option<usize>) -> Choice {
    let (near, node, place) = match machine.near() {
        Ok(found) => found,
        Err(why) => return Choice { why, ..Choice::default() },
    };
    let needed = streams + workers.unwrap_or(1);
    let interrupts: Cpus = machine.cards.iter().flat_map(|card| card.interrupts.iter().copied()).collect();
    let serving = &interrupts & &near;
    let quiet = &near - &serving;
    let of_both = |cpus: Cpus, why: String| Choice { receivers: Some(cpus.clone()), workers: Some(cpus), node, why };
    if !serving.is_empty() && quiet.len() >= needed && 2 * quiet.len() >= near.len() {
        return of_both(quiet, format!("{place}, without {} for its interrupts", cpus_text(&serving)));
    }
    if node.is_none() {
        let reason = if serving.is_empty() { "no known interrupts" } else { "none to spare for interrupts" };
        return Choice { why: format!("one node, {} processor(s), {reason}", near.len()), ..Choice::default() };
    }
    if near.len() >= needed {
        return of_both(near, place);
    }
    let why = format!("{place} has {} processor(s) for {needed} threads", near.len());
    let receivers = (near.len() >= streams).then_some(near);
    let node = node.filter(|_| receivers.is_some());
    Choice { receivers, workers: None, node, why }
}

#[cfg(test)]
#[path = "affinity_tests.rs"]
mod tests;
