//! Limits of the control groups of this process, versions 1 and 2.

use crate::files::Files;
use crate::parse::{group_path, with_parents};

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

/// Processors that this process may use up at once, if its groups limit them.
pub fn cpu_quota(files: &Files) -> Option<f64> {
    let of_two = |path: &String| {
        let (quota, period) = files.text(path).ok()?.trim().split_once(' ')?;
        share(quota.parse().ok()?, period.parse().ok()?)
    };
    let of_one = |path: &String| {
        let period = path.strip_suffix("cpu.cfs_quota_us")?;
        share(files.number(path).ok()?, files.number(&format!("{period}cpu.cfs_period_us")).ok()?)
    };
    let paths = files_of_limits(files);
    paths.iter().filter_map(|path| of_two(path).or_else(|| of_one(path))).min_by(f64::total_cmp)
}

/// Less than 0 stands for no limit.
fn share(quota: i64, period: i64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Memory that this process may use, if its groups limit it.
pub fn memory_limit(files: &Files) -> Option<u64> {
    /// Version 1 writes about the largest number for no limit.
    const NO_LIMIT: u64 = 1 << 60;
    let paths = files_of_limits(files);
    let limits = paths.iter().filter(|path| path.contains("/memory")).filter_map(|path| files.number(path).ok());
    limits.filter(|bytes| *bytes < NO_LIMIT).min()
}

/// What says that this is a container, if anything does.
pub fn container(files: &Files) -> Option<&'static str> {
    const NAMES: [(&str, &str); 4] = [("docker", "docker"), ("kubepods", "Kubernetes"), ("libpod", "podman"), ("/lxc", "LXC")];
    let of_file = [(".dockerenv", "/.dockerenv is there"), ("run/.containerenv", "/run/.containerenv is there")];
    let by_file = of_file.iter().find(|(path, _)| files.has(path)).map(|(_, name)| *name);
    by_file.or_else(|| {
        let groups = files.text("proc/1/cgroup").ok()?;
        NAMES.iter().find(|(part, _)| groups.contains(part)).map(|(_, name)| *name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(texts: &[(&str, &str)]) -> Files {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::default();
        for (path, text) in texts {
            let at = folder.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
            files.add(folder.path(), path);
        }
        files
    }

    #[test]
    fn the_tightest_of_all_limits_counts() {
        let two = host(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ]);
        assert_eq!((cpu_quota(&two), memory_limit(&two)), (Some(2.5), Some(1 << 30)));
        let one = host(&[
            ("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!((cpu_quota(&one), memory_limit(&one)), (Some(1.5), None));
        let rubbish =
            host(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", "a b c"), ("sys/fs/cgroup/memory.max", "-1")]);
        assert_eq!((cpu_quota(&rubbish), memory_limit(&rubbish)), (None, None));
        assert_eq!((cpu_quota(&Files::default()), memory_limit(&Files::default())), (None, None));
    }

    #[test]
    fn containers_are_known_by_what_they_leave() {
        assert_eq!(container(&host(&[(".dockerenv", "")])), Some("/.dockerenv is there"));
        assert_eq!(container(&host(&[("proc/1/cgroup", "0::/kubepods.slice/x\n")])), Some("Kubernetes"));
        assert_eq!(container(&host(&[("proc/1/cgroup", "0::/init.scope\n")])), None);
    }
}
