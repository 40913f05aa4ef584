//! Checks that there is enough memory for a run. The memory of a run is touched when it is armed: if there is too
//! little, the kernel kills this process or another one, without an error that could be reported here.

use super::placement::reserved_bytes;
use crate::machine::bytes_after;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Plan;
use konkordia_core::text;
use konkordia_doctor::files::Files;
use konkordia_doctor::groups::{self, MemoryLeft};
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Memory of a run that its plan does not count: threads, the columns of its files, messages.
const BESIDE_BYTES: u64 = 64 << 20;

/// A memory limit, and how much of it is left.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    bytes: u64,
    of: String,
    fix: &'static str,
}

/// Refuses a run for which there is not enough memory; `ring_bytes` are those of rings between kernel and program.
///
/// # Errors
/// There is too little memory. The failure says how much the run needs, which limit is too low, and how to raise it.
pub fn check(plan: &Plan, ring_bytes: u64) -> Result<(), Failure> {
    let needed = needed(plan, ring_bytes);
    match least(Path::new("/")) {
        Some(left) if left.bytes < needed => Err(refusal(needed, ring_bytes, &left)),
        _ => Ok(()),
    }
}

/// Memory that a run takes, beside what is reserved for it already.
pub fn needed(plan: &Plan, ring_bytes: u64) -> u64 {
    let planned = plan.memory().iter().map(|item| item.bytes).sum::<u64>();
    planned.saturating_sub(reserved_bytes(Path::new("/"), plan)) + ring_bytes + BESIDE_BYTES
}

/// Memory that this process can still take; `None` if it is not known.
pub fn left_bytes() -> Option<u64> {
    least(Path::new("/")).map(|left| left.bytes)
}

/// The limit of which the least is left.
fn least(root: &Path) -> Option<Left> {
    let all = [of_process(root, getrlimit(Resource::As).current), of_group(root), of_machine(root)];
    all.into_iter().flatten().min_by_key(|left| left.bytes)
}

fn refusal(needed: u64, ring_bytes: u64, left: &Left) -> Failure {
    let of_rings = format!(" (rings of [source] receive: {})", text::bytes(ring_bytes));
    let (of_rings, smaller) = match ring_bytes {
        0 => ("", "[run] buffer_mib"),
        _ => (&of_rings[..], "[run] buffer_mib or [source] receive_buffer_mib"),
    };
    let why = format!("it needs {}{of_rings}, but {} leaves only {}", text::bytes(needed), left.of, text::bytes(left.bytes));
    Failure::new(Exit::Io, "there is not enough memory for this run", why, format!("set a smaller {smaller}, or {}", left.fix))
}

fn of_process(root: &Path, limit: Option<u64>) -> Option<Left> {
    let used = bytes_after(&root.join("proc/self/status"), "VmSize")?;
    let fix = "raise the limit of the address space (ulimit -v, LimitAS= of systemd)";
    Some(Left { bytes: limit?.saturating_sub(used), of: format!("a limit of {} for this process", text::bytes(limit?)), fix })
}

fn of_machine(root: &Path) -> Option<Left> {
    let bytes = bytes_after(&root.join("proc/meminfo"), "MemAvailable")?;
    Some(Left { bytes, of: "the memory that other programs use".into(), fix: "end other programs" })
}

/// The tightest limit of the control group of this process and the groups above it.
fn of_group(root: &Path) -> Option<Left> {
    let mut files = Files::default();
    groups::read(&mut files, root);
    let MemoryLeft { group, limit_bytes, left_bytes } = groups::memory_left(&files).ok()??;
    let of = format!("the limit of {} for the control group /{group}", text::bytes(limit_bytes));
    let fix = "raise the limit of the service (MemoryMax= of systemd, memory of the container)";
    Some(Left { bytes: left_bytes, of, fix })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    const MIB: u64 = 1 << 20;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn each_limit_is_read_where_the_kernel_tells_it() {
        let root = system(&[
            ("proc/self/status", "Name:\tkonkordia\nVmSize:\t    2048 kB\n"),
            ("proc/meminfo", "MemTotal:  9 kB\nMemAvailable:    4096 kB\n"),
        ]);
        assert_eq!(of_process(root.path(), Some(5 * MIB)).unwrap().bytes, 3 * MIB);
        assert_eq!(of_process(root.path(), Some(MIB)).unwrap().bytes, 0);
        assert_eq!((of_process(root.path(), None), of_group(root.path())), (None, None));
        assert_eq!(of_machine(root.path()).unwrap().bytes, 4 * MIB);
        assert!(of_machine(Path::new("/")).unwrap().bytes > MIB);
    }

    #[test]
    fn a_group_is_named_with_its_limit() {
        let root = system(&[
            ("proc/self/cgroup", "0::/daq/receiver.service\n"),
            ("sys/fs/cgroup/daq/memory.max", "10485760\n"),
            ("sys/fs/cgroup/daq/memory.current", "8388608\n"),
            ("sys/fs/cgroup/daq/memory.stat", "anon 1\ninactive_file 1048576\n"),
        ]);
        let left = of_group(root.path()).unwrap();
        assert_eq!(left.bytes, 3 * MIB);
        assert!(left.of.contains("10.0 MiB") && left.of.ends_with("/daq"), "{left:?}");
    }

    #[test]
    fn a_refusal_says_what_is_needed_and_whose_limit_it_is() {
        let left = Left { bytes: MIB, of: "a limit".into(), fix: "raise it" };
        let failure = refusal(3 * MIB, 0, &left);
        assert!(failure.why.contains("needs 3.0 MiB, but a limit leaves only 1.0 MiB"), "{}", failure.why);
        assert_eq!(failure.fix, "set a smaller [run] buffer_mib, or raise it");
        let failure = refusal(3 * MIB, 2 * MIB, &left);
        assert!(failure.why.contains("needs 3.0 MiB (rings of [source] receive: 2.0 MiB), but"), "{}", failure.why);
        assert!(failure.fix.contains("receive_buffer_mib, or raise it"), "{}", failure.fix);
    }
}
