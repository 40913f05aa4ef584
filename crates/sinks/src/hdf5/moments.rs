//! Moments as NXmx has them, ISO 8601: sums with seconds, and the offset from UTC.

/// A moment taken apart: milliseconds since 1970 by its own clock, and the offset as it stands there ("Z", "+01:00", or nothing).
fn parts(text: &str) -> Option<(i64, &str)> {
    let (date, rest) = (text.get(..10)?, text.get(11..)?);
    let (clock, rest) = rest.split_at_checked(8)?;
    let fraction_end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
    let (fraction, offset) = rest.split_at(fraction_end);
    let list = |text: &str, between: char| text.split(between).map(|n| n.parse().ok()).collect::<Option<Vec<i64>>>();
    let (date, clock) = (list(date, '-')?, list(clock, ':')?);
    let ([year, month @ 1..=12, day @ 1..=31], [hour @ 0..=23, minute @ 0..=59, second @ 0..=60]) = (&date[..], &clock[..])
    else {
        return None;
    };
    let milliseconds = if fraction.is_empty() { 0.0 } else { format!("0{fraction}").parse::<f64>().ok()? * 1000.0 };
    // Years begin in March, so that the leap day ends one.
    let (y, m) = if *month > 2 { (*year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some((seconds * 1000 + milliseconds as i64, offset))
}

/// The moment so many seconds later, by the same clock; `None` if the text is no moment.
pub(crate) fn after(text: &str, seconds: f64) -> Option<String> {
    let (start, offset) = parts(text)?;
    let add = seconds * 1000.0;
    // Beyond a century something is wrong.
    if !(0.0..=3.2e12).contains(&add) {
        return None;
    }
    let all = start + add.round() as i64;
    let (days, in_day) = (all.div_euclid(86_400_000), all.rem_euclid(86_400_000));
    let shifted = days + 719_468;
    let (era, in_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (second, ms) = (in_day / 1000, in_day % 1000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}{offset}"))
}

/// The offset from UTC, "+00:00" for "Z"; `None` if the moment says none.
pub(crate) fn time_zone(text: &str) -> Option<String> {
    match parts(text)?.1 {
        "Z" => Some("+00:00".into()),
        offset if offset.len() == 6 && offset.starts_with(['+', '-']) => Some(offset.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
