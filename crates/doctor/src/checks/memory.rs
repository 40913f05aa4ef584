//! Memory and what this process may have of it.

use crate::finding::{Finding, Verdict};
use crate::parse::{CAP_IPC_LOCK, CAP_SYS_NICE, chosen, has_right, limits, word_after};
use crate::snapshot::Snapshot;
use konkordia_core::text::bytes;

/// Descriptors for 16 crowded ZeroMQ ports, files and HTTP (docs/troubleshooting.md).
const OPEN_FILES: u64 = 4608;
/// Memory that a receiver past the kernel's sockets (AF_XDP) shares with the card.
const LOCKED_BYTES: u64 = 1 << 30;

/// Huge pages, locked memory, open files, priority.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![huge_pages(snapshot), memlock(snapshot), open_files(snapshot), priority(snapshot)]
}

fn huge_pages(snapshot: &Snapshot) -> Finding {
    let files = &snapshot.files;
    let read = || {
        let transparent = chosen(files.text("sys/kernel/mm/transparent_hugepage/enabled")?).ok_or("no value is chosen")?;
        let of = |key| files.text("proc/meminfo").ok().and_then(|text| word_after(text, key)?.parse().ok());
        Ok::<_, String>((transparent, of("HugePages_Total").unwrap_or(0u64), of("Hugepagesize").unwrap_or(0u64)))
    };
    let why = "the rings of a run are large; with pages of 4 KiB the processor looks up addresses all the time";
    Finding::of("huge_pages", "transparent huge pages madvise or always", why)
        .judge(read(), |finding, (transparent, reserved, kib)| {
            let measured = format!("transparent: {transparent}; {reserved} reserved of {}", bytes(kib << 10));
            finding.is(if transparent == "never" && reserved == 0 { Verdict::Warn } else { Verdict::Pass }, measured)
        })
        .fix("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
}

/// The limit in force and the highest that this process may set.
fn limit(snapshot: &Snapshot, name: &str) -> Result<(u64, u64), String> {
    let text = snapshot.files.text("proc/self/limits")?;
    let (soft, hard) = limits(text, name).ok_or_else(|| format!("/proc/self/limits has no line '{name}'"))?;
    Ok((soft.unwrap_or(u64::MAX), hard.unwrap_or(u64::MAX)))
}

fn has(snapshot: &Snapshot, right: u32) -> bool {
    snapshot.files.text("proc/self/status").ok().and_then(|status| has_right(status, right)) == Some(true)
}

/// Memory that this process may lock.
///
/// # Errors
/// The kernel does not say; in words.
pub(super) fn locked_bytes_max(snapshot: &Snapshot) -> Result<u64, String> {
    let (_, hard) = limit(snapshot, "Max locked memory")?;
    Ok(if has(snapshot, CAP_IPC_LOCK) { u64::MAX } else { hard })
}

pub(super) fn in_bytes(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".into() } else { bytes(limit) }
}

fn memlock(snapshot: &Snapshot) -> Finding {
    let is_free = has(snapshot, CAP_IPC_LOCK);
    let why = "memory that a network card or the disk reads and writes directly must be locked; plain sockets need none";
    Finding::of("memlock", format!("at least {}, or the right CAP_IPC_LOCK", bytes(LOCKED_BYTES)), why)
        .judge(limit(snapshot, "Max locked memory"), |finding, (_, hard)| {
            let right = if is_free { ", and CAP_IPC_LOCK" } else { "" };
            let verdict = if hard >= LOCKED_BYTES || is_free { Verdict::Pass } else { Verdict::Warn };
            finding.is(verdict, format!("{}{right}", in_bytes(hard)))
        })
        .fix("# systemd: LimitMEMLOCK=infinity; logins: '* - memlock unlimited' in /etc/security/limits.conf; docker: --ulimit memlock=-1")
}

fn open_files(snapshot: &Snapshot) -> Finding {
    let why = "every connection and every file takes a descriptor; Konkordia raises its own limit to the second number";
    Finding::of("open_files", format!("at least {OPEN_FILES} that may be set"), why)
        .judge(limit(snapshot, "Max open files"), |finding, (soft, hard)| {
            finding.is(if hard >= OPEN_FILES { Verdict::Pass } else { Verdict::Warn }, format!("{soft}, at most {hard}"))
        })
        .fix("# systemd: LimitNOFILE=65536; logins: '* - nofile 65536' in /etc/security/limits.conf; docker: --ulimit nofile=65536")
}

fn priority(snapshot: &Snapshot) -> Finding {
    let is_free = has(snapshot, CAP_SYS_NICE);
    let why = "beside other busy programs a receive thread without priority waits for its turn, and the socket runs over";
    Finding::of("priority", "a real-time priority may be set: at least 1, or the right CAP_SYS_NICE", why)
        .judge(limit(snapshot, "Max realtime priority"), |finding, (_, hard)| {
            let right = if is_free { ", and CAP_SYS_NICE" } else { "" };
            finding.is(if hard > 0 || is_free { Verdict::Pass } else { Verdict::Warn }, format!("{hard}{right}"))
        })
        .fix("# systemd: LimitRTPRIO=10; logins: '* - rtprio 10' in /etc/security/limits.conf; docker: --cap-add SYS_NICE")
}
