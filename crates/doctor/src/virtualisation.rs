//! Containers and virtual machines: what says that this is one.

use crate::files::Files;
use crate::parse::mount_of;

/// What says that this is a container; `None` if nothing does.
///
/// # Errors
/// The control groups of the first process cannot be read; in words.
pub fn container(files: &Files) -> Result<Option<&'static str>, String> {
    const SIGNS: [(&str, &str); 3] = [
        (".dockerenv", "/.dockerenv is there"),
        ("run/.containerenv", "/run/.containerenv is there"),
        ("run/systemd/container", "/run/systemd/container is there"),
    ];
    const NAMES: [(&str, &str); 4] = [("docker", "docker"), ("kubepods", "Kubernetes"), ("libpod", "podman"), ("/lxc", "LXC")];
    if let Some((_, sign)) = SIGNS.iter().find(|(path, _)| files.has(path)) {
        return Ok(Some(*sign));
    }
    // Where a container has a name space of its own for groups, they do not tell.
    let root = files.text("proc/self/mountinfo").ok().and_then(|text| mount_of(text, "/"));
    if root.is_some_and(|mount| mount.kind == "overlay") {
        return Ok(Some("the root is an overlay"));
    }
    let groups = files.text("proc/1/cgroup")?;
    Ok(NAMES.iter().find(|(part, _)| groups.contains(part)).map(|(_, name)| *name))
}

/// The hypervisor below this machine, as it calls itself; `None` if there is none.
///
/// # Errors
/// The processor does not say whether there is one, as on ARM; in words.
pub fn hypervisor(files: &Files) -> Result<Option<String>, String> {
    let flags = files.text("proc/cpuinfo")?.lines().find(|line| line.starts_with("flags"));
    let flags = flags.ok_or("/proc/cpuinfo does not say whether there is a hypervisor")?;
    let name = ["sys/hypervisor/type", "sys/class/dmi/id/sys_vendor"].into_iter().find_map(|path| files.text(path).ok());
    let is_there = flags.split_whitespace().any(|flag| flag == "hypervisor");
    Ok(is_there.then(|| name.map_or("of an unknown maker".to_owned(), |name| name.trim().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_what_they_leave() {
        assert_eq!(container(&Files::of(&[(".dockerenv", "")])), Ok(Some("/.dockerenv is there")));
        assert_eq!(container(&Files::of(&[("proc/1/cgroup", "0::/kubepods.slice/x\n")])), Ok(Some("Kubernetes")));
        let overlay = ("proc/self/mountinfo", "1 0 0:9 / / rw - overlay overlay rw\n");
        assert_eq!(container(&Files::of(&[("proc/1/cgroup", "0::/\n"), overlay])), Ok(Some("the root is an overlay")));
        assert_eq!(container(&Files::of(&[("proc/1/cgroup", "0::/init.scope\n")])), Ok(None));
        assert!(container(&Files::of(&[])).is_err());
    }

    #[test]
    fn processors_tell_of_their_hypervisor() {
        let cpu = |flags: &'static str| ("proc/cpuinfo", flags);
        let vendor = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
        assert_eq!(
            hypervisor(&Files::of(&[cpu("processor : 0\nflags : fpu hypervisor avx2\n"), vendor])),
            Ok(Some("QEMU".into()))
        );
        assert_eq!(hypervisor(&Files::of(&[cpu("flags\t: fpu hypervisor\n")])), Ok(Some("of an unknown maker".into())));
        assert_eq!(hypervisor(&Files::of(&[cpu("flags : fpu avx2\n"), vendor])), Ok(None));
        assert!(hypervisor(&Files::of(&[cpu("Features : fp asimd\n"), vendor])).is_err());
        assert!(hypervisor(&Files::of(&[])).is_err());
    }
}
