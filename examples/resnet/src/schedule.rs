//! The learning rate.

/// Linear warm-up, then a half cosine down to zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The highest rate.
    pub peak: f32,
    /// Steps until the warm-up is over.
    pub warmup: u64,
}

impl Schedule {
    /// The rate of step number `step` (from 0) of the whole training, of which the share `progress`
    /// (0 to 1) is done. Progress is asked for rather than computed from steps because a stream need not
    /// know its length.
    pub fn at(&self, step: u64, progress: f64) -> f32 {
        let warm = ((step + 1) as f64 / self.warmup.max(1) as f64).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress.clamp(0.0, 1.0)).cos());
        (f64::from(self.peak) * warm * cosine) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_then_falls_to_zero() {
        let s = Schedule { peak: 0.2, warmup: 10 };
        let rates: Vec<f32> = (0..100).map(|i| s.at(i, i as f64 / 100.0)).collect();
        assert!((rates[0] - 0.02).abs() < 1e-6);
        assert!(rates[..10].is_sorted());
        assert!(rates[10..].is_sorted_by(|a, b| a >= b));
        assert!((s.at(50, 0.5) - 0.1).abs() < 1e-6);
        assert!(s.at(100, 1.0).abs() < 1e-6);
    }

    #[test]
    fn odd_input_stays_in_range() {
        let s = Schedule { peak: 0.2, warmup: 0 };
        assert!((s.at(0, 0.0) - 0.2).abs() < 1e-6);
        assert!((s.at(0, -1.0) - 0.2).abs() < 1e-6);
        assert!(s.at(0, 7.0).abs() < 1e-6);
    }
}
