//! The learning rate.

use std::fmt;
use std::str::FromStr;

/// Linear warm-up in steps, times a decay in epochs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The highest rate.
    pub peak: f32,
    /// Steps until the warm-up is over.
    pub warmup: u64,
    /// How the rate falls.
    pub decay: Decay,
}

/// How a rate falls with the epochs; as text `cosine`, `step:20:5`, `exponential:20:5` or `constant`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Decay {
    /// A half cosine, down to zero at the end of the last epoch.
    #[default]
    Cosine,
    /// Divided by `divisor` each time `every` epochs are over.
    Step {
        /// Number of epochs; above zero, and may be a fraction.
        every: f64,
        /// At least 1.
        divisor: f64,
    },
    /// The smooth form of [`Step`](Self::Step): it meets the same rates after every `every` epochs, and falls
    /// evenly in between.
    Exponential {
        /// Number of epochs; above zero, and may be a fraction.
        every: f64,
        /// At least 1.
        divisor: f64,
    },
    /// The rate does not fall.
    Constant,
}

impl Schedule {
    /// The rate of step `step` of the whole training, counted from 0, when `epoch` of `epochs` epochs are
    /// done (1.5: half of the second). Epochs are a parameter, and not computed from the steps, because the
    /// length of a stream may be unknown.
    pub fn at(&self, step: u64, epoch: f64, epochs: f64) -> f32 {
        let warm = ((step + 1) as f64 / self.warmup.max(1) as f64).min(1.0);
        (f64::from(self.peak) * warm * self.decay.at(epoch, epochs)) as f32
    }
}

impl Decay {
    /// The remaining share of the rate, 0 to 1.
    fn at(&self, epoch: f64, epochs: f64) -> f64 {
        let epoch = epoch.clamp(0.0, epochs);
        match self {
            Self::Cosine if epochs > 0.0 => 0.5 * (1.0 + (std::f64::consts::PI * epoch / epochs).cos()),
            Self::Step { every, divisor } => divisor.powf(-(epoch / every).floor()),
            Self::Exponential { every, divisor } => divisor.powf(-epoch / every),
            Self::Cosine | Self::Constant => 1.0,
        }
    }
}

impl fmt::Display for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cosine => f.write_str("cosine"),
            Self::Step { every, divisor } => write!(f, "step:{every}:{divisor}"),
            Self::Exponential { every, divisor } => write!(f, "exponential:{every}:{divisor}"),
            Self::Constant => f.write_str("constant"),
        }
    }
}

/// The error of a text that is not a [`Decay`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no decay {0:?}: it is cosine, constant, step:EPOCHS:DIVISOR or exponential:EPOCHS:DIVISOR, with epochs \
     above 0 and a divisor of at least 1"
)]
pub struct ParseDecayError(String);

impl FromStr for Decay {
    type Err = ParseDecayError;

    fn from_str(text: &str) -> Result<Self, ParseDecayError> {
        let number = |text: &str, least: f64| {
            text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0 && *n >= least)
        };
        let parsed = match text.split(':').collect::<Vec<_>>()[..] {
            ["cosine"] => Some(Self::Cosine),
            ["constant"] => Some(Self::Constant),
            [kind, every, divisor] => {
                number(every, 0.0).zip(number(divisor, 1.0)).and_then(|(every, divisor)| match kind {
                    "step" => Some(Self::Step { every, divisor }),
                    "exponential" => Some(Self::Exponential { every, divisor }),
                    _ => None,
                })
            }
            _ => None,
        };
        parsed.ok_or_else(|| ParseDecayError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(warmup: u64, decay: &str) -> Schedule {
        Schedule { peak: 0.2, warmup, decay: decay.parse().unwrap() }
    }

    #[track_caller]
    fn near(got: f32, expected: f32) {
        assert!((got - expected).abs() < 1e-6, "{got}, not {expected}");
    }

    #[test]
    fn rises_then_falls_to_zero() {
        let s = schedule(10, "cosine");
        let rates: Vec<f32> = (0..100).map(|i| s.at(i, i as f64 / 25.0, 4.0)).collect();
        near(rates[0], 0.02);
        assert!(rates[..10].is_sorted());
        assert!(rates[10..].is_sorted_by(|a, b| a >= b));
        near(s.at(50, 2.0, 4.0), 0.1);
        near(s.at(100, 4.0, 4.0), 0.0);
    }

    #[test]
    fn steps_divide_at_each_interval_of_epochs() {
        let s = schedule(1, "step:20:5");
        for (epoch, rate) in
            [(0.0, 0.2), (19.99, 0.2), (20.0, 0.04), (39.0, 0.04), (40.0, 0.008), (60.0, 0.0016)]
        {
            near(s.at(99, epoch, 100.0), rate);
        }
        near(schedule(10, "step:20:5").at(4, 20.0, 100.0), 0.02);
    }

    #[test]
    fn the_exponential_meets_the_steps_and_is_smooth_between_them() {
        let s = schedule(1, "exponential:20:5");
        for (epoch, rate) in [(0.0, 0.2), (20.0, 0.04), (40.0, 0.008), (10.0, 0.2 / 5f32.sqrt())] {
            near(s.at(99, epoch, 100.0), rate);
        }
        let rates: Vec<f32> = (0..100).map(|i| s.at(99, i as f64, 100.0)).collect();
        assert!(rates.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn constant_only_warms_up() {
        let s = schedule(4, "constant");
        let rates = [0, 1, 2, 3, 4, 1000].map(|step| s.at(step, step as f64, 9.0));
        assert_eq!(rates, [0.05, 0.1, 0.15, 0.2, 0.2, 0.2]);
    }

    #[test]
    fn odd_input_stays_in_range() {
        for decay in ["cosine", "step:0.5:2", "exponential:3:1", "constant"] {
            let s = schedule(0, decay);
            near(s.at(0, 0.0, 3.0), 0.2);
            near(s.at(0, -1.0, 3.0), 0.2);
            assert_eq!(s.at(0, 7.0, 3.0), s.at(0, 3.0, 3.0), "{decay}");
            near(s.at(0, 0.0, 0.0), 0.2);
        }
    }

    #[test]
    fn decays_are_text_and_back() {
        for text in ["cosine", "step:20:5", "step:0.5:2.5", "exponential:20:5", "constant"] {
            assert_eq!(text.parse::<Decay>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "linear",
            "step",
            "step:20",
            "step:0:5",
            "step:-1:5",
            "step:20:0.5",
            "step:inf:5",
            "cosine:1:2",
            "step:1:NaN",
        ] {
            let e = text.parse::<Decay>().unwrap_err().to_string();
            assert!(e.contains(&format!("{text:?}")) && e.contains("step:EPOCHS:DIVISOR"), "{e}");
        }
    }
}
