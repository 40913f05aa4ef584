//! Dates of detectors as ISO 8601.

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The moment of a header as ISO 8601, without an offset where the header has none: `2019-09-11T13:20:28.989`, `2007/Sep/22 21:15:01.229`,
/// `2019:09:11 13:20:28` (TIFF). `None` for anything else.
pub fn iso(text: &str) -> Option<String> {
    let text = text.trim();
    let (date, time) = text.split_once(['T', ' '])?;
    let mut parts = date.split(['-', '/', ':']);
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let named = MONTHS.iter().position(|name| month.eq_ignore_ascii_case(name)).map(|n| n as u32 + 1);
    let month = named.or_else(|| whole(month, 2, 1..=12))?;
    let (year, day) = (whole(year, 4, 1900..=9999)?, whole(day, 2, 1..=31)?);
    if parts.next().is_some() || !is_time(time) {
        return None;
    }
    Some(format!("{year:04}-{month:02}-{day:02}T{time}"))
}

fn whole(text: &str, digits: usize, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    let is_number = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && range.contains(number))
}

/// `HH:MM:SS`, with a fraction and an offset (`Z`, `+01:00`) or without.
fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = parts[..] else { return false };
    let is_clock = whole(hour, 2, 0..=23).is_some() && whole(minute, 2, 0..=59).is_some() && whole(second, 2, 0..=60).is_some();
    let digits = rest.strip_prefix('.').map_or(rest, |fraction| fraction.trim_start_matches(|c: char| c.is_ascii_digit()));
    let offset = match digits.strip_prefix(['+', '-']) {
        Some(offset) => {
            offset.split_once(':').is_some_and(|(h, m)| whole(h, 2, 0..=14).is_some() && whole(m, 2, 0..=59).is_some())
        }
        None => digits.is_empty() || digits == "Z",
    };
    is_clock && offset && !rest.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_become_iso_8601() {
        for (text, wanted) in [
            ("2019-09-11T13:20:28.989", Some("2019-09-11T13:20:28.989")),
            ("2007/Sep/22 21:15:01.229", Some("2007-09-22T21:15:01.229")),
            ("2019:09:11 13:20:28", Some("2019-09-11T13:20:28")),
            ("2024-03-07T14:43:31.193+01:00", Some("2024-03-07T14:43:31.193+01:00")),
            ("2024-03-07T14:43:31Z", Some("2024-03-07T14:43:31Z")),
            ("2019-13-11T13:20:28", None),
            ("2019-09-11T25:20:28", None),
            ("2019-09-11T13:20:28.", None),
            ("2019-09-11T13:20:28 CET", None),
            ("11.9.2019 13:20", None),
            ("", None),
            ("ä-ä-ä ääää", None),
        ] {
            assert_eq!(iso(text).as_deref(), wanted, "{text}");
        }
    }
}
