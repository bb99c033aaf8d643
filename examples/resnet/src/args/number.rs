//! Parsers for numbers within bounds.

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn number(text: &str, range: impl std::ops::RangeBounds<f64>, what: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    // No range contains NaN.
    if range.contains(&number) { Ok(number) } else { Err(format!("{what} is needed")) }
}

pub(super) fn positive(text: &str) -> Result<f32, String> {
    number(text, f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX), "a number above 0")
        .map(|number| number as f32)
}

pub(super) fn not_negative(text: &str) -> Result<f32, String> {
    number(text, 0.0..=f64::from(f32::MAX), "a number of at least 0").map(|number| number as f32)
}

pub(super) fn below_one(text: &str) -> Result<f32, String> {
    number(text, 0.0..0.999_999, "a number from 0 to below 1").map(|number| number as f32)
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    number(text, 0.0..=86_400.0, "a number of seconds, at most a day,")
}

pub(super) fn percentage(text: &str) -> Result<f64, String> {
    number(text, 0.0..=100.0, "a percentage from 0 to 100")
}
