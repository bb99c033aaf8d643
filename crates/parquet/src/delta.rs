//! Checks the count of delta-encoded numbers, since a decoder allocates memory for them before it reads them.

use crate::thrift::varint;

/// The largest accepted number of delta-encoded values in a page. Writers end a page after about 1 MiB.
const MAX_VALUES: u64 = 1 << 24;

/// Checks that the series of delta-encoded numbers at the beginning of a page has at most `values` numbers.
/// `values` is the count in the page's header, which includes nulls; the series does not. If `parts` is 2, a
/// second series follows the first, and is checked as well.
pub(crate) fn check(bytes: &[u8], values: u64, parts: usize) -> Result<(), String> {
    let mut bytes = bytes;
    if bytes.is_empty() {
        // There is no series if all values are nulls.
        return Ok(());
    }
    for _ in 0..parts {
        let (count, end) = extent(bytes).ok_or("delta-encoded numbers that are cut or damaged")?;
        if count > values.min(MAX_VALUES) {
            return Err(format!("{count} delta-encoded numbers in a page of {values} values"));
        }
        bytes = bytes.get(end..).unwrap_or_default();
    }
    Ok(())
}

/// Returns the count of the delta-encoded numbers at the beginning of `bytes`, and their length in bytes.
fn extent(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut at = 0;
    let mut next = || {
        let (number, length) = varint(bytes.get(at..)?)?;
        at += length;
        Some(number)
    };
    let (block, minis, count, _first) = (next()?, next()?, next()?, next()?);
    if minis == 0 || block == 0 || !block.is_multiple_of(minis) || !(block / minis).is_multiple_of(32) {
        return None;
    }
    let (each, minis) = (block / minis, usize::try_from(minis).ok()?);
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let (_smallest, length) = varint(bytes.get(at..)?)?;
        at += length;
        let widths = bytes.get(at..at.checked_add(minis)?)?;
        at += minis;
        for width in widths {
            if left == 0 {
                break;
            }
            at = at.checked_add(usize::try_from(each.checked_mul(u64::from(*width))? / 8).ok()?)?;
            left = left.saturating_sub(each);
        }
    }
    Some((count, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_values_of_the_page_are_an_error() {
        // The numbers 1 to 5, in blocks of 128 values with 4 miniblocks each. All differences are 1, so they
        // take no bits.
        let numbers = [128, 1, 4, 5, 2, 2, 0, 0, 0, 0];
        assert_eq!(extent(&numbers), Some((5, 10)));
        assert_eq!(check(&numbers, 5, 1), Ok(()));
        assert!(check(&numbers, 4, 1).is_err());
        assert!(check(&numbers, 5, 2).is_err(), "the second series is missing");
        assert_eq!(check(&[numbers, numbers].concat(), 5, 2), Ok(()));
    }

    #[test]
    fn numbers_that_are_cut_are_an_error() {
        let numbers = [128, 1, 4, 5, 2, 2, 0, 0, 0, 0];
        for end in 1..numbers.len() {
            assert!(check(&numbers[..end], 5, 1).is_err(), "{end}");
        }
        let many = [128, 1, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 2];
        assert!(check(&many, u64::MAX, 1).is_err());
    }
}
