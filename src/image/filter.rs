//! Filters of a resize.

/// How pixels are made of others when the size changes.
///
/// All but [`Nearest`](Filter::Nearest) widen with the reduction, as those of Pillow do (and torchvision's
/// with `antialias=True`), so that nothing is skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// A triangle: what trainers mostly use.
    #[default]
    Bilinear,
    /// Cubic, with a = -0.5.
    Bicubic,
    /// A windowed sinc over three pixels to each side.
    Lanczos,
}
