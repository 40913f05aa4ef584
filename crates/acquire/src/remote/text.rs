//! Start and end of a run as bytes, for the writer on another host.
//!
//! The start is the length of the run description (u64, little endian), the description, and the mask (u32 for each
//! pixel). The end is a JSON object.

use konkordia_core::series::RunFileText;
use konkordia_fabric::remote::Counts;
use konkordia_sinks::hdf5::{FileSpec, LedgerRecord, StreamRecord};
use serde_json::{Value, json};

/// The start of a run.
pub fn start(file: &RunFileText) -> Vec<u8> {
    let text = file.description.as_bytes();
    let mask = file.pixel_mask.iter().flat_map(|bits| bits.to_le_bytes());
    (text.len() as u64).to_le_bytes().into_iter().chain(text.iter().copied()).chain(mask).collect()
}

/// The specification of the files of a run, without their folder.
///
/// # Errors
/// It is no start of a run; in words.
pub fn spec_of(start: &[u8]) -> Result<FileSpec, String> {
    let (length, rest) = start.split_first_chunk::<8>().ok_or("the start of the run is too short")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|length| *length <= rest.len());
    let (text, mask) = rest.split_at(length.ok_or("the start of the run is too short")?);
    let mut spec = FileSpec::from_text(std::str::from_utf8(text).map_err(|error| error.to_string())?)?;
    if mask.len() != 4 * spec.pixels() || spec.series.is_some() {
        return Err("the mask of the run does not fit its images".into());
    }
    spec.pixel_mask = mask.chunks_exact(4).map(|four| u32::from_le_bytes(std::array::from_fn(|k| four[k]))).collect();
    Ok(spec)
}

/// The ledger of a run as JSON.
pub fn ledger(record: &LedgerRecord) -> String {
    let rows = |rows: &[(String, u64)]| rows.iter().map(|(name, n)| json!([name, n])).collect::<Vec<_>>();
    let streams = record.streams.iter().map(|stream| json!({ "name": stream.name, "counters": rows(&stream.counters) }));
    json!({
        "totals": rows(&record.totals), "streams": streams.collect::<Vec<_>>(), "balances": record.balances,
        "ended": record.ended, "end_time": record.end_time, "images_expected": record.images_expected,
    })
    .to_string()
}

/// The end of a run: its ledger, and what became of its images on the way.
pub fn end(ledger: Option<&str>, counts: &Counts) -> Vec<u8> {
    let ledger = ledger.and_then(|text| serde_json::from_str::<Value>(text).ok());
    json!({ "ledger": ledger, "skipped": counts.skipped, "lost": counts.lost, "too_long": counts.too_long, "again": counts.again })
        .to_string()
        .into_bytes()
}

/// What the sender says at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// The ledger, if there is one: a run that was broken off has none.
    pub ledger: Option<LedgerRecord>,
    /// Positions that were skipped, lost after a break, too long for a slot, or sent again.
    pub counts: [(&'static str, u64); 4],
}

/// The end of a run.
///
/// # Errors
/// It is none; in words.
pub fn end_of(text: &[u8]) -> Result<End, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let counts = ["skipped", "lost", "too_long", "again"].map(|name| (name, value[name].as_u64().unwrap_or(0)));
    let ledger = &value["ledger"];
    if ledger.is_null() {
        return Ok(End { ledger: None, counts });
    }
    let wrong = || "the ledger of the run cannot be read".to_string();
    let rows = |value: &Value| -> Option<Vec<(String, u64)>> {
        value.as_array()?.iter().map(|row| Some((row[0].as_str()?.to_owned(), row[1].as_u64()?))).collect()
    };
    let streams = ledger["streams"]
        .as_array()
        .ok_or_else(wrong)?
        .iter()
        .map(|stream| Some(StreamRecord { name: stream["name"].as_str()?.into(), counters: rows(&stream["counters"])? }));
    let balances = ledger["balances"].as_array().ok_or_else(wrong)?.iter();
    let record = LedgerRecord {
        totals: rows(&ledger["totals"]).ok_or_else(wrong)?,
        streams: streams.collect::<Option<_>>().ok_or_else(wrong)?,
        balances: balances.map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)?,
        latency: Vec::new(),
        ended: ledger["ended"].as_str().ok_or_else(wrong)?.into(),
        end_time: ledger["end_time"].as_str().map(str::to_owned),
        images_expected: ledger["images_expected"].as_u64().ok_or_else(wrong)?,
    };
    Ok(End { ledger: Some(record), counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_end_are_read_as_they_were_written() {
        let spec = FileSpec { rows: 2, columns: 3, pixel_mask: vec![1, 0, 2, 0, 3, 0], ..FileSpec::default() };
        let file = RunFileText { description: spec.to_text(), pixel_mask: spec.pixel_mask.clone(), ..RunFileText::default() };
        let bytes = start(&file);
        assert_eq!(spec_of(&bytes), Ok(spec));
        for length in 0..bytes.len() {
            assert!(spec_of(&bytes[..length]).is_err(), "{length} bytes");
        }
        let record = LedgerRecord {
            totals: vec![("images_expected".into(), 3)],
            streams: vec![StreamRecord { name: "udp://a".into(), counters: vec![("placed".into(), 4)] }],
            balances: vec!["a = b".into()],
            ended: "finished".into(),
            end_time: Some("2026-01-01".into()),
            images_expected: 3,
            ..LedgerRecord::default()
        };
        let counts = Counts { skipped: 5, lost: 1, ..Counts::default() };
        let found = end_of(&end(Some(&ledger(&record)), &counts)).unwrap();
        assert_eq!((found.ledger, found.counts[0], found.counts[1]), (Some(record), ("skipped", 5), ("lost", 1)));
        assert_eq!(end_of(&end(None, &counts)).unwrap().ledger, None);
        assert!(end_of(b"{\"ledger\": {}}").is_err() && end_of(b"").is_err());
    }
}
