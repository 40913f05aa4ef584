//! Where files are written: a folder and its file system.

use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_doctor::parse::mount_of;
use konkordia_sinks::hdf5::free_bytes;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

use crate::bench::mem::available_bytes;

/// Beside the images: master, journal, index, and what the file system needs.
const MARGIN_BYTES: u64 = 64 << 20;
/// File systems in the memory of this machine.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// Beginnings of the names of file systems of other machines.
const NETWORK: [&str; 10] = ["nfs", "cifs", "smb", "fuse.sshfs", "ceph", "fuse.ceph", "lustre", "gpfs", "beegfs", "9p"];

/// A folder to write to.
pub struct Target {
    /// The kind of its file system, with a number if another target before has the same.
    pub name: String,
    /// The folder that the command line names.
    pub directory: PathBuf,
    /// The new folder in it.
    pub folder: PathBuf,
    /// Kind of the file system, for example ext4.
    pub kind: String,
    /// What is mounted there.
    source: String,
}

impl Target {
    /// All of them: each folder of the command line with the new folder in it.
    pub fn all(directories: &[PathBuf], folders: &[PathBuf]) -> Result<Vec<Self>, Failure> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = std::fs::read_to_string(path).map_err(|error| Failure::io("cannot read", path, &error))?;
        let mut targets: Vec<Self> = Vec::new();
        for (directory, folder) in directories.iter().zip(folders) {
            let real = folder.canonicalize().map_err(|error| Failure::io("cannot find", folder, &error))?;
            let mount = mount_of(&mounts, &real.to_string_lossy());
            let (kind, source) = mount.map_or(("unknown".into(), String::new()), |mount| (mount.kind, mount.source));
            let before = targets.iter().filter(|target| target.kind == kind).count();
            let name = if before == 0 { kind.clone() } else { format!("{kind} {}", before + 1) };
            targets.push(Self { name, directory: directory.clone(), folder: folder.clone(), kind, source });
        }
        Ok(targets)
    }

    /// Whether its files are in the memory of this machine.
    pub fn is_in_memory(&self) -> bool {
        IN_MEMORY.contains(&self.kind.as_str())
    }

    /// Whether its files are on another machine.
    pub fn is_network(&self) -> bool {
        NETWORK.iter().any(|network| self.kind.starts_with(network))
    }

    /// Bytes that can be written, of memory too where the files are in memory.
    pub fn free_bytes(&self) -> Result<u64, Failure> {
        let free = free_bytes(&self.folder).map_err(|error| Failure::io("cannot ask for the space of", &self.folder, &error))?;
        Ok(if self.is_in_memory() { free.min(available_bytes() as u64) } else { free })
    }

    /// Fails if so many bytes of images do not fit, before anything is written.
    pub fn check_room(&self, bytes: u64) -> Result<(), Failure> {
        let (free, needed) = (self.free_bytes()?, bytes + bytes / 50 + MARGIN_BYTES);
        if needed <= free {
            return Ok(());
        }
        let what = format!("{} has no room for this bench", self.directory.display());
        let (needed, missing) = (text::bytes(needed), text::bytes(needed - free));
        let why = format!("it needs {needed}, {} are free ({}): {missing} are lacking", text::bytes(free), self.kind);
        Err(Failure::new(Exit::Usage, what, why, "give a smaller --mib, fewer or smaller --sizes, or another --dir"))
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "directory": self.directory, "file_system": self.kind, "source": self.source, "network": self.is_network() })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let network = if self.is_network() { ", on the network" } else { "" };
        format!("{}: {} ({}{network})", self.directory.display(), self.kind, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, folder: &Path) -> Target {
        let (name, kind) = (kind.to_owned(), kind.to_owned());
        Target { name, directory: folder.into(), folder: folder.into(), kind, source: "a".into() }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_lacking() {
        let folder = tempfile::tempdir().unwrap();
        let target = target("ext4", folder.path());
        target.check_room(1).unwrap();
        let failure = target.check_room(1 << 60).unwrap_err();
        assert!(failure.why.contains("are lacking") && failure.fix.contains("--mib"), "{failure:?}");
    }

    #[test]
    fn equal_file_systems_have_names_of_their_own() {
        let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.path().into()).collect();
        let targets = Target::all(&folders, &folders).unwrap();
        assert_eq!(targets[1].name, format!("{} 2", targets[0].name));
        assert_ne!(targets[0].kind, "unknown");
    }

    #[test]
    fn kinds_of_file_systems() {
        let [disk, memory, network] = ["ext4", "tmpfs", "nfs4"].map(|kind| target(kind, Path::new("/")));
        assert_eq!([&disk, &memory, &network].map(Target::is_in_memory), [false, true, false]);
        assert_eq!([&disk, &memory, &network].map(Target::is_network), [false, false, true]);
        assert!(target("fuse.sshfs", Path::new("/")).is_network() && network.to_text().contains("on the network"));
    }
}
