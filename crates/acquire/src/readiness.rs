//! Checks before a run, in addition to those of arming itself: free space and speed of the disk, compared with the
//! plan.

use konkordia_config::Config;
use konkordia_config::spool::Spool;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{Compression, Plan};
use konkordia_core::text;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Limits of the write test.
const TEST_BYTES_MAX: u64 = 64 << 20;
const TEST_TIME_MAX: Duration = Duration::from_millis(300);
const BLOCK_BYTES: usize = 4 << 20;
/// Real images shrink by this factor at most. A run that needs an even larger factor is refused; one that needs a
/// smaller factor only gets a note.
const COMPRESSION_MAX: f64 = 20.0;

/// What a run will write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bytes of one image before compression.
    pub image_bytes: u64,
    /// Images of the run, if planned.
    pub images: Option<u64>,
    /// Images per second, if known.
    pub rate_hz: Option<f64>,
    /// The pixels are compressed.
    pub is_compressed: bool,
}

impl Demand {
    /// What a run will write.
    pub fn of(config: &Config, plan: &Plan) -> Self {
        let frames = f64::from(plan.processing.selection.sum_frames.max(1));
        Self {
            image_bytes: plan.image_bytes() as u64,
            images: plan.images(),
            rate_hz: config.metadata.frame_time_s.filter(|s| *s > 0.0).map(|s| 1.0 / (s * frames)),
            is_compressed: plan.compression != Compression::None,
        }
    }

    fn least(&self, bytes: f64) -> f64 {
        if self.is_compressed { bytes / COMPRESSION_MAX } else { bytes }
    }
}

/// Compares the disk behind `directory` with the plan. Mere risks are returned as notes.
///
/// # Errors
/// The run cannot fit, or the disk is too slow for it.
pub fn disk(directory: &Path, demand: &Demand) -> Result<Vec<String>, Failure> {
    let (free, mut notes) = space(directory, demand)?;
    if let Some(wanted) = demand.rate_hz.map(|hz| hz * demand.image_bytes as f64) {
        let measured = write_test(directory, free)?;
        notes.extend(judge_rate(directory, measured, wanted, demand)?);
    }
    Ok(notes)
}

/// Compares the free space of the disk behind `directory`, which comes back with a remark, with the plan. Writes
/// nothing.
///
/// # Errors
/// The run cannot fit.
pub fn space(directory: &Path, demand: &Demand) -> Result<(u64, Vec<String>), Failure> {
    let free = konkordia_sinks::hdf5::free_bytes(directory)
        .map_err(|error| Failure::io("cannot ask for the free space of", directory, &error))?;
    let needed = demand.images.map(|images| images.saturating_mul(demand.image_bytes));
    let note = needed.map_or(Ok(None), |needed| judge_space(directory, free, needed, demand))?;
    Ok((free, note.into_iter().collect()))
}

/// As [`disk`], for files that go through a spool: the spool has to be fast enough, and the target large enough. The
/// last note says for how long the spool absorbs the images.
///
/// # Errors
/// As [`disk`].
pub fn spooled(target: &Path, spool: &Spool, demand: &Demand) -> Result<Vec<String>, Failure> {
    let mut notes = disk(target, &Demand { rate_hz: None, ..*demand })?;
    // Its own folder is made when the spool is opened.
    if spool.directory.is_dir() {
        notes.extend(disk(&spool.directory, &Demand { images: None, ..*demand })?);
    }
    let free = konkordia_sinks::hdf5::free_bytes(target)
        .map_err(|error| Failure::io("cannot ask for the free space of", target, &error))?;
    notes.push(absorbs(spool, demand, write_test(target, free)?));
    Ok(notes)
}

/// For how long a spool absorbs images that arrive faster than the target takes them.
fn absorbs(spool: &Spool, demand: &Demand, target_bytes_per_s: f64) -> String {
    let size = format!("the spool {} takes {}", spool.directory.display(), text::bytes(spool.limit_bytes));
    let rate = |bytes_per_s: f64| format!("{}/s", text::bytes(bytes_per_s as u64));
    let out = format!("the output folder took {} in a short test", rate(target_bytes_per_s));
    let images = |bytes: f64| text::count((bytes / demand.image_bytes.max(1) as f64) as u64);
    let limit = spool.limit_bytes as f64;
    let Some(hz) = demand.rate_hz else {
        let rate = "the rate of the images is not configured, so it is not known for how long it absorbs them";
        return format!("{size}, {} images before compression; {out}; {rate}", images(limit));
    };
    let arrive = hz * demand.image_bytes as f64;
    if arrive <= target_bytes_per_s {
        let pause_s = limit / arrive.max(1.0);
        return format!(
            "{size}; {out}, and images need {} before compression: it bridges pauses up to {pause_s:.0} s",
            rate(arrive)
        );
    }
    let absorbs_s = limit / (arrive - target_bytes_per_s);
    format!(
        "{size}; {out}, and images arrive at {} before compression: it absorbs {absorbs_s:.0} s, {} images; compressed ones longer",
        rate(arrive),
        images(absorbs_s * arrive)
    )
}

fn judge_space(directory: &Path, free: u64, needed: u64, demand: &Demand) -> Result<Option<String>, Failure> {
    if demand.least(needed as f64) > free as f64 {
        let what = format!("the disk of {} has no room for this run", directory.display());
        let why = format!(
            "{} are free; the images take {} {}",
            text::bytes(free),
            text::bytes(needed),
            if demand.is_compressed {
                "before compression, which makes them 20 times smaller at best"
            } else {
                "(they are not compressed)"
            }
        );
        return Err(Failure::new(Exit::Io, what, why, "make room, choose another output.directory, or plan fewer images"));
    }
    Ok(space_note(free, needed))
}

/// Real images compress well, so too little space for uncompressed images is only a remark.
pub fn space_note(free: u64, needed: u64) -> Option<String> {
    (needed > free)
        .then(|| format!("the disk has {} free; all images uncompressed would take {}", text::bytes(free), text::bytes(needed)))
}

fn judge_rate(directory: &Path, measured: f64, wanted: f64, demand: &Demand) -> Result<Option<String>, Failure> {
    let rate = |bytes_per_s: f64| format!("{}/s", text::bytes(bytes_per_s as u64));
    if demand.least(wanted) > measured {
        let what = format!("the disk of {} is too slow for this run", directory.display());
        let why = format!("it wrote {} in a short test; the images arrive at {}", rate(measured), rate(wanted));
        let fix = "choose a faster output.directory, a longer frame time, or compression";
        return Err(Failure::new(Exit::Io, what, why, fix));
    }
    Ok((wanted > measured).then(|| {
        format!("the disk wrote {} in a short test; the images arrive at {} before compression", rate(measured), rate(wanted))
    }))
}

/// A file that is removed when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Measures how many bytes per second reach the disk.
fn write_test(directory: &Path, free: u64) -> Result<f64, Failure> {
    let path = directory.join(format!(".konkordia-write-test-{}-{:?}", std::process::id(), std::thread::current().id()));
    let fail = |error: std::io::Error| Failure::io("cannot write a test file into", directory, &error);
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(&path).map_err(fail)?;
    let _scratch = Scratch(path);
    // Not zeros, which some disks do not write at all.
    let block: Vec<u8> = (0..BLOCK_BYTES as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let (begun, mut written) = (Instant::now(), 0u64);
    let most = TEST_BYTES_MAX.min(free / 4).max(1 << 20);
    while written < most && begun.elapsed() < TEST_TIME_MAX {
        file.write_all(&block).and_then(|()| file.sync_data()).map_err(fail)?;
        written += block.len() as u64;
    }
    Ok(written as f64 / begun.elapsed().as_secs_f64().max(1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_test_measures_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let demand = Demand { image_bytes: 1 << 20, images: Some(2), rate_hz: Some(0.001), is_compressed: false };
        assert_eq!(disk(folder.path(), &demand), Ok(vec![]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let hopeless = Demand { images: Some(1 << 50), ..demand };
        assert!(disk(folder.path(), &hopeless).unwrap_err().what.contains("has no room for this run"));
        let fast = Demand { rate_hz: Some(1e9), ..demand };
        let failed = disk(folder.path(), &fast).unwrap_err();
        assert!(failed.what.contains("too slow") && failed.why.contains("/s"), "{failed}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(disk(Path::new("/no/such"), &demand).is_err());
    }

    #[test]
    fn a_spool_says_for_how_long_it_absorbs() {
        let spool = Spool { directory: "/s".into(), limit_bytes: 10 * GIB, repack_to: None };
        let demand = Demand { image_bytes: GIB / 10, images: None, rate_hz: Some(20.0), is_compressed: true };
        let said = absorbs(&spool, &demand, GIB as f64);
        assert!(said.contains("it absorbs 10 s, 200 images"), "{said}");
        let said = absorbs(&spool, &demand, 3.0 * GIB as f64);
        assert!(said.contains("bridges pauses up to 5 s"), "{said}");
        let said = absorbs(&spool, &Demand { rate_hz: None, ..demand }, GIB as f64);
        assert!(said.contains("100 images") && said.contains("not known"), "{said}");
    }

    #[test]
    fn compression_makes_a_risk_of_what_would_be_certain() {
        let plain = Demand { image_bytes: 1, images: None, rate_hz: None, is_compressed: false };
        let packed = Demand { is_compressed: true, ..plain };
        let at = Path::new("/x");
        assert!(judge_space(at, GIB, 2 * GIB, &plain).is_err());
        assert!(judge_space(at, GIB, 2 * GIB, &packed).unwrap().unwrap().contains("1.0 GiB free"));
        assert!(judge_space(at, GIB, 30 * GIB, &packed).is_err());
        assert_eq!(judge_space(at, GIB, GIB, &plain), Ok(None));
        assert!(judge_rate(at, 1e9, 2e9, &plain).is_err());
        assert!(judge_rate(at, 1e9, 2e9, &packed).unwrap().is_some());
        assert!(judge_rate(at, 1e9, 3e10, &packed).is_err());
    }
}
