//! Parses sizes and times in options.

use std::time::Duration;

/// Parses a number of bytes, such as `500`, `64k`, `1.5G` or `64MiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size: give a number of bytes, such as 500M, 1.5G or 64MiB");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let unit = unit.trim().to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) => (prefix, 1024.0_f64),
        None => (unit.strip_suffix('b').unwrap_or(&unit), 1000.0_f64),
    };
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(bad()),
    };
    Ok((number * base.powi(power)) as u64)
}

/// Parses a number of seconds, such as `10` or `0.5`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a number of seconds: give one such as 10 or 0.5");
    let number: f64 = text.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number).map_err(|_| bad())
}

/// Parses a number that is not negative, such as a rate or a price.
pub(crate) fn amount(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("{text:?} is not a number: give 0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_finite_numbers_from_0() {
        assert_eq!(["0", "0.09", "1e3"].map(amount), [0.0, 0.09, 1000.0].map(Ok));
        assert!(["", "nan", "-1", "inf", "ten"].iter().all(|text| amount(text).is_err()));
    }

    #[test]
    fn seconds_may_have_fractions() {
        assert_eq!(["0", "0.5", "10"].map(seconds), [0, 500, 10_000].map(|ms| Ok(Duration::from_millis(ms))));
        assert!(["", "nan", "-1", "inf", "1e300", "ten"].iter().all(|text| seconds(text).is_err()));
    }

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        let sizes = ["500", "64k", "1.5G", "64MiB", "2 TB", "7b"].map(size);
        let expected = [500, 64_000, 1_500_000_000, 64 << 20, 2_000_000_000_000, 7].map(Ok);
        assert_eq!(sizes, expected);
        assert!(["", "k", "1x", "1..5", "-1"].iter().all(|text| size(text).is_err()));
    }
}
