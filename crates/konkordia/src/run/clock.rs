//! Wall-clock time as NeXus wants it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now in UTC: 2026-11-21T05:18:21.123Z.
pub fn now() -> String {
    of(SystemTime::now())
}

/// A moment in UTC, in the same form.
pub fn of(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    iso_8601(since.as_secs(), since.subsec_millis())
}

/// Seconds since 1970 in UTC as ISO 8601.
fn iso_8601(seconds: u64, milliseconds: u32) -> String {
    let (days, in_day) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of the year 0 in periods of 400 years, so that the leap day ends a year.
    let shifted = days + 719_468;
    let (era, in_era) = (shifted / 146_097, shifted % 146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Seconds since 1970 of a moment in UTC in this form; fractions are left out. `None` if it is no such text.
pub fn seconds(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |part: &str, separator| -> Option<Vec<u64>> { part.split(separator).map(|n| n.parse().ok()).collect() };
    let (date, time) = (numbers(date, '-')?, numbers(time.split('.').next()?, ':')?);
    let ([year @ 1970..=9999, month @ 1..=12, day @ 1..=31], [hour, minute, second]) = (&date[..], &time[..]) else {
        return None;
    };
    // As in `iso_8601`: years begin in March.
    let (year, month) = if *month > 2 { (*year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199, "2023-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(iso_8601(seconds, 0), text);
            assert_eq!(super::seconds(text), Some(seconds));
        }
        for wrong in ["", "2000-01-01", "2000-13-01T00:00:00Z", "yesterdayT1:2:3Z", "2000-01-01T00:00Z"] {
            assert_eq!(super::seconds(wrong), None, "{wrong}");
        }
    }
}
