//! Processors: clock, sleep, threads of a core, interrupts.

use crate::finding::{Finding, Verdict};
use crate::parse::{cpus, cpus_text};
use crate::snapshot::Snapshot;
use crate::virtualisation::container;
use std::collections::{BTreeMap, BTreeSet};

const CPUS: &str = "sys/devices/system/cpu";
/// A processor that needs longer than this to wake up lets packets wait.
const WAKE_UP_US_MAX: u32 = 100;

/// Governor, sleep, threads of a core, irqbalance.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![governor(snapshot), sleep(snapshot), siblings(snapshot), irqbalance(snapshot)]
}

/// Names such as cpu12, not cpufreq.
fn processors(snapshot: &Snapshot) -> Vec<&str> {
    let is_one = |name: &&str| name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    snapshot.files.below(CPUS).into_iter().filter(is_one).collect()
}

fn governor(snapshot: &Snapshot) -> Finding {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for cpu in processors(snapshot) {
        if let Ok(name) = snapshot.files.text(&format!("{CPUS}/{cpu}/cpufreq/scaling_governor")) {
            *found.entry(name.trim()).or_default() += 1;
        }
    }
    let reason = "the kernel does not govern the clock here (virtual machine, or the firmware does)";
    let value = if found.is_empty() { Err(reason.to_owned()) } else { Ok(found) };
    let why = "a processor that must speed up first is slow for the first packets of a burst";
    Finding::of("governor", "performance on all processors", why)
        .judge(value, |finding, found| {
            let each: Vec<String> = found.iter().map(|(name, n)| format!("{name} on {n}")).collect();
            let is_right = found.keys().all(|name| *name == "performance");
            finding.is(if is_right { Verdict::Pass } else { Verdict::Warn }, each.join(", "))
        })
        .fix("cpupower frequency-set -g performance")
}

fn sleep(snapshot: &Snapshot) -> Finding {
    let why = "a processor in deep sleep needs so long before it takes the next packet";
    let finding = Finding::of("c_states", format!("at most {WAKE_UP_US_MAX} us to wake up"), why);
    if let Ok(held) = snapshot.wake_up_us
        && u32::try_from(held).is_ok_and(|held| held <= WAKE_UP_US_MAX)
    {
        return finding.is(Verdict::Pass, format!("held at {held} us by a program (/dev/cpu_dma_latency)"));
    }
    let mut deepest: Option<(u32, String)> = None;
    for cpu in processors(snapshot) {
        for state in snapshot.files.below(&format!("{CPUS}/{cpu}/cpuidle")) {
            let of = |file: &str| format!("{CPUS}/{cpu}/cpuidle/{state}/{file}");
            let is_off = snapshot.files.number::<u32>(&of("disable")) == Ok(1);
            let latency = snapshot.files.number::<u32>(&of("latency")).ok().filter(|_| !is_off);
            let Some(latency) = latency else { continue };
            if deepest.as_ref().is_none_or(|(most, _)| latency > *most) {
                deepest = Some((latency, snapshot.files.text(&of("name")).unwrap_or(state).trim().to_owned()));
            }
        }
    }
    let value = deepest.ok_or_else(|| "the kernel knows no sleep states here (virtual machine)".to_owned());
    finding
        .judge(value, |finding, (latency, name)| {
            finding.is(if latency <= WAKE_UP_US_MAX { Verdict::Pass } else { Verdict::Warn }, format!("{name}: {latency} us"))
        })
        .fix(format!("cpupower idle-set -D {WAKE_UP_US_MAX}"))
}

/// Two threads on one core share it.
fn siblings(snapshot: &Snapshot) -> Finding {
    let (files, demand) = (&snapshot.files, &snapshot.demand);
    let pinned: BTreeSet<usize> = demand.pinned.iter().copied().collect();
    let core = |cpu: &usize| {
        let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        files.text(&path).and_then(|text| cpus(text).ok_or_else(|| format!("/{path} has another form")))
    };
    let sharing = || {
        let mut sharing = BTreeSet::new();
        for cpu in &pinned {
            if core(cpu)?.intersection(&pinned).count() > 1 {
                sharing.insert(*cpu);
            }
        }
        Ok::<_, String>(sharing)
    };
    let active = files.number::<u8>(&format!("{CPUS}/smt/active"));
    let value = active.and_then(|active| if active == 1 { sharing().map(Some) } else { Ok(None) });
    let why = "two pinned threads on the two halves of a core get little more than one core";
    Finding::of("smt", "off, or only one pinned thread on each core", why)
        .judge(value, |finding, sharing| match sharing {
            None => finding.is(Verdict::Pass, "off"),
            Some(sharing) if !sharing.is_empty() => {
                finding.is(Verdict::Warn, format!("on; pinned processors {} share cores", cpus_text(&sharing)))
            }
            Some(_) if demand.streams.is_none() => {
                finding.is(Verdict::Skip, "on; which threads are pinned is not known (--config)")
            }
            Some(_) if pinned.is_empty() => finding.is(Verdict::Pass, "on; no thread is pinned"),
            Some(_) => finding.is(Verdict::Pass, "on; each pinned thread has a core of its own"),
        })
        .fix("# [run] pin_streams and pin_workers: `lscpu -e=CPU,CORE,NODE` shows the cores")
}

fn irqbalance(snapshot: &Snapshot) -> Finding {
    let runs = snapshot.files.below("proc").into_iter().any(|process| {
        let name = snapshot.files.text(&format!("proc/{process}/comm"));
        name.is_ok_and(|name| name.trim() == "irqbalance")
    });
    let why = "it moves the interrupts of the card to other processors during a run, and undoes what was set by hand";
    let finding = Finding::of("irqbalance", "not running", why);
    let finding = match runs {
        true => finding.is(Verdict::Warn, "running"),
        false if container(&snapshot.files) != Ok(None) => finding.skip("a container need not see the programs of its host"),
        // With the option hidepid of /proc only one's own programs are seen.
        false if snapshot.files.text("proc/1/comm").is_err() => finding.skip("the programs of others cannot be seen"),
        false => finding.is(Verdict::Pass, "not running"),
    };
    finding.fix("systemctl disable --now irqbalance")
}
