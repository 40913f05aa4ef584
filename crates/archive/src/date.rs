//! Dates in ISO 8601, of UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// The date of a time, as YYYY-MM-DD. Times before 1970 count as 1970.
pub fn date_of(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The time as YYYY-MM-DDThh:mm:ssZ.
pub(crate) fn instant_of(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) % 86_400;
    format!("{}T{:02}:{:02}:{:02}Z", date_of(time), seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Year, month and day of the Gregorian calendar, `days` after 1 January 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the leap day is the last day of a year.
    let since = days + 719_468;
    let (era, day_of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + next, month, day)
}

/// Whether a text is a date of the form YYYY-MM-DD that exists.
pub fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has_form = bytes.len() == 10
        && bytes.iter().enumerate().all(|(n, b)| if n == 4 || n == 7 { *b == b'-' } else { b.is_ascii_digit() });
    if !has_form {
        return false;
    }
    let number = |range: std::ops::Range<usize>| text[range].parse::<u64>().unwrap_or(0);
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    (1..=12).contains(&month) && (1..=days[month as usize - 1]).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_of_known_seconds() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(date_of(at(0)), "1970-01-01");
        assert_eq!(instant_of(at(951_827_696)), "2000-02-29T12:34:56Z");
        assert_eq!(date_of(at(4_102_444_799)), "2099-12-31");
        assert_eq!(date_of(at(4_102_444_800)), "2100-01-01");
        assert_eq!(date_of(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01");
    }

    #[test]
    fn only_days_that_exist_are_dates() {
        for good in ["2026-11-29", "2024-02-29", "2000-02-29", "2036-12-31"] {
            assert!(is_date(good), "{good}");
        }
        for bad in ["2026-02-29", "2100-02-29", "2026-13-01", "2026-00-10", "2026-1-1", "29.11.2026", "2026-11-31", "äää-11"] {
            assert!(!is_date(bad), "{bad}");
        }
    }
}
