//! Clock of the machine, and the filters of HDF5.

use crate::finding::{Finding, Verdict};
use crate::snapshot::{Clock, Snapshot};

const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0";
/// Clocks that cost a visit to a chip for each reading.
const SLOW_CLOCKS: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];
/// A clock that may be wrong by more than this does not go with time stamps of other machines.
const CLOCK_ERROR_US: u64 = 100_000;

/// Clock source, synchronisation, filters.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![clock_source(snapshot), synchronised(snapshot), plugins(snapshot)]
}

fn clock_source(snapshot: &Snapshot) -> Finding {
    let there = snapshot.files.text(&format!("{CLOCKS}/available_clocksource")).unwrap_or_default().trim();
    let why = "the time is read for every batch of packets; a slow clock costs as much as the packets";
    Finding::of("clock_source", "tsc, or the clock of the virtual machine", why)
        .judge(snapshot.files.text(&format!("{CLOCKS}/current_clocksource")), |finding, name| {
            let name = name.trim();
            let verdict = if SLOW_CLOCKS.contains(&name) { Verdict::Warn } else { Verdict::Pass };
            finding.is(verdict, format!("{name} (there are: {there})"))
        })
        .fix("# `dmesg | grep -i tsc` says why the kernel refused tsc; the parameter tsc=reliable of the kernel trusts it again")
}

fn synchronised(snapshot: &Snapshot) -> Finding {
    let why = "start and end of a run are written into the file, and latencies are compared with times of other machines";
    Finding::of("clock", "synchronised (chrony, PTP)", why)
        .judge(snapshot.clock.clone(), |finding, Clock { is_synchronised, error_us }| {
            let is_right = is_synchronised && error_us <= CLOCK_ERROR_US;
            let state =
                if is_synchronised { format!("synchronised, wrong by at most {error_us} us") } else { "not synchronised".into() };
            finding.is(if is_right { Verdict::Pass } else { Verdict::Warn }, state)
        })
        .fix("# start chrony, or ptp4l with phc2sys where the network has PTP")
}

fn plugins(snapshot: &Snapshot) -> Finding {
    let plugins = &snapshot.plugins;
    let has = |part: &str| plugins.files.iter().any(|name| name.contains(part));
    let why = "h5dump, DIALS and other programs need the filter to read compressed images; Konkordia has its own";
    let of = if plugins.is_set { "HDF5_PLUGIN_PATH" } else { "HDF5_PLUGIN_PATH is not set" };
    let (verdict, found) = match has("bshuf") || has("bitshuffle") {
        true => (Verdict::Pass, "bitshuffle is there"),
        false => (Verdict::Warn, "no bitshuffle"),
    };
    Finding::of("hdf5_plugins", "a folder with the filter bitshuffle", why)
        .is(verdict, format!("{} ({of}): {found}", plugins.path))
        .fix("# pip install hdf5plugin; export HDF5_PLUGIN_PATH=$(python3 -c 'import hdf5plugin; print(hdf5plugin.PLUGIN_PATH)')")
}
