//! Properties and limits of this machine. Some must be known to compare figures.

use konkordia_doctor::files::Files;
use konkordia_doctor::{groups, parse};
use konkordia_kernels::isa::Isa;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use utoipa::ToSchema;

fn first_after(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// The file of this program. Lists of processes show its name; if the file was replaced, it still is the running
/// program.
pub fn own_program() -> PathBuf {
    let named = std::env::current_exe().ok().filter(|path| path.exists());
    named.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// The value of a key in lines such as `key: 12 kB` or `key 12`, in bytes.
pub fn bytes_after(path: &Path, key: &str) -> Option<u64> {
    parse::bytes_after(&std::fs::read_to_string(path).ok()?, key)
}

fn line_of(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// File descriptors reserved for files, HTTP and the program itself.
const OPEN_FILES_KEPT: u64 = 512;
/// ZeroMQ ports that may reach their connection limit at the same time.
const CROWDED_PORTS: u64 = 16;

static OPEN_FILES_MAX: OnceLock<u64> = OnceLock::new();

/// Raises the limit of files and sockets that this process may open to what the system allows. Called at the start of
/// the program.
pub fn raise_limits() {
    // If the kernel does not report the limit: the usual one.
    OPEN_FILES_MAX.get_or_init(|| konkordia_sources::limits::raise_open_files().unwrap_or(1024));
}

/// Connection limit of a ZeroMQ port: 256. If this process may open too few files for 16 such ports, the limit is lower
/// (but at least 8), so that files and HTTP always have descriptors.
pub fn connections_per_port() -> usize {
    let files = *OPEN_FILES_MAX.get().unwrap_or(&1024);
    let share = files.saturating_sub(OPEN_FILES_KEPT) / CROWDED_PORTS;
    (share as usize).clamp(8, konkordia_core::endpoint::PEERS_MAX)
}

/// Processor, memory, kernel, limits.
pub fn facts() -> Value {
    json!({
        "cpu": first_after("/proc/cpuinfo", "model name"),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes": bytes_after(Path::new("/proc/meminfo"), "MemTotal"),
        "kernel": line_of("/proc/sys/kernel/osrelease"),
        "rmem_max_bytes": konkordia_sources::udp::kernel_receive_buffer_bytes_max(),
        "instruction_set": Isa::detect().name(),
    })
}

/// Memory of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryUse {
    /// What it holds now, in bytes.
    pub used_bytes: Option<u64>,
    /// What it may hold at most: the limit of its control group, or the memory of the machine.
    pub limit_bytes: Option<u64>,
}

/// Memory of this process.
pub fn memory_use() -> MemoryUse {
    let root = Path::new("/");
    let mut files = Files::default();
    groups::read(&mut files, root);
    let of_group = groups::memory_left(&files).ok().flatten().map(|left| left.limit_bytes);
    let of_machine = bytes_after(&root.join("proc/meminfo"), "MemTotal");
    MemoryUse {
        used_bytes: bytes_after(&root.join("proc/self/status"), "VmRSS"),
        limit_bytes: of_group.into_iter().chain(of_machine).min(),
    }
}

/// UDP datagrams that arrived at ports to which no program listens, since this machine was started.
pub fn datagrams_to_closed_ports() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/net/snmp").ok()?;
    parse::snmp(&text, "Udp", "NoPorts")
}

/// [`facts`] on one line, for people.
pub fn line() -> String {
    let f = facts();
    let text = |key: &str| f[key].as_str().unwrap_or("unknown").to_string();
    format!(
        "{}, {} processors, {}, Linux {}, {}, net.core.rmem_max {}",
        text("cpu"),
        f["processors"],
        konkordia_core::text::bytes(f["memory_bytes"].as_u64().unwrap_or(0)),
        text("kernel"),
        text("instruction_set"),
        f["rmem_max_bytes"]
    )
}

/// Signals that this process ignores, by inheritance or by its own choice: bit n for signal n + 1.
pub fn ignored_signals() -> u64 {
    first_after("/proc/self/status", "SigIgn").and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_has_facts() {
        let facts = super::facts();
        assert!(facts["processors"].as_u64() > Some(0) && facts["kernel"].is_string() && facts["instruction_set"].is_string());
        assert!(super::line().contains("processors"));
        let memory = super::memory_use();
        assert!(memory.used_bytes > Some(1 << 20) && memory.limit_bytes > memory.used_bytes, "{memory:?}");
        // Rust ignores SIGPIPE, 13.
        assert_eq!(super::ignored_signals() >> 12 & 1, 1);
    }
}
