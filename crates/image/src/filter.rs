//! Interpolation filters.

/// The interpolation filter of a resize.
///
/// All but [`Nearest`](Filter::Nearest) widen when the size is reduced, as in Pillow (and in torchvision with
/// `antialias=True`), so that every pixel contributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest pixel: the one that contains the centre of the new one. If the centre is between two, the
    /// one that Pillow takes. Masks are resized alike.
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
///
/// Pillow adds up the positions in `f64`, which decides where a centre is between two pixels.
pub(super) fn nearest_pixels(from: usize, to: u32) -> impl Iterator<Item = usize> {
    let (last, step) = (from.saturating_sub(1), from as f64 / f64::from(to.max(1)));
    let mut at = 0.5 * step;
    (0..to).map(move |_| {
        let nearest = (at as usize).min(last);
        at += step;
        nearest
    })
}
