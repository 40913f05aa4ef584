//! Texts of the kernel, taken apart. Nothing here panics: a text that is not as expected gives `None`.

pub use konkordia_core::affinity::{cpus, cpus_text};
use std::collections::BTreeMap;
use std::str::SplitWhitespace;

/// Sums over all processors of `/proc/net/softnet_stat`, since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets that were taken.
    pub processed: u64,
    /// Packets for which the backlog had no room.
    pub dropped: u64,
    /// Turns that ended because the budget was used up.
    pub squeezed: u64,
}

/// `/proc/net/softnet_stat`: one line for each processor, hexadecimal columns.
pub fn softnet(text: &str) -> Option<Softnet> {
    let mut sum = Softnet::default();
    let mut lines = 0;
    for line in text.lines() {
        let mut columns = line.split_whitespace().map(|column| u64::from_str_radix(column, 16).ok());
        sum.processed = sum.processed.checked_add(columns.next()??)?;
        sum.dropped = sum.dropped.checked_add(columns.next()??)?;
        sum.squeezed = sum.squeezed.checked_add(columns.next()??)?;
        lines += 1;
    }
    (lines > 0).then_some(sum)
}

/// A counter of `/proc/net/snmp`: for each protocol a line of names and a line of values.
pub fn snmp(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next()?, lines.next()?);
    let (_, value) = names.split_whitespace().zip(values.split_whitespace()).find(|(found, _)| *found == name)?;
    value.parse().ok()
}

/// The words after `key` and its colon, if any, at the beginning of a line.
fn words_after<'a>(text: &'a str, key: &str) -> Option<SplitWhitespace<'a>> {
    text.lines().map(str::split_whitespace).find_map(|mut words| {
        let is_key = words.next()?.trim_end_matches(':') == key;
        is_key.then_some(words)
    })
}

/// The first word after `key` and its colon, if any, at the beginning of a line: `/proc/meminfo`, `/proc/self/status`,
/// `/proc/net/snmp6`.
pub fn word_after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    words_after(text, key)?.next()
}

/// The number after `key`, in bytes: lines such as `key: 12 kB` of `/proc/meminfo`, and `key 12` of `memory.stat`.
pub fn bytes_after(text: &str, key: &str) -> Option<u64> {
    let mut words = words_after(text, key)?;
    let value: u64 = words.next()?.parse().ok()?;
    if words.next() == Some("kB") { value.checked_mul(1024) } else { Some(value) }
}

/// Soft and hard limit of `/proc/self/limits`; `None` stands for unlimited.
pub fn limits(text: &str, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace().map(|word| match word {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    });
    Some((words.next()??, words.next()??))
}

/// A right of this process (`CapEff` of `/proc/self/status`) by its number in capabilities(7).
pub fn has_right(status: &str, bit: u32) -> Option<bool> {
    let rights = u64::from_str_radix(word_after(status, "CapEff")?, 16).ok()?;
    Some(rights.checked_shr(bit)? & 1 == 1)
}

/// The right to change the network: greater receive buffers than the limit.
pub const CAP_NET_ADMIN: u32 = 12;
/// The right to see the frames of a network card.
pub const CAP_NET_RAW: u32 = 13;
/// The right to lock memory.
pub const CAP_IPC_LOCK: u32 = 14;
/// The right to almost everything; before kernel 5.8 it was also the right to load programs into the kernel.
pub const CAP_SYS_ADMIN: u32 = 21;
/// The right to raise priorities.
pub const CAP_SYS_NICE: u32 = 23;
/// The right to load programs into the kernel.
pub const CAP_BPF: u32 = 39;

/// Version of a kernel: `6.1.0-18-amd64` is 6.1.
pub fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// `/proc/interrupts`: name of each numbered interrupt.
pub fn interrupts(text: &str) -> BTreeMap<u32, String> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |head| head.split_whitespace().count());
    let one = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let name = rest.split_whitespace().skip(cpus).collect::<Vec<_>>().join(" ");
        Some((number.trim().parse().ok()?, name))
    };
    lines.filter_map(one).collect()
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: String,
    /// Its kind, for example ext4.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Options of the file system, with commas.
    pub options: String,
}

/// The file system of an absolute path, from `/proc/self/mountinfo`. Of several at one place the last one counts.
pub fn mount_of(mountinfo: &str, path: &str) -> Option<Mount> {
    let mut best: Option<Mount> = None;
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split_whitespace().nth(4).map(unescape) else { continue };
        let mut words = right.split_whitespace();
        let (Some(kind), Some(source)) = (words.next(), words.next()) else { continue };
        let is_in = point == "/" || path == point || path.strip_prefix(&point).is_some_and(|rest| rest.starts_with('/'));
        if is_in && best.as_ref().is_none_or(|best| point.len() >= best.point.len()) {
            let options = words.next().unwrap_or_default().into();
            best = Some(Mount { point, kind: kind.into(), source: unescape(source), options });
        }
    }
    best
}

/// Blanks and the like stand as `\040` in tables of mounts.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        match code {
            Some(code) => {
                out.push(char::from(code));
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

/// The value that stands in brackets, as in `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// Gigabits per second of a PCIe link: `16.0 GT/s PCIe` on so many lanes, less the overhead of the line code.
pub fn pcie_gbit(speed: &str, lanes: u32) -> Option<f64> {
    let gt: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let code = if gt < 8.0 { 0.8 } else { 128.0 / 130.0 };
    (gt > 0.0 && lanes > 0).then_some(gt * code * f64::from(lanes))
}

/// The path of this process in a hierarchy of control groups, from `/proc/self/cgroup`: that of version 2 for "",
/// otherwise of the hierarchy with this controller. Without a slash at the beginning.
pub fn group_path<'a>(cgroup: &'a str, controller: &str) -> Option<&'a str> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = if controller.is_empty() { number == "0" } else { controllers.split(',').any(|one| one == controller) };
        is_it.then(|| path.trim_start_matches('/'))
    })
}

/// A path and all above it, the deepest first: `a/b` gives `a/b/`, `a/` and ``.
pub fn with_parents(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
    let begin = |n: usize| parts[..n].iter().map(|part| format!("{part}/")).collect::<String>();
    (0..=parts.len()).rev().map(begin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_network_are_sums_over_the_processors() {
        let text = "015a5e5e 00000001 0000003f 0 0 0 0 0 0 0 0\n0145e159 00000002 00000041\n";
        assert_eq!(softnet(text), Some(Softnet { processed: 0x15a_5e5e + 0x145_e159, dropped: 3, squeezed: 0x80 }));
        for wrong in ["", "1 2", "1 2 x", "1 2 3\n\n4", "-1 2 3", "ffffffffffffffff 0 0\n1 0 0"] {
            assert_eq!(softnet(wrong), None, "{wrong:?}");
        }
        let text = "Ip: ReasmFails\nIp: 4\nUdp: InDatagrams RcvbufErrors\nUdp: 7 12\nUdpLite: RcvbufErrors\nUdpLite: 99\n";
        assert_eq!((snmp(text, "Udp", "RcvbufErrors"), snmp(text, "Ip", "ReasmFails")), (Some(12), Some(4)));
        for (wrong, name) in [(text, "NoPorts"), ("Udp: A B", "A"), ("Udp: A\nUdp: x", "A"), ("", "A"), ("Udp: A B\nUdp: 1", "B")]
        {
            assert_eq!(snmp(wrong, "Udp", name), None, "{wrong:?}");
        }
        assert_eq!(word_after("Udp6InDatagrams 4\nUdp6RcvbufErrors   7\n", "Udp6RcvbufErrors"), Some("7"));
        let memory = "MemFree:  12 kB\ninactive_file 13\nfar 18446744073709551615 kB\n";
        assert_eq!((bytes_after(memory, "MemFree"), bytes_after(memory, "inactive_file")), (Some(12 << 10), Some(13)));
        assert_eq!((bytes_after(memory, "far"), bytes_after(memory, "Mem"), bytes_after("A: x", "A")), (None, None, None));
        assert_eq!((word_after("A:\n", "A"), word_after("", "A"), word_after("A", "A")), (None, None, None));
    }

    #[test]
    fn limits_and_rights_are_those_of_the_process() {
        let text = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024  524288   files     \nMax locked memory  8388608 unlimited bytes\n";
        assert_eq!(limits(text, "Max open files"), Some((Some(1024), Some(524_288))));
        assert_eq!(limits(text, "Max locked memory"), Some((Some(8 << 20), None)));
        for wrong in ["Max open files", "Max open files x y", "Max open files 1", ""] {
            assert_eq!(limits(wrong, "Max open files"), None, "{wrong:?}");
        }
        let status = "Name:\tx\nCapEff:\t0000000000001000\n";
        assert_eq!((has_right(status, CAP_NET_ADMIN), has_right(status, CAP_SYS_NICE)), (Some(true), Some(false)));
        assert_eq!((release("6.1.0-18-amd64\n"), release("5.18-rc1"), release("6")), (Some((6, 1)), Some((5, 18)), None));
        assert_eq!((release(""), release("x6.1"), release("99999999999.1")), (None, None, None));
        assert_eq!((has_right(status, 64), has_right("CapEff: x", 1), has_right("", 1)), (None, None, None));
    }

    #[test]
    fn interrupts_have_their_names() {
        let text = "     CPU0  CPU1\n 24:  1  0  IO-APIC  5-edge  ACPI:Ged\n120: 5 6 PCI-MSIX-0000:41:00.0 1-edge mlx5_comp0@pci\nNMI: 0 0 Non-maskable\n";
        let found = interrupts(text);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&24, &120]);
        assert_eq!(found[&120], "PCI-MSIX-0000:41:00.0 1-edge mlx5_comp0@pci");
        assert!(interrupts("").is_empty() && interrupts("CPU0\nx\n:\n9999999999999: 1 a").is_empty());
    }

    #[test]
    fn a_path_lies_in_the_deepest_mount() {
        let text = "27 1 254:0 / / rw - ext4 /dev/vda rw\n25 24 0:23 / /dev/shm rw shared:3 - tmpfs tmpfs rw\n\
                    30 27 0:9 / /data rw - xfs /dev/md0 rw\n31 27 0:9 / /with\\040blank rw - nfs4 host:/a\\134b rw\nrubbish\n1 2 - \n";
        let of = |path: &str| mount_of(text, path).map(|mount| format!("{} {} {}", mount.point, mount.kind, mount.source));
        assert_eq!(of("/data/run").as_deref(), Some("/data xfs /dev/md0"));
        assert_eq!(of("/database").as_deref(), Some("/ ext4 /dev/vda"));
        assert_eq!(of("/dev/shm").as_deref(), Some("/dev/shm tmpfs tmpfs"));
        assert_eq!(of("/with blank/x").as_deref(), Some("/with blank nfs4 host:/a\\b"));
        assert_eq!(mount_of(text, "/dev/shm").unwrap().options, "rw");
        assert_eq!(mount_of("", "/"), None);
        assert_eq!(unescape("\\9\\0401\\é"), "\\9 1\\é");
    }

    #[test]
    fn control_groups_are_those_of_this_process() {
        let one = "4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/\n";
        assert_eq!((group_path(one, "cpu"), group_path(one, "memory"), group_path(one, "")), (Some("c"), Some("a/b"), Some("")));
        assert_eq!((group_path("0::/x/y", ""), group_path("0::/x", "cpu"), group_path("rubbish", "")), (Some("x/y"), None, None));
        assert_eq!(with_parents("a/b"), ["a/b/", "a/", ""]);
        assert_eq!(with_parents("/../x"), ["x/", ""]);
    }

    #[test]
    fn links_are_as_fast_as_their_lanes() {
        assert_eq!(pcie_gbit("16.0 GT/s PCIe", 16).map(f64::round), Some(252.0));
        assert_eq!(pcie_gbit("5.0 GT/s", 8), Some(32.0));
        assert_eq!((pcie_gbit("Unknown", 8), pcie_gbit("", 1), pcie_gbit("8.0 GT/s", 0)), (None, None, None));
        assert_eq!((chosen("always [madvise] never"), chosen("a ] b [ c"), chosen("")), (Some("madvise"), None, None));
    }
}
