//! The schedule of the learning rate.

use std::fmt;
use std::str::FromStr;

/// A learning rate with a linear warm-up over steps and a decay over epochs. The factors of warm-up and decay
/// are multiplied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The highest rate.
    pub peak: f32,
    /// Number of steps of the warm-up.
    pub warmup: u64,
    /// The decay of the rate.
    pub decay: Decay,
}

/// The decay of a learning rate over the epochs. Its text is `cosine`, `step:20:5`, `exponential:20:5` or
/// `constant`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Decay {
    /// The rate falls along half a cosine, to zero at the end of the last epoch.
    #[default]
    Cosine,
    /// The rate is divided by `divisor` after every `every` epochs.
    Step {
        /// Number of epochs, above zero; may be a fraction.
        every: f64,
        /// The divisor, at least 1.
        divisor: f64,
    },
    /// The rate falls exponentially. After every `every` epochs it has been divided by `divisor` once more,
    /// so it then equals the rate of [`Step`](Self::Step).
    Exponential {
        /// Number of epochs, above zero; may be a fraction.
        every: f64,
        /// The divisor, at least 1.
        divisor: f64,
    },
    /// The rate does not decay.
    Constant,
}

impl Schedule {
    /// The rate of step `step` of the training, counted from 0. Before that step, `epoch` of `epochs` epochs
    /// are done; 1.5 is the middle of the second epoch. `epoch` is not computed from `step`, because the
    /// number of steps of an epoch may be unknown.
    pub fn at(&self, step: u64, epoch: f64, epochs: f64) -> f32 {
        let warmup = ((step + 1) as f64 / self.warmup.max(1) as f64).min(1.0);
        (f64::from(self.peak) * warmup * self.decay.at(epoch, epochs)) as f32
    }
}

impl Decay {
    /// The factor by which the decay multiplies the peak rate, 0 to 1.
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

/// The error for a text that is not a [`Decay`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown decay {0:?}: give cosine, constant, step:EPOCHS:DIVISOR or exponential:EPOCHS:DIVISOR, with \
     epochs above 0 and a divisor of at least 1"
)]
pub struct ParseDecayError(String);

impl FromStr for Decay {
    type Err = ParseDecayError;

    fn from_str(text: &str) -> Result<Self, ParseDecayError> {
        let error = || ParseDecayError(text.into());
        let number = |text: &str, min: f64| match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 && number >= min => Ok(number),
            _ => Err(error()),
        };
        match text.split(':').collect::<Vec<_>>()[..] {
            ["cosine"] => Ok(Self::Cosine),
            ["constant"] => Ok(Self::Constant),
            ["step", every, divisor] => {
                Ok(Self::Step { every: number(every, 0.0)?, divisor: number(divisor, 1.0)? })
            }
            ["exponential", every, divisor] => {
                Ok(Self::Exponential { every: number(every, 0.0)?, divisor: number(divisor, 1.0)? })
            }
            _ => Err(error()),
        }
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
    fn the_rate_rises_and_then_falls_to_zero() {
        let s = schedule(10, "cosine");
        let rates: Vec<f32> = (0..100).map(|i| s.at(i, i as f64 / 25.0, 4.0)).collect();
        near(rates[0], 0.02);
        assert!(rates[..10].is_sorted());
        assert!(rates[10..].is_sorted_by(|a, b| a >= b));
        near(s.at(50, 2.0, 4.0), 0.1);
        near(s.at(100, 4.0, 4.0), 0.0);
    }

    #[test]
    fn a_step_decay_divides_the_rate_at_each_interval() {
        let s = schedule(1, "step:20:5");
        for (epoch, rate) in
            [(0.0, 0.2), (19.99, 0.2), (20.0, 0.04), (39.0, 0.04), (40.0, 0.008), (60.0, 0.0016)]
        {
            near(s.at(99, epoch, 100.0), rate);
        }
        near(schedule(10, "step:20:5").at(4, 20.0, 100.0), 0.02);
    }

    #[test]
    fn the_exponential_decay_equals_the_step_decay_at_each_interval() {
        let s = schedule(1, "exponential:20:5");
        for (epoch, rate) in [(0.0, 0.2), (20.0, 0.04), (40.0, 0.008), (10.0, 0.2 / 5f32.sqrt())] {
            near(s.at(99, epoch, 100.0), rate);
        }
        let rates: Vec<f32> = (0..100).map(|i| s.at(99, i as f64, 100.0)).collect();
        assert!(rates.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn a_constant_rate_only_has_a_warmup() {
        let s = schedule(4, "constant");
        let rates = [0, 1, 2, 3, 4, 1000].map(|step| s.at(step, step as f64, 9.0));
        assert_eq!(rates, [0.05, 0.1, 0.15, 0.2, 0.2, 0.2]);
    }

    #[test]
    fn extreme_arguments_give_a_rate_in_range() {
        for decay in ["cosine", "step:0.5:2", "exponential:3:1", "constant"] {
            let s = schedule(0, decay);
            near(s.at(0, 0.0, 3.0), 0.2);
            near(s.at(0, -1.0, 3.0), 0.2);
            assert_eq!(s.at(0, 7.0, 3.0), s.at(0, 3.0, 3.0), "{decay}");
            near(s.at(0, 0.0, 0.0), 0.2);
        }
    }

    #[test]
    fn decays_are_parsed_and_formatted() {
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
