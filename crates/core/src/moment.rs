//! Dates and times as ISO 8601: reads what detectors and other programs write, adds seconds, finds the offset from UTC.

use time::format_description::BorrowedFormatItem as Item;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};

/// The dates that headers have: of ISO 8601, of Pilatus (`2007/Sep/22 21:15:01.229`), of TIFF (`2019:09:11 13:20:28`),
/// of `std::ctime` (`Tue Nov 17 10:00:00 2026`).
const FORMATS: [&[Item<'_>]; 4] = [
    format_description!(version = 2, "[year]-[month]-[day][first [T][ ]][hour]:[minute]:[second][optional [.[subsecond]]]"),
    format_description!(
        version = 2,
        "[year]/[month repr:short case_sensitive:false]/[day] [hour]:[minute]:[second][optional [.[subsecond]]]"
    ),
    format_description!(version = 2, "[year]:[month]:[day] [hour]:[minute]:[second][optional [.[subsecond]]]"),
    format_description!(
        version = 2,
        "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] [year]"
    ),
];
const SECONDS: &[Item<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
const MILLISECONDS: &[Item<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]");
const OFFSET: &[Item<'_>] = format_description!("[offset_hour sign:mandatory]:[offset_minute]");

/// The date and time by its own clock, and the offset as written: "Z", "+01:00", or nothing.
fn parts(text: &str) -> Option<(PrimitiveDateTime, &str)> {
    let clock_end = match text.len().checked_sub(6).filter(|&at| text.is_char_boundary(at)) {
        Some(at) if UtcOffset::parse(&text[at..], OFFSET).is_ok_and(|offset| offset.whole_hours().abs() <= 14) => at,
        _ => text.strip_suffix('Z').map_or(text.len(), str::len),
    };
    let (clock, offset) = text.split_at(clock_end);
    FORMATS.iter().find_map(|format| PrimitiveDateTime::parse(clock, format).ok()).map(|moment| (moment, offset))
}

/// A date from a header as ISO 8601, with its fraction of seconds and its offset. `None` for any other text, and for
/// dates before 1971, which come from a clock that was never set.
pub fn iso_8601(text: &str) -> Option<String> {
    let text = text.trim();
    let (moment, offset) = parts(text)?;
    let fraction = text.rsplit_once('.').map(|(_, rest)| &rest[..rest.len() - offset.len()]);
    let seconds = moment.format(SECONDS).ok().filter(|_| moment.year() > 1970)?;
    Some(format!("{seconds}{}{}{offset}", if fraction.is_some() { "." } else { "" }, fraction.unwrap_or("")))
}

/// The moment `seconds` later, by the same clock; `None` if the text is no date, or if `seconds` is not between 0 and a
/// century.
pub fn after(text: &str, seconds: f64) -> Option<String> {
    let (moment, offset) = parts(text)?;
    if !(0.0..=3.2e9).contains(&seconds) {
        return None;
    }
    let moment = moment.checked_add(time::Duration::milliseconds((seconds * 1000.0).round() as i64))?;
    Some(moment.format(MILLISECONDS).ok()? + offset)
}

/// The offset from UTC, "+00:00" for "Z"; `None` if the text has no offset.
pub fn time_zone(text: &str) -> Option<String> {
    match parts(text)?.1 {
        "Z" => Some("+00:00".into()),
        offset => (!offset.is_empty()).then(|| offset.into()),
    }
}

/// The moment `milliseconds` after 1970 in UTC: `2026-11-21T05:18:21.123Z`.
pub fn of_unix_ms(milliseconds: u64) -> String {
    let nanoseconds = i128::from(milliseconds) * 1_000_000;
    let moment = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    moment.format(MILLISECONDS).unwrap_or_default() + "Z"
}

/// Seconds from 1970 to a moment in UTC (`2026-11-21T05:18:21.123Z`); fractions are left out. `None` for any other
/// text, and before 1970.
pub fn unix_s(text: &str) -> Option<u64> {
    let (moment, offset) = parts(text)?;
    u64::try_from(moment.assume_utc().unix_timestamp()).ok().filter(|_| offset == "Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_become_iso_8601() {
        for (text, wanted) in [
            ("2019-09-11T13:20:28.989", Some("2019-09-11T13:20:28.989")),
            ("2019-09-11 13:20:28", Some("2019-09-11T13:20:28")),
            ("2007/Sep/22 21:15:01.229", Some("2007-09-22T21:15:01.229")),
            ("2007/SEP/22 21:15:01.229000001", Some("2007-09-22T21:15:01.229000001")),
            ("2019:09:11 13:20:28", Some("2019-09-11T13:20:28")),
            ("2024-03-07T14:43:31.193+01:00", Some("2024-03-07T14:43:31.193+01:00")),
            ("2024-03-07T14:43:31Z", Some("2024-03-07T14:43:31Z")),
            ("2024-03-07T14:43:31-08:00", Some("2024-03-07T14:43:31-08:00")),
            ("Tue Nov 17 10:00:00 2026", Some("2026-11-17T10:00:00")),
            ("Sat Jan  3 09:08:07 2026\n", Some("2026-01-03T09:08:07")),
            ("Tue Nov 17 10:00 2026", None),
            ("Tue Nov 17 24:00:00 2026", None),
            ("Tue Nov 32 10:00:00 2026", None),
            ("Thu Jan  1 00:00:00 1970", None),
            ("2019-13-11T13:20:28", None),
            ("2019-02-30T13:20:28", None),
            ("2019-09-11T25:20:28", None),
            ("2019-09-11T13:20:28.", None),
            ("2019-09-11T13:20:28+25:00", None),
            ("2019-09-11T13:20:28 CET", None),
            ("11.9.2019 13:20", None),
            ("unknown", None),
            ("", None),
            ("ä-ä-ä ääää", None),
        ] {
            assert_eq!(iso_8601(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn seconds_are_added_by_the_clock_of_the_moment() {
        for (text, seconds, wanted) in [
            ("2026-12-31T23:59:59.500Z", 0.75, Some("2027-01-01T00:00:00.250Z")),
            ("2024-02-28T12:00:00+01:00", 86_400.0, Some("2024-02-29T12:00:00.000+01:00")),
            ("2019-09-11T13:20:28.989", 200.0, Some("2019-09-11T13:23:48.989")),
            ("1970-01-01T00:00:00Z", 0.0, Some("1970-01-01T00:00:00.000Z")),
            ("yesterday", 1.0, None),
            ("2026-13-01T00:00:00Z", 1.0, None),
            ("2026-11-21T00:00:00Z", f64::NAN, None),
            ("2026-11-21T00:00:00Z", -1.0, None),
        ] {
            assert_eq!(after(text, seconds).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn the_time_zone_is_what_the_moment_says() {
        assert_eq!(time_zone("2026-11-21T00:00:00.1Z").as_deref(), Some("+00:00"));
        assert_eq!(time_zone("2026-11-21T00:00:00-08:00").as_deref(), Some("-08:00"));
        assert_eq!(time_zone("2026-11-21T00:00:00"), None);
        assert_eq!(time_zone("ääääääääääää"), None);
    }

    #[test]
    fn moments_in_utc_are_right_around_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199, "2023-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(of_unix_ms(seconds * 1000), text);
            assert_eq!(unix_s(text), Some(seconds));
        }
        assert_eq!(of_unix_ms(1_704_067_199_042), "2023-12-31T23:59:59.042Z");
        assert_eq!(unix_s("2000-02-29T00:00:00.9Z"), Some(951_782_400));
        for wrong in
            ["", "2000-01-01", "2000-13-01T00:00:00Z", "yesterdayT1:2:3Z", "2000-01-01T00:00Z", "2000-01-01T00:00:00+01:00"]
        {
            assert_eq!(unix_s(wrong), None, "{wrong}");
        }
    }
}
