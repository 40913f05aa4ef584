//! Limits of the control groups of this process, versions 1 and 2.

use crate::files::Files;
use crate::parse::{bytes_after, group_path, with_parents};
use std::path::Path;

/// What is in the folders of control groups whether there are limits or not.
const FOLDERS: &[&str] = &[
    "sys/fs/cgroup/cgroup.controllers",
    "sys/fs/cgroup/unified/cgroup.controllers",
    "sys/fs/cgroup/cpu",
    "sys/fs/cgroup/memory",
];

/// Reads what there is about the groups of this process and all above them, below `root`: on a real host `/`.
pub fn read(files: &mut Files, root: &Path) {
    files.add(root, "proc/self/cgroup");
    files.list(root, FOLDERS);
    for path in files_of_limits(files) {
        files.add(root, &path);
    }
}

/// Files with limits, of the group of this process and of all above it, as `/proc/self/cgroup` names it.
fn files_of_limits(files: &Files) -> Vec<String> {
    const VERSION_2: &[&str] = &["cpu.max", "memory.max", "memory.current", "memory.stat"];
    let Ok(cgroup) = files.text("proc/self/cgroup") else { return Vec::new() };
    let kinds: [(&str, &str, &[&str]); 4] = [
        ("", "sys/fs/cgroup/", VERSION_2),
        ("", "sys/fs/cgroup/unified/", VERSION_2),
        ("cpu", "sys/fs/cgroup/cpu/", &["cpu.cfs_quota_us", "cpu.cfs_period_us"]),
        ("memory", "sys/fs/cgroup/memory/", &["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"]),
    ];
    let of_kind = |(controller, folder, names): &(&str, &str, &[&str])| {
        let parents = group_path(cgroup, controller).map(with_parents).unwrap_or_default();
        let paths = parents.iter().flat_map(|parent| names.iter().map(move |name| format!("{folder}{parent}{name}")));
        paths.collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of_kind).collect()
}

/// Fails where limits might be that cannot be seen.
fn check_visible(files: &Files) -> Result<(), String> {
    files.text("proc/self/cgroup")?;
    let is_folder = FOLDERS.iter().any(|folder| files.has(folder));
    let is_visible = is_folder || files_of_limits(files).iter().any(|path| files.has(path));
    if is_visible { Ok(()) } else { Err("the control groups of this process cannot be seen in /sys/fs/cgroup".into()) }
}

/// Processors that this process may use up at once, if its groups limit them.
///
/// # Errors
/// The groups cannot be seen; in words.
pub fn cpu_quota(files: &Files) -> Result<Option<f64>, String> {
    check_visible(files)?;
    let of_two = |path: &String| {
        let (quota, period) = files.text(path).ok().filter(|_| path.ends_with("/cpu.max"))?.trim().split_once(' ')?;
        share(quota.parse().ok()?, period.parse().ok()?)
    };
    let of_one = |path: &String| {
        let period = path.strip_suffix("cpu.cfs_quota_us")?;
        share(files.number(path).ok()?, files.number(&format!("{period}cpu.cfs_period_us")).ok()?)
    };
    let paths = files_of_limits(files);
    Ok(paths.iter().filter_map(|path| of_two(path).or_else(|| of_one(path))).min_by(f64::total_cmp))
}

/// Less than 0 stands for no limit.
fn share(quota: i64, period: i64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// A limit of memory, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLeft {
    /// The group, without a slash at the beginning.
    pub group: String,
    /// Its limit, in bytes.
    pub limit_bytes: u64,
    /// What its processes do not use, in bytes. File pages that the kernel can take back do not count as used.
    pub left_bytes: u64,
}

/// The limit of which the least is left, if the groups of this process limit its memory.
///
/// # Errors
/// The groups cannot be seen; in words.
pub fn memory_left(files: &Files) -> Result<Option<MemoryLeft>, String> {
    /// Version 1 writes about the largest number for no limit.
    const NO_LIMIT: u64 = 1 << 60;
    check_visible(files)?;
    let of = |path: &String| {
        let (folder, name) = path.rsplit_once('/')?;
        let (top, used, cached) = match name {
            "memory.max" => ("sys/fs/cgroup", "memory.current", "inactive_file"),
            "memory.limit_in_bytes" => ("sys/fs/cgroup/memory", "memory.usage_in_bytes", "total_inactive_file"),
            _ => return None,
        };
        let limit_bytes = files.number::<u64>(path).ok().filter(|bytes| *bytes < NO_LIMIT)?;
        let stat = files.text(&format!("{folder}/memory.stat")).ok();
        let cached = stat.and_then(|text| bytes_after(text, cached)).unwrap_or(0);
        let used = files.number::<u64>(&format!("{folder}/{used}")).unwrap_or(0).saturating_sub(cached);
        let group = folder.trim_start_matches(top).trim_start_matches('/').to_owned();
        Some(MemoryLeft { group, limit_bytes, left_bytes: limit_bytes.saturating_sub(used) })
    };
    Ok(files_of_limits(files).iter().filter_map(of).min_by_key(|left| left.left_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(group: &str, limit_bytes: u64, left_bytes: u64) -> MemoryLeft {
        MemoryLeft { group: group.into(), limit_bytes, left_bytes }
    }

    #[test]
    fn what_is_used_is_no_longer_left_and_the_cache_is_not_used() {
        let two = Files::of(&[
            ("proc/self/cgroup", "0::/daq/receiver.service\n"),
            ("sys/fs/cgroup/daq/receiver.service/memory.max", "max\n"),
            ("sys/fs/cgroup/daq/memory.max", "1000\n"),
            ("sys/fs/cgroup/daq/memory.current", "800\n"),
            ("sys/fs/cgroup/daq/memory.stat", "anon 1\ninactive_file 100\n"),
        ]);
        assert_eq!(memory_left(&two), Ok(Some(left("daq", 1000, 300))));
        let one = Files::of(&[
            ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/jobs/7\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "100\n"),
            ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "4000\n"),
            ("sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", "4000\n"),
            ("sys/fs/cgroup/memory/jobs/7/memory.stat", "total_inactive_file 10\n"),
        ]);
        assert_eq!(memory_left(&one), Ok(Some(left("jobs/7", 4000, 10))));
    }

    #[test]
    fn the_tightest_of_all_limits_counts() {
        let two = Files::of(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ]);
        assert_eq!((cpu_quota(&two), memory_left(&two)), (Ok(Some(2.5)), Ok(Some(left("a", 1 << 30, 1 << 30)))));
        let one = Files::of(&[
            ("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!((cpu_quota(&one), memory_left(&one)), (Ok(Some(1.5)), Ok(None)));
        let rubbish =
            Files::of(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", "a b c"), ("sys/fs/cgroup/memory.max", "-1")]);
        assert_eq!((cpu_quota(&rubbish), memory_left(&rubbish)), (Ok(None), Ok(None)));
        // What cannot be seen may limit.
        for unseen in [Files::default(), Files::of(&[("proc/self/cgroup", "0::/\n")])] {
            assert!(cpu_quota(&unseen).is_err() && memory_left(&unseen).is_err());
        }
    }
}
