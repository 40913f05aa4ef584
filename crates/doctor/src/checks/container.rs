//! Containers, virtual machines, and the limits of control groups.

use crate::finding::{Finding, Verdict};
use crate::groups::{MemoryLeft, cpu_quota, memory_left};
use crate::parse::bytes_after;
use crate::snapshot::Snapshot;
use crate::virtualisation::{container, hypervisor};
use konkordia_core::text::bytes;

/// Container, virtual machine, processors, memory.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![in_container(snapshot), virtual_machine(snapshot), processors(snapshot), memory(snapshot)]
}

fn in_container(snapshot: &Snapshot) -> Finding {
    let why = "settings of the kernel, of cards and of processors are those of the host: set them there; \
               with a network of its own (not --network host) every packet takes a longer way";
    Finding::of("container", "no, or the host looked at too", why).judge(container(&snapshot.files), |finding, sign| match sign {
        Some(sign) => {
            let unseen =
                "cards, interrupts, processors and other programs of the host cannot be seen from here: run doctor there";
            finding.is(Verdict::Skip, format!("yes ({sign}); {unseen}"))
        }
        None => finding.is(Verdict::Pass, "no"),
    })
}

fn virtual_machine(snapshot: &Snapshot) -> Finding {
    let why = "a hypervisor takes processors away for a while, and drops packets where this machine counts nothing";
    let wanted = "no, or processors of its own and a card that is passed through, and the host looked at too";
    Finding::of("virtual_machine", wanted, why).judge(hypervisor(&snapshot.files), |finding, maker| match maker {
        Some(maker) => {
            let unseen = "clock and sleep of the processors, card, bus and switch of the host cannot be seen from here";
            finding.is(Verdict::Skip, format!("yes ({maker}); {unseen}"))
        }
        None => finding.is(Verdict::Pass, "no"),
    })
}

fn processors(snapshot: &Snapshot) -> Finding {
    let why = "a process that has used up its share stands still for the rest of the period, and packets are lost meanwhile";
    let both = snapshot.allowed_cpus().and_then(|allowed| Ok((allowed, cpu_quota(&snapshot.files)?)));
    Finding::of("cpu_quota", "no quota below the processors that may be used", why)
        .judge(both, |finding, (allowed, quota)| match quota {
            Some(quota) if quota < allowed.len() as f64 => {
                finding.is(Verdict::Warn, format!("{quota:.1} of {} processors", allowed.len()))
            }
            _ => finding.is(Verdict::Pass, format!("none; {} processors", allowed.len())),
        })
        .fix("# docker: --cpuset-cpus instead of --cpus; systemd: CPUAffinity= instead of CPUQuota=; Kubernetes: the static CPU manager")
}

fn memory(snapshot: &Snapshot) -> Finding {
    let limit = memory_left(&snapshot.files);
    let meminfo = snapshot.files.text("proc/meminfo");
    let free =
        meminfo.and_then(|text| bytes_after(text, "MemAvailable").ok_or_else(|| "/proc/meminfo has no MemAvailable".into()));
    let needed = snapshot.demand.memory_bytes;
    let wanted = match needed {
        Some(needed) => format!("at least {} (the plan of the configuration)", bytes(needed)),
        None => "as much as the plan of the run says (konkordia config check)".into(),
    };
    let why = "the memory of a run is taken when it is armed; too little ends this program or another one";
    Finding::of("memory", wanted, why)
        .judge(free, |finding, free| {
            let (most, of) = match &limit {
                Ok(Some(MemoryLeft { group, limit_bytes, left_bytes })) => {
                    let (left, all) = (bytes(*left_bytes), bytes(*limit_bytes));
                    (free.min(*left_bytes), format!(", {left} left of the {all} of the control group /{group}"))
                }
                Ok(None) => (free, String::new()),
                Err(reason) => (free, format!(", {reason}")),
            };
            let verdict = match needed {
                Some(needed) if needed > most => Verdict::Fail,
                Some(_) if limit.is_ok() => Verdict::Pass,
                _ => Verdict::Skip,
            };
            let unknown = if needed.is_none() { "; how much is needed is not known (--config)" } else { "" };
            finding.is(verdict, format!("{} free{of}{unknown}", bytes(free)))
        })
        .fix("# a smaller [run] buffer_mib, or a higher limit (docker: --memory, systemd: MemoryMax=)")
}
