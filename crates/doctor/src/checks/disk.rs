//! The folder for files.

use crate::finding::{Finding, Verdict, quoted};
use crate::parse::{Mount, mount_of};
use crate::snapshot::{Disk, Snapshot};
use konkordia_core::text::bytes;

/// Less than this is no room for a run.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Less than this is little room for a run.
const FREE_BYTES: u64 = 20 << 30;
/// Bytes per second of the compressed images of a JUNGFRAU module at 1.1 kHz.
const RATE: f64 = 0.3e9;
/// Memory, which a power cut empties.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// File systems behind a network, or on top of another one.
const REMOTE: [&str; 10] = ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "overlay", "ceph", "beegfs", "fuse.sshfs"];

/// File system, pages, space, writing; all skipped, with the reason, where no folder is named.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    let (kind, pages, space, speed) = (kind(), pages(), space(), speed());
    match &snapshot.disk {
        None => {
            let why = "name the folder with --dir, or give the configuration with --config";
            [kind, pages, space, speed].map(|finding| finding.skip(why)).into()
        }
        Some(Err(reason)) => {
            let kind = kind.is(Verdict::Fail, reason).fix("# make the folder, or name another one");
            vec![kind, pages.skip(reason), space.skip(reason), speed.skip(reason)]
        }
        Some(Ok(disk)) => vec![
            judge_kind(kind.at(&disk.folder), snapshot, disk),
            judge_pages(pages.at(&disk.folder), snapshot, disk),
            judge_space(space.at(&disk.folder), disk),
            judge_speed(speed.at(&disk.folder), disk),
        ],
    }
}

fn kind() -> Finding {
    let why = "a file system over a network stops now and then, and one on top of another is slower; in memory nothing survives a power cut";
    Finding::of("file_system", "a folder on a local disk", why)
}

fn pages() -> Finding {
    let why = "a file in memory gets new pages all the time; with pages of 4 KiB making them takes longer than writing to them";
    Finding::of("memory_pages", "huge pages, if the folder is in memory", why)
}

fn space() -> Finding {
    let why = "a run ends when the disk is full";
    Finding::of("disk_space", format!("at least {} free", bytes(FREE_BYTES)), why)
}

fn speed() -> Finding {
    let why = "what the disk does not take in time waits in the ring, and then whole images find no slot";
    Finding::of("disk_speed", format!("at least {:.1} GB/s for each module (compressed images at 1.1 kHz)", RATE / 1e9), why)
}

fn mount(snapshot: &Snapshot, disk: &Disk) -> Result<Mount, String> {
    let text = snapshot.files.text("proc/self/mountinfo")?;
    mount_of(text, &disk.folder).ok_or_else(|| "its file system is not in /proc/self/mountinfo".into())
}

/// Options of tmpfs with which files get huge pages: those of every size, or those that fill them.
const WITH_HUGE_PAGES: [&str; 2] = ["huge=always", "huge=within_size"];

fn judge_pages(finding: Finding, snapshot: &Snapshot, disk: &Disk) -> Finding {
    let mount = mount(snapshot, disk);
    let point = mount.as_ref().map_or(disk.folder.clone(), |mount| mount.point.clone());
    finding
        .judge(mount, |finding, Mount { kind, options, .. }| {
            let huge = options.split(',').find(|option| option.starts_with("huge="));
            match (kind.as_str(), huge) {
                ("tmpfs", Some(huge)) if WITH_HUGE_PAGES.contains(&huge) => finding.is(Verdict::Pass, huge),
                ("tmpfs", huge) => finding.is(Verdict::Warn, format!("{}: pages of 4 KiB", huge.unwrap_or("huge=never"))),
                (kind, _) => finding.is(Verdict::Pass, format!("{kind}: not in memory")),
            }
        })
        .fix(format!("mount -o remount,huge=within_size {}", quoted(&point)))
}

fn judge_kind(finding: Finding, snapshot: &Snapshot, disk: &Disk) -> Finding {
    finding
        .judge(mount(snapshot, disk), |finding, Mount { point, kind, source, .. }| {
            let is_odd = IN_MEMORY.contains(&kind.as_str()) || REMOTE.contains(&kind.as_str());
            let measured = format!("{kind} on {point} ({source}), {} in all", bytes(disk.total_bytes));
            finding.is(if is_odd { Verdict::Warn } else { Verdict::Pass }, measured)
        })
        .fix("# write to a local disk (NVMe), and copy after the run")
}

fn judge_space(finding: Finding, disk: &Disk) -> Finding {
    let verdict = match disk.free_bytes {
        free if free < FREE_BYTES_MIN => Verdict::Fail,
        free if free < FREE_BYTES => Verdict::Warn,
        _ => Verdict::Pass,
    };
    finding
        .is(verdict, format!("{} free of {}", bytes(disk.free_bytes), bytes(disk.total_bytes)))
        .fix("# remove files, or choose another folder")
}

fn judge_speed(finding: Finding, disk: &Disk) -> Finding {
    finding
        .judge(disk.written.clone(), |finding, written| {
            let how = if written.is_direct { "past the page cache" } else { "through the page cache" };
            let measured = format!(
                "{:.2} GB/s ({} in {:.1} s, {how}; slowest write of 8 MiB {:.0} ms)",
                written.rate() / 1e9,
                bytes(written.bytes),
                written.seconds,
                written.slowest_ms
            );
            finding.is(if written.rate() < RATE { Verdict::Warn } else { Verdict::Pass }, measured)
        })
        .fix("# a faster disk, several disks as one (RAID 0), or better compression; `konkordia bench hdf5` measures with real files")
}
