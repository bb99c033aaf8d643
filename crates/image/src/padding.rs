//! What the border of a padded picture shows.

/// What the border of a padded picture shows. The variants are named like the values of torchvision's
/// `padding_mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PaddingMode {
    /// A colour.
    #[default]
    Constant,
    /// The pixels at the edge.
    Edge,
    /// The picture mirrored at its edge, without repeating the pixels of the edge: `3 2 | 1 2 3 | 2 1`. A
    /// border that is wider than the picture is mirrored again at the other edge, as in NumPy's `pad`.
    Reflect,
    /// As [`Reflect`](PaddingMode::Reflect), but repeating the pixels of the edge: `2 1 | 1 2 3 | 3 2`.
    Symmetric,
}

impl PaddingMode {
    /// For each of the `to` pixels of a padded axis, the number of the pixel that it shows; `None` if it
    /// shows the fill colour. The picture's `length` pixels begin at pixel `start` of the padded axis.
    pub(crate) fn sources(self, start: u32, length: u32, to: u32) -> impl Iterator<Item = Option<usize>> {
        (0..i64::from(to)).map(move |at| self.source(at - i64::from(start), i64::from(length)))
    }

    /// The number of the pixel that position `at` shows; position 0 is the first of the picture's `length`
    /// pixels.
    pub(crate) fn source(self, at: i64, length: i64) -> Option<usize> {
        let (mirrored, last) = (|at: i64, period: i64| at.rem_euclid(period), length - 1);
        let pixel = match self {
            _ if length <= 0 => return None,
            _ if (0..length).contains(&at) => at,
            PaddingMode::Constant => return None,
            PaddingMode::Edge => at.clamp(0, last),
            PaddingMode::Reflect if last == 0 => 0,
            PaddingMode::Reflect => last - (mirrored(at, 2 * last) - last).abs(),
            PaddingMode::Symmetric => {
                let at = mirrored(at, 2 * length);
                at.min(2 * length - 1 - at)
            }
        };
        Some(pixel as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_are_those_of_numpy() {
        let shown = |mode: PaddingMode, length: u32| -> Vec<Option<usize>> {
            mode.sources(5, length, length + 9).collect()
        };
        let some = |pixels: &[usize]| pixels.iter().copied().map(Some).collect::<Vec<_>>();
        let edge = [0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2];
        assert_eq!(shown(PaddingMode::Edge, 3), some(&edge));
        assert_eq!(shown(PaddingMode::Reflect, 3), some(&[1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]));
        assert_eq!(shown(PaddingMode::Symmetric, 3), some(&[1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0]));
        assert_eq!(shown(PaddingMode::Reflect, 1), [Some(0); 10]);
        assert_eq!(shown(PaddingMode::Constant, 1).iter().filter(|it| it.is_some()).count(), 1);
        assert_eq!(shown(PaddingMode::Symmetric, 0), [None; 9]);
    }
}
