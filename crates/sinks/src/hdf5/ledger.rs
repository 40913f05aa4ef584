//! The ledger as a master stores it: how it is read, and the names of its totals that the program looks for.

use hdf5::{File, Group};
use konkordia_core::latency::{QUANTILES, Stage, StageLatency};

use super::bounded::ReadAll;
use super::nexus::{read_number, read_text, read_texts};
use super::spec::{LedgerRecord, StreamRecord};

/// The reason for the end in the ledger of a run that was killed.
pub(crate) const KILLED: &str = "killed";
/// Total of the ledger: images that the run had and that repair could not read.
pub(crate) const NOT_RESCUED: &str = "images_not_rescued";
/// Total of the ledger: images that came and could not be written to the files.
pub(crate) const UNWRITTEN: &str = "images_unwritten";
/// Total of the ledger: images that were planned or announced and are not in the files.
pub(crate) const NOT_RECEIVED: &str = "images_not_received";
/// Total of the ledger: 1 where the pixel mask was found in no file.
pub(crate) const MASK_MISSING: &str = "pixel_mask_missing";
/// Total of the ledger: images in data files that were not there, or could not be read, when the master was written.
pub(crate) const FILE_MISSING: &str = "images_file_missing";
/// Total of the ledger: images that the file could not take because they do not fit it; they count as not written.
pub(crate) const REFUSED: &str = "refused_by_file";

/// The group of the latencies, beside that of the ledger.
pub(crate) const LATENCY: &str = "latency";

/// The ledger stored in a master, if there is one.
pub(crate) fn read_ledger(file: &File) -> Option<LedgerRecord> {
    let ledger = file.group("/entry/konkordia/ledger").ok()?;
    let texts = |name: &str| read_texts(&ledger, name).unwrap_or_default();
    let names = texts("streams/name");
    let mut streams: Vec<StreamRecord> = names.into_iter().map(|name| StreamRecord { name, counters: Vec::new() }).collect();
    if let Ok(group) = ledger.group("streams") {
        for name in group.member_names().unwrap_or_default().into_iter().filter(|name| name != "name") {
            let values = group.dataset(&name).and_then(|d| d.read_all::<u64>()).unwrap_or_default();
            for (stream, value) in streams.iter_mut().zip(values) {
                stream.counters.push((name.clone(), value));
            }
        }
    }
    Some(LedgerRecord {
        totals: totals(file),
        streams,
        balances: texts("balances"),
        latency: file
            .group("/entry/konkordia")
            .and_then(|own| own.group(LATENCY))
            .map_or_else(|_| Vec::new(), |own| latency(&own)),
        ended: read_text(&ledger, "ended")?,
        end_time: read_text(file, "/entry/end_time"),
        images_expected: read_number(&ledger, "images_expected_by_plan").unwrap_or(0.0) as u64,
    })
}

/// The latencies in their group; those of stages that this version does not know are left out.
fn latency(own: &Group) -> Vec<StageLatency> {
    let numbers = |name: &str| own.dataset(name).and_then(|field| field.read_all::<f64>()).unwrap_or_default();
    let images = own.dataset("images").and_then(|field| field.read_all::<u64>()).unwrap_or_default();
    let stages = read_texts(own, "stage").unwrap_or_default();
    let quantiles = QUANTILES.map(|(quantile, _)| numbers(&format!("{quantile}_us")));
    let row = |(n, stage): (usize, &String)| {
        let ns = |us: &f64| (us * 1e3).round() as u64;
        let [p50_ns, p99_ns, p999_ns, max_ns] = quantiles.each_ref().map(|values| values.get(n).map_or(0, ns));
        let (stage, images) = (Stage::from_name(stage)?, *images.get(n)?);
        Some(StageLatency { stage, images, p50_ns, p99_ns, p999_ns, max_ns })
    };
    stages.iter().enumerate().filter_map(row).collect()
}

/// The totals of the ledger, by name; none without a ledger.
pub(crate) fn totals(file: &File) -> Vec<(String, u64)> {
    let Ok(group) = file.group("/entry/konkordia/ledger/totals") else { return Vec::new() };
    let names = group.member_names().unwrap_or_default();
    names.into_iter().filter_map(|name| group.dataset(&name).ok()?.read_scalar::<u64>().ok().map(|v| (name, v))).collect()
}
