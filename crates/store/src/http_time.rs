//! Parses the times that servers send.

use std::time::{Duration, SystemTime};

/// Parses a date of HTTP, such as `Sun, 06 Nov 1994 08:49:37 GMT`. The two older formats are not supported.
pub(super) fn parse_date(text: &str) -> Option<SystemTime> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let (_, text) = text.split_once(", ")?;
    let mut parts = text.split([' ', ':']);
    let number = |parts: &mut std::str::Split<'_, _>| parts.next()?.parse::<u64>().ok();
    let day = number(&mut parts).filter(|day| (1..=31).contains(day))?;
    let month = parts.next().filter(|name| name.len() == 3).and_then(|name| MONTHS.find(name))?;
    let month = (month % 3 == 0).then_some(month as u64 / 3 + 1)?;
    let year = number(&mut parts).filter(|year| (1970..=9999).contains(year))?;
    let [hours, minutes, seconds] = [number(&mut parts)?, number(&mut parts)?, number(&mut parts)?];
    if parts.next() != Some("GMT") || parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    epoch_time([year, month, day], [hours, minutes, seconds])
}

/// Converts a date and a time of day, in UTC and the Gregorian calendar.
fn epoch_time([year, month, day]: [u64; 3], [hours, minutes, seconds]: [u64; 3]) -> Option<SystemTime> {
    // Here a year begins in March, so that a leap day is its last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // 1 January 1970 is 719,468 days after 1 March of the year 0.
    let seconds = (days.checked_sub(719_468)? * 24 + hours) * 3600 + minutes * 60 + seconds;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Parses an ISO 8601 time in UTC, with separators or without them, such as `20261126T120000Z`.
#[cfg(feature = "http")]
pub(super) fn parse_iso_time(text: &str) -> Option<SystemTime> {
    let digits: String = text.strip_suffix('Z')?.chars().filter(|c| !matches!(c, '-' | ':' | 'T')).collect();
    let digits = digits.split('.').next().filter(|digits| digits.len() == 14 && digits.is_ascii())?;
    let number = |at: usize, length: usize| digits[at..at + length].parse::<u64>().ok();
    let date = [number(0, 4)?, number(4, 2)?, number(6, 2)?];
    let time = [number(8, 2)?, number(10, 2)?, number(12, 2)?];
    let is_valid = (1970..=9999).contains(&date[0])
        && (1..=12).contains(&date[1])
        && (1..=31).contains(&date[2])
        && time[0] < 24
        && time[1] < 60
        && time[2] <= 60;
    is_valid.then(|| epoch_time(date, time))?
}

#[cfg(test)]
#[cfg(feature = "http")]
mod tests {
    use super::*;

    #[test]
    fn iso_times_are_parsed_with_and_without_separators() {
        let expected = parse_date("Sun, 06 Nov 1994 08:49:37 GMT");
        for text in ["19941106T084937Z", "1994-11-06T08:49:37Z", "1994-11-06T08:49:37.000Z"] {
            assert_eq!(parse_iso_time(text), expected, "{text}");
        }
        for text in ["", "19941106T084937", "19941306T084937Z", "1994110T6084937ZZ", "é9941106T084937Z"] {
            assert_eq!(parse_iso_time(text), None, "{text}");
        }
    }
}
