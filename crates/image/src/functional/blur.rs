//! Gaussian blur.

use crate::{Frame, ImageError, PaddingMode, Size};

/// Blurs with a Gaussian kernel of this size, `(height, width)`, and this standard deviation in pixels.
/// Beyond its edges the picture is mirrored ([`PaddingMode::Reflect`]). The values differ by at most 1 from
/// the values of torchvision's `gaussian_blur`.
///
/// The kernel's sides should be odd, and at most 65,535; the last row or column of an even kernel has no
/// weight. A deviation that is not positive, or NaN, leaves the picture unchanged.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn gaussian_blur(
    frame: &mut Frame<'_>,
    kernel_size: impl Into<Size>,
    sigma: f64,
) -> Result<(), ImageError> {
    let (kernel, size, channels) = (kernel_size.into(), frame.size(), frame.channels());
    let [down, across] = [kernel.height, kernel.width].map(|side| half_kernel(side, sigma));
    frame.redraw_as(None, size, |from, to| blur(from, size, channels, (&down, &across), to))
}

/// The weights of a kernel's central pixel and of the pixels to one side of it.
fn half_kernel(side: u32, sigma: f64) -> Vec<f32> {
    let reach = if sigma > 0.0 { (side.clamp(1, 65_535) - 1) / 2 } else { 0 };
    // Weights beyond 15 standard deviations are 0 in `f32`: they are left out to save time.
    let reach = f64::from(reach).min((sigma * 15.0).ceil()).max(0.0) as u32;
    let weight = |at: u32| (-0.5 * (f64::from(at) / sigma).powi(2)).exp();
    let weights: Vec<f64> = (0..=reach).map(|at| if at == 0 { 1.0 } else { weight(at) }).collect();
    let sum = weights[0] + 2.0 * weights[1..].iter().sum::<f64>();
    weights.into_iter().map(|weight| (weight / sum) as f32).collect()
}

/// Blurs along the columns and then along the rows, one row of the result after the other.
fn blur(from: &[u8], size: Size, channels: usize, (down, across): (&[f32], &[f32]), to: &mut [u8]) {
    let (width, stride) = (size.width as usize, size.width as usize * channels);
    let edge = across.len() - 1;
    let row_at = |y: i64| {
        let row = PaddingMode::Reflect.source(y, i64::from(size.height)).unwrap_or_default();
        &from[row * stride..][..stride]
    };
    let pixel_at: Vec<usize> =
        PaddingMode::Reflect.sources(edge as u32, size.width, (width + 2 * edge) as u32).flatten().collect();
    let mut column = vec![0_f32; stride];
    let mut padded = vec![0_f32; (width + 2 * edge) * channels];
    let mut sums = vec![0_f32; stride];
    for (y, to) in to.chunks_exact_mut(stride.max(1)).enumerate() {
        let y = y as i64;
        column.iter_mut().zip(row_at(y)).for_each(|(sum, value)| *sum = f32::from(*value) * down[0]);
        for (at, weight) in (1..).zip(&down[1..]) {
            for ((sum, above), below) in column.iter_mut().zip(row_at(y - at)).zip(row_at(y + at)) {
                *sum += f32::from(u16::from(*above) + u16::from(*below)) * weight;
            }
        }
        for (to, from) in padded.chunks_exact_mut(channels).zip(&pixel_at) {
            to.copy_from_slice(&column[from * channels..][..channels]);
        }
        let shifted = |at: usize| &padded[at * channels..][..stride];
        sums.iter_mut().zip(shifted(edge)).for_each(|(sum, value)| *sum = value * across[0]);
        for (at, weight) in across.iter().enumerate().skip(1) {
            for ((sum, before), behind) in sums.iter_mut().zip(shifted(edge - at)).zip(shifted(edge + at)) {
                *sum += (before + behind) * weight;
            }
        }
        to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = sum.round_ties_even() as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_of_a_kernel_add_up_to_1_and_omit_zeros() {
        for (side, sigma, weights) in
            [(1, 2.0, 1), (3, 0.1, 2), (23, 2.0, 12), (u32::MAX, 2.0, 31), (9, 0.0, 1)]
        {
            let kernel = half_kernel(side, sigma);
            assert_eq!(kernel.len(), weights, "{side} {sigma}");
            let sum = kernel[0] + 2.0 * kernel[1..].iter().sum::<f32>();
            assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        }
        assert_eq!(half_kernel(9, f64::NAN), [1.0]);
        assert_eq!(half_kernel(0, f64::INFINITY).len(), 1);
    }

    #[test]
    fn a_picture_of_one_colour_stays_unchanged() {
        let mut to = [0; 12];
        let kernel = half_kernel(99, 30.0);
        blur(&[200; 12], Size { height: 4, width: 1 }, 3, (&kernel, &kernel), &mut to);
        assert_eq!(to, [200; 12]);
    }
}
