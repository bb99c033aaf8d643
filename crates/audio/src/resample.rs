//! Changes the sample rate of sound.

use super::{Audio, AudioError, DEFAULT_LIMIT, checked_rate, within_limit};

/// The number of the sinc's zero crossings on each side: torchaudio's `lowpass_filter_width`.
const WIDTH: f64 = 6.0;
/// The highest frequency that passes the filter, as a fraction of half the lower rate: torchaudio's
/// `rolloff`.
const ROLLOFF: f64 = 0.99;
/// Maximum number of weights in the precomputed table (4 MiB). Pairs of rates that need more are unusual;
/// their weights are computed again for each sample.
const MAX_WEIGHTS: u64 = 1 << 20;

/// Changes the sample rate with a Hann-windowed sinc filter: torchaudio's `resample` with its defaults (a
/// filter width of 6 and a roll-off of 0.99). The results differ from torchaudio's only by rounding.
///
/// Each output sample depends only on its position, and its terms are added in the same order on every
/// processor. So resampling a part of the sound gives exactly the same samples as resampling all of it.
#[derive(Debug, Clone)]
pub struct AudioResampler {
    /// The two rates, divided by their greatest common divisor.
    from: u64,
    to: u64,
    /// The lower of the two rates, multiplied by the roll-off.
    base: f64,
    /// The number of weights for one output sample.
    taps: usize,
    /// The weights for each of the `to` positions that an output sample can have between two input samples;
    /// `None` if there are more than [`MAX_WEIGHTS`].
    weights: Option<Vec<f32>>,
}

impl AudioResampler {
    /// Makes a resampler from the rate `from` to the rate `to`, in samples per second.
    ///
    /// # Errors
    /// [`AudioError::Rate`].
    pub fn new(from: u32, to: u32) -> Result<Self, AudioError> {
        let (from, to) = (u64::from(checked_rate(from)?), u64::from(checked_rate(to)?));
        let common = greatest_common_divisor(from, to);
        let (from, to) = (from / common, to / common);
        let base = from.min(to) as f64 * ROLLOFF;
        // The largest number of input samples that the window can contain.
        let taps = (2.0 * WIDTH * from as f64 / base).ceil() as usize + 1;
        let mut resampler = AudioResampler { from, to, base, taps, weights: None };
        if from != to && to * taps as u64 <= MAX_WEIGHTS {
            let mut weights = Vec::with_capacity(to as usize * taps);
            for phase in 0..to {
                let first = resampler.first(phase);
                weights.extend((first..).take(taps).map(|at| resampler.weight(phase, at)));
            }
            resampler.weights = Some(weights);
        }
        Ok(resampler)
    }

    /// The number of output frames for `frames` input frames, rounded up.
    #[must_use]
    pub fn frames(&self, frames: usize) -> usize {
        let frames = (frames as u128 * u128::from(self.to)).div_ceil(u128::from(self.from));
        usize::try_from(frames).unwrap_or(usize::MAX)
    }

    /// Resamples one channel, and fills `part` with the output samples; the first one is number `start`. The
    /// channel counts as silent before its beginning and after its end.
    pub fn resample(&self, channel: &[f32], start: usize, part: &mut [f32]) {
        if self.from == self.to {
            let rest = channel.get(start..).unwrap_or_default();
            let (sound, silence) = part.split_at_mut(rest.len().min(part.len()));
            sound.copy_from_slice(&rest[..sound.len()]);
            silence.fill(0.0);
            return;
        }
        for (sample, at) in part.iter_mut().zip(start as u64..) {
            let place = u128::from(at) * u128::from(self.from);
            let phase = (place % u128::from(self.to)) as u64;
            let whole = i64::try_from(place / u128::from(self.to)).unwrap_or(i64::MAX);
            let first = whole.saturating_add(self.first(phase));
            // The part of the window that is inside of the channel.
            let skip = usize::try_from(first.saturating_neg()).unwrap_or(0).min(self.taps);
            let begin = usize::try_from(first.max(0)).unwrap_or(usize::MAX);
            let sound = channel.get(begin..).unwrap_or_default();
            let sound = &sound[..sound.len().min(self.taps - skip)];
            *sample = match &self.weights {
                Some(weights) => dot(sound, &weights[phase as usize * self.taps..][skip..self.taps]),
                None => {
                    let from = self.first(phase) + skip as i64;
                    sound.iter().zip(from..).map(|(sample, at)| sample * self.weight(phase, at)).sum()
                }
            };
        }
    }

    /// Index of the first input sample in the window of this phase. Index 0 is the last input sample that is
    /// not after the output sample.
    fn first(&self, phase: u64) -> i64 {
        let place = phase as f64 / self.to as f64;
        (place - WIDTH * self.from as f64 / self.base).ceil() as i64
    }

    /// The weight of input sample `at` for an output sample of this phase.
    fn weight(&self, phase: u64, at: i64) -> f32 {
        let place = at as f64 / self.from as f64 - phase as f64 / (self.from as f64 * self.to as f64);
        let t = place * self.base;
        if t.abs() >= WIDTH {
            return 0.0;
        }
        let window = (t * std::f64::consts::PI / WIDTH / 2.0).cos().powi(2);
        let angle = t * std::f64::consts::PI;
        let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
        (sinc * window * self.base / self.from as f64) as f32
    }
}

impl Audio {
    /// Returns the same sound with another sample rate: see [`AudioResampler`].
    ///
    /// # Errors
    /// [`AudioError::Rate`] for an unsupported rate, and [`AudioError::TooLarge`] if the result would take
    /// more than 512 MiB and more memory than this sound. Even a small file can lead to that, if its sample
    /// rate is very low.
    pub fn resampled(&self, rate: u32) -> Result<Audio, AudioError> {
        let resampler = AudioResampler::new(self.sample_rate, rate)?;
        let frames = resampler.frames(self.frames());
        within_limit(self.channels, frames as u64, DEFAULT_LIMIT.max(self.size()))?;
        let mut samples = vec![0.0; frames * self.channels];
        for (channel, to) in samples.chunks_exact_mut(frames.max(1)).enumerate() {
            resampler.resample(self.channel(channel), 0, to);
        }
        Ok(Audio { sample_rate: rate, samples, ..*self })
    }
}

/// The dot product. It is always added up in eight partial sums, so that every processor rounds in the same
/// way.
fn dot(samples: &[f32], weights: &[f32]) -> f32 {
    let weights = &weights[..samples.len()];
    let (samples, last) = samples.as_chunks::<8>();
    let (weights, last_weights) = weights.as_chunks::<8>();
    let mut sums = [0_f32; 8];
    for (samples, weights) in samples.iter().zip(weights) {
        for ((sum, sample), weight) in sums.iter_mut().zip(samples).zip(weights) {
            *sum += sample * weight;
        }
    }
    let rest: f32 = last.iter().zip(last_weights).map(|(sample, weight)| sample * weight).sum();
    sums.iter().sum::<f32>() + rest
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, frames: usize, hertz: f64) -> Vec<f32> {
        let step = hertz * std::f64::consts::TAU / f64::from(rate);
        (0..frames).map(|at| (at as f64 * step).sin() as f32).collect()
    }

    #[test]
    fn a_tone_keeps_its_frequency() {
        for (from, to) in
            [(44_100, 16_000), (16_000, 44_100), (48_000, 48_000), (8_000, 7_999), (767_999, 768_000)]
        {
            let resampler = AudioResampler::new(from, to).unwrap();
            let channel = tone(from, 3_000, f64::from(from.min(to)) / 20.0);
            let frames = resampler.frames(channel.len());
            let mut part = vec![0.0; frames];
            resampler.resample(&channel, 0, &mut part);
            let wanted = tone(to, frames, f64::from(from.min(to)) / 20.0);
            // Leaves out the samples near both ends: they differ, because the sound counts as silent beyond
            // its ends.
            let margin = frames / 10;
            let inside = part.iter().zip(&wanted).enumerate().take(frames - margin).skip(margin);
            for (at, (ours, wanted)) in inside {
                let difference = (ours - wanted).abs();
                assert!(difference < 5e-3, "{from} to {to}: {difference} at {at}");
            }
        }
    }

    #[test]
    fn frequencies_above_half_the_lower_rate_are_filtered_out() {
        let resampler = AudioResampler::new(48_000, 16_000).unwrap();
        let mut part = vec![0.0; 900];
        resampler.resample(&tone(48_000, 3_000, 12_000.0), 0, &mut part);
        assert!(part[50..850].iter().all(|sample| sample.abs() < 1e-2));
    }

    #[test]
    fn a_resampled_part_is_exactly_that_of_the_whole() {
        let channel = tone(44_100, 2_000, 440.0);
        for to in [16_000, 96_000, 44_100, 767_999] {
            let resampler = AudioResampler::new(44_100, to).unwrap();
            let mut whole = vec![0.0; resampler.frames(channel.len()) + 200];
            resampler.resample(&channel, 0, &mut whole);
            let mut part = vec![9.0; 300];
            resampler.resample(&channel, 77, &mut part);
            assert_eq!(part[..], whole[77..377]);
            assert_eq!(whole[whole.len() - 1], 0.0);
            resampler.resample(&channel, usize::MAX - 1000, &mut part);
            assert!(part.iter().all(|sample| *sample == 0.0));
            resampler.resample(&[], 0, &mut part);
            assert!(part.iter().all(|sample| *sample == 0.0));
        }
        let slow = Audio::new(1, 2, vec![0.0; 2_000]).unwrap();
        assert!(matches!(slow.resampled(768_000), Err(AudioError::TooLarge { .. })));
        assert!(matches!(AudioResampler::new(0, 1), Err(AudioError::Rate(0))));
        assert!(matches!(AudioResampler::new(1, u32::MAX), Err(AudioError::Rate(_))));
    }
}
