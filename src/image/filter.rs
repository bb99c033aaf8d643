//! Interpolation filters.

/// The interpolation filter of a resize.
///
/// All but [`Nearest`](Filter::Nearest) widen when the size is reduced, as in Pillow (and in torchvision with
/// `antialias=True`), so that every pixel contributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest pixel: the one that contains the centre of the new one, or the right or lower of two if
    /// the centre is between them, as in Pillow. Masks are resized alike.
    Nearest,
    /// A triangle, the usual choice for training.
    #[default]
    Bilinear,
    /// Cubic, with a = -0.5.
    Bicubic,
    /// A windowed sinc over three pixels to each side.
    Lanczos,
}

/// For each of `to` pixels of an axis, the nearest of `from` pixels; 0 if there is none.
pub(super) fn nearest_pixels(from: usize, to: u32) -> impl Iterator<Item = usize> {
    let (from, twice) = (from as u64, 2 * u64::from(to.max(1)));
    (0..to).map(move |index| ((2 * u64::from(index) + 1).saturating_mul(from) / twice) as usize)
}
