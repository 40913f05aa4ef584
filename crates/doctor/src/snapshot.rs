//! Everything that the checks look at: texts and numbers, taken once. The checks themselves touch nothing.

use crate::disk::{self, Written};
use crate::files::Files;
use crate::sys::{self, Query};
use crate::{groups, interfaces, topology};
use konkordia_core::affinity::Cpus;
use konkordia_core::backend::Receive;
use konkordia_core::failure::reason;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files whose texts are read. A `*` stands for any end of a part.
const READ: &[&str] = &[
    "proc/sys/net/core/rmem_max",
    "proc/sys/net/core/rmem_default",
    "proc/sys/net/core/netdev_max_backlog",
    "proc/sys/net/core/netdev_budget",
    "proc/sys/net/core/netdev_budget_usecs",
    "proc/sys/net/ipv4/conf/*/rp_filter",
    "proc/sys/net/netfilter/nf_conntrack_count",
    "proc/sys/kernel/hostname",
    "proc/sys/kernel/osrelease",
    "proc/cpuinfo",
    "proc/modules",
    "proc/net/softnet_stat",
    "proc/net/snmp",
    "proc/net/snmp6",
    "proc/interrupts",
    "proc/irq/*/smp_affinity_list",
    "proc/irq/*/effective_affinity_list",
    "proc/self/limits",
    "proc/self/status",
    "proc/self/mountinfo",
    "proc/1/cgroup",
    "proc/meminfo",
    "proc/*/comm",
    "sys/class/net/*/mtu",
    "sys/class/net/*/type",
    "sys/class/net/*/flags",
    "sys/class/net/*/speed",
    "sys/class/net/*/statistics/rx_*",
    "sys/class/net/*/device/numa_node",
    "sys/class/net/*/device/local_cpulist",
    "sys/class/net/*/device/current_link_speed",
    "sys/class/net/*/device/current_link_width",
    "sys/class/net/*/device/max_link_speed",
    "sys/class/net/*/device/max_link_width",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/name",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/latency",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/clocksource/clocksource0/available_clocksource",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/hypervisor/type",
    "sys/class/dmi/id/sys_vendor",
];

/// Files of which only the names matter.
const LISTED: &[&str] = &[".dockerenv", "run/.containerenv", "run/systemd/container"];

/// Where HDF5 looks for filters if nobody says otherwise.
const HDF5_PLUGINS: &str = "/usr/local/hdf5/lib/plugin";

/// What a configuration asks of the host; what is not known stays away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Addresses at which packets arrive.
    pub addresses: Vec<IpAddr>,
    /// Streams, each with a port and a thread.
    pub streams: Option<u64>,
    /// Largest datagram, without UDP and IP headers.
    pub datagram_bytes: Option<u64>,
    /// Receive buffer of each stream.
    pub receive_buffer_bytes: Option<u64>,
    /// Memory of the runs.
    pub memory_bytes: Option<u64>,
    /// Processors to which threads are bound.
    pub pinned: Vec<usize>,
    /// Through what packets are to be received (`[source] receive`).
    pub receive: Vec<Receive>,
}

/// Entries of the receive ring of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Now.
    pub entries: u32,
    /// At most.
    pub entries_max: u32,
}

/// When a network card raises an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// The driver adapts to the traffic.
    pub is_adaptive: bool,
    /// So long after a packet, microseconds.
    pub usecs: u32,
    /// After so many packets.
    pub frames: u32,
}

/// Receive queues of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// In use.
    pub used: u32,
    /// At most.
    pub most: u32,
}

/// What the driver of an interface says; the error is its reason not to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its receive ring.
    pub ring: Result<Ring, String>,
    /// Its interrupts.
    pub coalescing: Result<Coalescing, String>,
    /// It stops its sender when it is full.
    pub takes_pause: Result<bool, String>,
    /// Packets of a stream are joined.
    pub gro: Result<bool, String>,
    /// The card compares checksums.
    pub checksums: Result<bool, String>,
    /// Its queues.
    pub queues: Result<Queues, String>,
    /// UDP ports decide about the queue, not addresses alone.
    pub hashes_ports: Result<bool, String>,
}

/// A folder for files.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// The folder, without links.
    pub folder: String,
    /// Free bytes of its file system.
    pub free_bytes: u64,
    /// All bytes of its file system.
    pub total_bytes: u64,
    /// The write test.
    pub written: Result<Written, String>,
}

/// The clock of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Something keeps it right.
    pub is_synchronised: bool,
    /// The most by which it may be wrong, microseconds.
    pub error_us: u64,
}

/// Where HDF5 finds filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugins {
    /// The folders, separated by colons.
    pub path: String,
    /// The environment names them.
    pub is_set: bool,
    /// Names of the files there.
    pub files: Vec<String>,
}

/// A host at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Texts of the kernel.
    pub files: Files,
    /// The interfaces to look at.
    pub interfaces: Vec<Interface>,
    /// What is asked of the host.
    pub demand: Demand,
    /// The clock.
    pub clock: Result<Clock, String>,
    /// How long a processor may take to wake up, microseconds, as programs ask for it (`/dev/cpu_dma_latency`).
    pub wake_up_us: Result<i32, String>,
    /// The folder for files, if one was named.
    pub disk: Option<Result<Disk, String>>,
    /// Filters of HDF5.
    pub plugins: Plugins,
}

/// What is to be looked at.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Interfaces; if none, those of the addresses in `demand`, or all that are up.
    pub interfaces: Vec<String>,
    /// What is asked of the host.
    pub demand: Demand,
    /// Folder for files.
    pub folder: Option<PathBuf>,
    /// Time of the write test there; none if it is zero.
    pub write_time: Duration,
}

/// Reads the texts below `root`: on a real host `/`.
pub fn files(root: &Path) -> Files {
    let mut files = Files::default();
    files.read(root, READ);
    files.list(root, LISTED);
    files.list(root, topology::LISTED);
    files.list(root, interfaces::LOWER);
    groups::read(&mut files, root);
    files
}

impl Snapshot {
    /// Looks at this host. Writes nothing, except for the write test.
    ///
    /// # Errors
    /// An interface in `scope` that this host does not have; in words.
    pub fn take(scope: &Scope) -> Result<Self, String> {
        let files = files(Path::new("/"));
        let names = interfaces::choose(&files, &sys::addresses(), &scope.demand.addresses, &scope.interfaces)?;
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(|error| reason(&error));
        let interfaces = names.into_iter().map(|name| Interface::ask(socket.as_ref(), name)).collect();
        let clock = sys::clock().map(|(is_synchronised, error_us)| Clock { is_synchronised, error_us });
        let disk = scope.folder.as_deref().map(|folder| Disk::look(folder, scope.write_time));
        let demand = scope.demand.clone();
        Ok(Self { files, interfaces, demand, clock, wake_up_us: wake_up_us(), disk, plugins: Plugins::look() })
    }

    /// Name of the host.
    pub fn host(&self) -> &str {
        self.files.text("proc/sys/kernel/hostname").unwrap_or("this host").trim()
    }

    /// Processors that this process may use.
    pub fn allowed_cpus(&self) -> Result<Cpus, String> {
        topology::allowed_cpus(&self.files)
    }
}

impl Interface {
    fn ask(socket: Result<&UdpSocket, &String>, name: String) -> Self {
        // The kind of packets in a question about the flow hash: UDP over IPv4.
        const UDP_V4: u32 = 2;
        const BOTH_PORTS: u32 = 0b11 << 6;
        let ask = |query, argument| sys::ethtool(socket.map_err(Clone::clone)?, &name, query, argument);
        let queues = ask(Query::Channels, 0).map(|a| Queues { used: a[5].saturating_add(a[8]), most: a[1].max(a[4]) });
        let hash = ask(Query::FlowHash, UDP_V4);
        Self {
            ring: ask(Query::Ring, 0).map(|a| Ring { entries: a[5], entries_max: a[1] }),
            coalescing: ask(Query::Coalescing, 0).map(|a| Coalescing { is_adaptive: a[10] > 0, usecs: a[1], frames: a[2] }),
            takes_pause: ask(Query::Pause, 0).map(|a| a[2] > 0),
            gro: ask(Query::Gro, 0).map(|a| a[1] > 0),
            checksums: ask(Query::Checksums, 0).map(|a| a[1] > 0),
            queues,
            // The answer has 64 bits; those of the ports are in one of its halves, by the byte order.
            hashes_ports: hash.map(|a| (a[2] | a[3]) & BOTH_PORTS != 0),
            name,
        }
    }
}

impl Disk {
    fn look(folder: &Path, time: Duration) -> Result<Self, String> {
        let at = |error: std::io::Error| format!("{}: {}", folder.display(), reason(&error));
        let whole = folder.canonicalize().map_err(at)?;
        let (free_bytes, total_bytes) = sys::space(&whole).map_err(at)?;
        let written = if time.is_zero() { Err("no test was wanted".into()) } else { disk::write(&whole, free_bytes, time) };
        Ok(Self { folder: whole.display().to_string(), free_bytes, total_bytes, written })
    }
}

impl Plugins {
    fn look() -> Self {
        let named = std::env::var("HDF5_PLUGIN_PATH").ok().filter(|path| !path.is_empty());
        let path = named.clone().unwrap_or_else(|| HDF5_PLUGINS.into());
        let entries = path.split(':').filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        let files = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        Self { path, is_set: named.is_some(), files }
    }
}

/// Reading the device asks for nothing: only a value that is written there does.
fn wake_up_us() -> Result<i32, String> {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let mut bytes = [0; 4];
    let file = std::fs::File::open(DEVICE);
    let read = file.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    read.map(|()| i32::from_ne_bytes(bytes)).map_err(|error| format!("{DEVICE}: {}", reason(&error)))
}
