//! Containers, and the limits of control groups.

use crate::finding::{Finding, Verdict};
use crate::groups::{container, cpu_quota, memory_limit};
use crate::parse::word_after;
use crate::snapshot::Snapshot;
use konkordia_core::text::bytes;

/// Container, processors, memory.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![is_one(snapshot), processors(snapshot), memory(snapshot)]
}

fn is_one(snapshot: &Snapshot) -> Finding {
    let why = "settings of the kernel, of cards and of processors are those of the host: set them there; \
               with a network of its own (not --network host) every packet takes a longer way";
    let measured = container(&snapshot.files).map_or("no".into(), |sign| format!("yes: {sign}"));
    Finding::of("container", "no, or settings made on the host", why).is(Verdict::Pass, measured)
}

fn processors(snapshot: &Snapshot) -> Finding {
    let why = "a process that has used up its share stands still for the rest of the period, and packets are lost meanwhile";
    Finding::of("cpu_quota", "no quota below the processors that may be used", why)
        .judge(snapshot.allowed_cpus(), |finding, allowed| match cpu_quota(&snapshot.files) {
            Some(quota) if quota < allowed.len() as f64 => {
                finding.is(Verdict::Warn, format!("{quota:.1} of {} processors", allowed.len()))
            }
            _ => finding.is(Verdict::Pass, format!("none; {} processors", allowed.len())),
        })
        .fix("# docker: --cpuset-cpus instead of --cpus; systemd: CPUAffinity= instead of CPUQuota=; Kubernetes: the static CPU manager")
}

fn memory(snapshot: &Snapshot) -> Finding {
    let limit = memory_limit(&snapshot.files);
    let meminfo = snapshot.files.text("proc/meminfo");
    let free = meminfo.and_then(|text| {
        let kib = word_after(text, "MemAvailable").and_then(|kib| kib.parse::<u64>().ok());
        kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(|| "/proc/meminfo has no MemAvailable".into())
    });
    let needed = snapshot.demand.memory_bytes;
    let wanted = match needed {
        Some(needed) => format!("at least {} (the plan of the configuration)", bytes(needed)),
        None => "as much as the plan of the run says (konkordia config check)".into(),
    };
    let why = "the memory of a run is taken when it is armed; too little ends this program or another one";
    Finding::of("memory", wanted, why)
        .judge(free, |finding, free| {
            let most = limit.map_or(free, |limit| limit.min(free));
            let of = limit.map_or(String::new(), |limit| format!(", limit of the control group {}", bytes(limit)));
            let verdict = if needed.is_some_and(|needed| needed > most) { Verdict::Fail } else { Verdict::Pass };
            finding.is(verdict, format!("{} free{of}", bytes(free)))
        })
        .fix("# a smaller [run] buffer_mib, or a higher limit (docker: --memory, systemd: MemoryMax=)")
}
