//! Limits of the control groups of this process, versions 1 and 2.

use crate::files::Files;
use crate::parse::{group_path, with_parents};

/// What is in the folders of control groups whether there are limits or not, for [`Files::list`].
pub const FOLDERS: &[&str] = &[
    "sys/fs/cgroup/cgroup.controllers",
    "sys/fs/cgroup/unified/cgroup.controllers",
    "sys/fs/cgroup/cpu",
    "sys/fs/cgroup/memory",
];

/// Files with limits, of the group of this process and of all above it, as `/proc/self/cgroup` names it.
pub fn files_of_limits(files: &Files) -> Vec<String> {
    let Ok(cgroup) = files.text("proc/self/cgroup") else { return Vec::new() };
    let kinds: [(&str, &str, &[&str]); 4] = [
        ("", "sys/fs/cgroup/", &["cpu.max", "memory.max"]),
        ("", "sys/fs/cgroup/unified/", &["cpu.max", "memory.max"]),
        ("cpu", "sys/fs/cgroup/cpu/", &["cpu.cfs_quota_us", "cpu.cfs_period_us"]),
        ("memory", "sys/fs/cgroup/memory/", &["memory.limit_in_bytes"]),
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
        let (quota, period) = files.text(path).ok()?.trim().split_once(' ')?;
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

/// Memory that this process may use, if its groups limit it.
///
/// # Errors
/// The groups cannot be seen; in words.
pub fn memory_limit(files: &Files) -> Result<Option<u64>, String> {
    /// Version 1 writes about the largest number for no limit.
    const NO_LIMIT: u64 = 1 << 60;
    check_visible(files)?;
    let paths = files_of_limits(files);
    let limits = paths.iter().filter(|path| path.contains("/memory")).filter_map(|path| files.number(path).ok());
    Ok(limits.filter(|bytes| *bytes < NO_LIMIT).min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_of_all_limits_counts() {
        let two = Files::of(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ]);
        assert_eq!((cpu_quota(&two), memory_limit(&two)), (Ok(Some(2.5)), Ok(Some(1 << 30))));
        let one = Files::of(&[
            ("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!((cpu_quota(&one), memory_limit(&one)), (Ok(Some(1.5)), Ok(None)));
        let rubbish =
            Files::of(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", "a b c"), ("sys/fs/cgroup/memory.max", "-1")]);
        assert_eq!((cpu_quota(&rubbish), memory_limit(&rubbish)), (Ok(None), Ok(None)));
        // What cannot be seen may limit.
        for unseen in [Files::default(), Files::of(&[("proc/self/cgroup", "0::/\n")])] {
            assert!(cpu_quota(&unseen).is_err() && memory_limit(&unseen).is_err());
        }
    }
}
