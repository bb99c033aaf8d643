//! Interpolation filters.

/// The interpolation filter of a resize.
///
/// All but [`Nearest`](Filter::Nearest) widen when the size is reduced, as in Pillow (and in torchvision with
/// `antialias=True`), so that every pixel contributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// A triangle, the usual choice for training.
    #[default]
    Bilinear,
    /// Cubic, with a = -0.5.
    Bicubic,
    /// A windowed sinc over three pixels to each side.
    Lanczos,
}
