//! Random crop and flip of small images.

use shardstream::Rng;

/// How far an image is shifted at most, in pixels.
pub const PAD: i32 = 4;

/// What is done to one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Draw {
    /// Pixels to the right; what comes in from outside is black.
    pub dx: i32,
    /// Pixels down.
    pub dy: i32,
    /// Mirror left to right, before the shift.
    pub flip: bool,
}

impl Draw {
    /// A shift by up to [`PAD`] each way, and a flip half of the time.
    pub fn random(rng: &mut Rng) -> Self {
        let mut shift = || rng.below(2 * PAD as u64 + 1) as i32 - PAD;
        let (dx, dy) = (shift(), shift());
        Self { dx, dy, flip: rng.below(2) == 1 }
    }
}

/// The square RGB image `pixels`, of height and width `size`, changed as `draw` says: the usual "pad by
/// four, crop at random, flip". Bytes that are missing in `pixels` are black.
pub fn augment(pixels: &[u8], size: usize, draw: Draw) -> Vec<u8> {
    let mut out = vec![0; size * size * 3];
    for (i, pixel) in out.chunks_exact_mut(3).enumerate() {
        // Where this pixel comes from; outside of the image it stays black.
        let from = |at: usize, shift: i32| {
            let at = at.checked_add_signed(-(shift as isize))?;
            (at < size).then_some(at)
        };
        let (Some(x), Some(y)) = (from(i % size, draw.dx), from(i / size, draw.dy)) else { continue };
        let x = if draw.flip { size - 1 - x } else { x };
        let start = (y * size + x) * 3;
        if let Some(source) = pixels.get(start..start + 3) {
            pixel.copy_from_slice(source);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 3x3 image whose pixels are 1 to 9 in all channels.
    fn grid(values: [u8; 9]) -> Vec<u8> {
        values.iter().flat_map(|v| [*v; 3]).collect()
    }

    const NUMBERS: [u8; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

    #[track_caller]
    fn check(dx: i32, dy: i32, flip: bool, expected: [u8; 9]) {
        assert_eq!(augment(&grid(NUMBERS), 3, Draw { dx, dy, flip }), grid(expected));
    }

    #[test]
    fn nothing_drawn_nothing_changed() {
        check(0, 0, false, NUMBERS);
    }

    #[test]
    fn flips_left_to_right() {
        check(0, 0, true, [3, 2, 1, 6, 5, 4, 9, 8, 7]);
    }

    #[test]
    fn shifts_both_ways_with_black() {
        check(1, 0, false, [0, 1, 2, 0, 4, 5, 0, 7, 8]);
        check(-1, 0, false, [2, 3, 0, 5, 6, 0, 8, 9, 0]);
        check(0, 1, false, [0, 0, 0, 1, 2, 3, 4, 5, 6]);
        check(0, -2, false, [7, 8, 9, 0, 0, 0, 0, 0, 0]);
        check(1, 1, true, [0, 0, 0, 0, 3, 2, 0, 6, 5]);
    }

    #[test]
    fn far_shifts_and_short_input_are_black() {
        check(4, -4, true, [0; 9]);
        assert_eq!(augment(&[], 2, Draw::default()), [0; 12]);
    }

    #[test]
    fn draws_cover_the_range_evenly() {
        let mut rng = Rng::new(3, 0, 0);
        let draws: Vec<_> = (0..2000).map(|_| Draw::random(&mut rng)).collect();
        for shift in -PAD..=PAD {
            assert!(draws.iter().filter(|d| d.dx == shift).count() > 150);
            assert!(draws.iter().filter(|d| d.dy == shift).count() > 150);
        }
        assert!(draws.iter().all(|d| d.dx.abs() <= PAD && d.dy.abs() <= PAD));
        assert!((900..1100).contains(&draws.iter().filter(|d| d.flip).count()));
    }
}
