//! Interpolation filters.

/// The interpolation filter of a resize.
///
/// All filters except [`Nearest`](Filter::Nearest) are widened when the size is reduced, as in Pillow (and in
/// torchvision with `antialias=True`), so that every pixel contributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest pixel: the old pixel that contains the centre of the new one. A centre exactly between two
    /// pixels is rounded as in Pillow. Label images are always resized like this.
    Nearest,
    /// A triangle filter, the usual choice for training.
    #[default]
    Bilinear,
    /// A cubic filter, with a = -0.5.
    Bicubic,
    /// A windowed sinc over three pixels to each side.
    Lanczos,
}

/// For each of `to` pixels of an axis, the nearest of `from` pixels; 0 if `from` is 0.
///
/// As in Pillow, each centre is computed by adding the step to the previous centre, in `f64`. If a centre is
/// exactly between two pixels, the rounding errors of this sum decide which pixel is chosen.
pub(super) fn nearest_pixels(from: usize, to: u32) -> impl Iterator<Item = usize> {
    let (last, step) = (from.saturating_sub(1), from as f64 / f64::from(to.max(1)));
    let mut at = 0.5 * step;
    (0..to).map(move |_| {
        let nearest = (at as usize).min(last);
        at += step;
        nearest
    })
}
