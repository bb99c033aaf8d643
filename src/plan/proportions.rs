//! Computes the weights of a mixture as whole numbers, from real numbers or from the sizes of the datasets.

use crate::error::{ErrorKind, Result};

/// Maximum sum of the weights. If weights with exactly the wanted proportions have a larger sum, the
/// proportions are rounded to ten-thousandths. The sum of the weights is the length of a window of
/// [`DatasetOrder`](super::DatasetOrder).
const MAX_SUM: u32 = 10_000;

/// Weights for a mix of datasets of these sizes, in proportion to `size^(1 / temperature)`.
///
/// With a temperature of 1, the weights are proportional to the sizes, so that all datasets end an epoch
/// together. Higher temperatures increase the weights of small datasets; with [`f64::INFINITY`], all weights
/// are equal. XLM-R ([Conneau et al. 2020], α = 0.3) and mT5 ([Xue et al. 2021], α = 0.3) sampled languages
/// with such weights, where α is `1 / temperature`.
///
/// The weights are the smallest whole numbers with these proportions, if their sum is at most 10,000.
/// Otherwise the proportions are rounded to ten-thousandths, and each weight is at least 1.
///
/// ```
/// use shardstream::plan::temperature_weights;
///
/// let sizes = [900, 100];
/// assert_eq!(temperature_weights(&sizes, 1.0)?, [9, 1]);
/// assert_eq!(temperature_weights(&sizes, 2.0)?, [3, 1]);
/// assert_eq!(temperature_weights(&sizes, f64::INFINITY)?, [1, 1]);
/// # Ok::<(), shardstream::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] for a temperature that is not above 0, and for a size of 0.
///
/// [Conneau et al. 2020]: https://arxiv.org/abs/1911.02116
/// [Xue et al. 2021]: https://arxiv.org/abs/2010.11934
pub fn temperature_weights(sizes: &[u64], temperature: f64) -> Result<Vec<u32>> {
    check_temperature(temperature)?;
    if let Some(at) = sizes.iter().position(|size| *size == 0) {
        let what = format!("dataset {at} has a size of 0: leave it out, or set its weight yourself");
        return Err(ErrorKind::Config(what).into());
    }
    Ok(whole_weights(&temperature_shares(sizes, temperature)))
}

/// Checks that a temperature is above 0.
pub(crate) fn check_temperature(temperature: f64) -> Result<()> {
    if temperature > 0.0 {
        return Ok(());
    }
    let what = format!("a temperature of {temperature}: use a number above 0, such as 3.3");
    Err(ErrorKind::Config(what).into())
}

/// `size^(1 / temperature)` for each size, as a fraction of the value of the largest size.
pub(crate) fn temperature_shares(sizes: &[u64], temperature: f64) -> Vec<f64> {
    let largest = sizes.iter().max().map_or(1.0, |size| *size as f64);
    let share = |size: &u64| (*size as f64 / largest).powf(temperature.recip()).max(f64::MIN_POSITIVE);
    sizes.iter().map(share).collect()
}

/// Whole weights with the proportions of `shares`. A share of 0 has the weight 0; other weights are at least
/// 1.
pub(crate) fn whole_weights(shares: &[f64]) -> Vec<u32> {
    let sum: f64 = shares.iter().sum();
    let scaled = |total: u32| shares.iter().map(move |share| share / sum * f64::from(total));
    let is_whole = |weight: f64| (weight - weight.round()).abs() < 1e-9 && (weight == 0.0 || weight > 0.5);
    let exact = (1..=MAX_SUM).find(|total| scaled(*total).all(is_whole));
    let weight = |weight: f64| if weight > 0.0 { (weight.round() as u32).max(1) } else { 0 };
    scaled(exact.unwrap_or(MAX_SUM)).map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_are_the_smallest_whole_numbers_with_the_proportions() {
        for (shares, expected) in [
            (&[0.5, 0.3, 0.2][..], &[5, 3, 2][..]),
            (&[1.0 / 3.0, 2.0 / 3.0], &[1, 2]),
            (&[1.0, 1.0, 1.0], &[1, 1, 1]),
            (&[2.5, 0.0, 0.5], &[5, 0, 1]),
            (&[1e-9, 1.0], &[1, 10_000]),
            (&[0.0, 0.0], &[0, 0]),
            (&[], &[]),
        ] {
            assert_eq!(whole_weights(shares), expected, "{shares:?}");
        }
    }

    #[test]
    fn temperatures_and_sizes_are_checked() {
        for temperature in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(temperature_weights(&[1], temperature).unwrap_err().to_string().contains("above 0"));
        }
        assert!(temperature_weights(&[1, 0], 2.0).unwrap_err().to_string().contains("dataset 1"));
        assert_eq!(temperature_weights(&[u64::MAX, 1], 1e-300).unwrap(), [10_000, 1]);
    }

    proptest! {
        #[test]
        fn weights_are_exact_to_a_ten_thousandth(
            sizes in prop::collection::vec(1u64..1 << 40, 1..20), temperature in 1.0..10.0,
        ) {
            let weights = temperature_weights(&sizes, temperature).unwrap();
            let total: u32 = weights.iter().sum();
            let shares = sizes.iter().map(|size| (*size as f64).powf(1.0 / temperature));
            let sum: f64 = shares.clone().sum();
            for (weight, share) in weights.iter().zip(shares) {
                prop_assert!(*weight > 0);
                let error = (f64::from(*weight) / f64::from(total) - share / sum).abs();
                prop_assert!(error < sizes.len() as f64 * 1e-4, "{weights:?} of {sizes:?}");
            }
            let mut sorted: Vec<_> = sizes.iter().zip(&weights).collect();
            sorted.sort_unstable();
            prop_assert!(sorted.is_sorted_by_key(|(_, weight)| **weight), "{sorted:?}");
        }
    }
}
