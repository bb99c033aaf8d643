//! Sound for training. Use this crate as `shardstream::audio`: the API under that path is stable.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod decode;
mod ogg;
mod resample;

pub use resample::AudioResampler;

use shardstream_base::Error;
use std::fmt;

/// The extensions of sound files that can be read.
#[doc(hidden)]
pub const EXTENSIONS: &str = "wav flac mp3 ogg oga";

/// Decoded sound: all samples of the first channel, then all samples of the next channel.
///
/// ```
/// # mod shardstream { pub mod audio { pub use shardstream_audio::*; } }
/// use shardstream::audio::Audio;
///
/// let stereo = Audio::new(8_000, 2, vec![0.0, 0.5, 1.0, 0.5])?;
/// assert_eq!((stereo.channels(), stereo.frames(), stereo.channel(1)), (2, 2, &[1.0, 0.5][..]));
/// assert_eq!(stereo.mono().samples(), [0.5, 0.5]);
/// assert_eq!(stereo.resampled(16_000)?.frames(), 4);
/// # Ok::<(), shardstream::audio::AudioError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Audio {
    sample_rate: u32,
    channels: usize,
    samples: Vec<f32>,
}

/// Why sound could not be read or converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// The file does not have a supported format.
    #[error("not sound of a known format: WAV, FLAC, MP3 and Ogg Vorbis are supported")]
    Format,
    /// The file ends before the end of the sound.
    #[error("the sound is truncated: it has {found} frames of {wanted}")]
    Truncated {
        /// The number of frames in the file.
        found: u64,
        /// The number of frames that the file should have.
        wanted: u64,
    },
    /// The last page of an Ogg file is missing.
    #[error("the sound is truncated: the last page of the Ogg file is missing")]
    Unfinished,
    /// The checksum of the decoded sound differs from the one in the file.
    #[error("the sound is damaged: its checksum differs from the one in the file")]
    Checksum,
    /// The sound would take too much memory.
    #[error(
        "sound of {channels} channels and {frames} frames or more takes more than the limit of {limit} bytes"
    )]
    TooLarge {
        /// The number of channels.
        channels: usize,
        /// The number of frames. If the file does not give it, a lower bound.
        frames: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The sample rate is 0 or unusually high.
    #[error("a sample rate of {0} per second is not supported: choose one from 1 to 768000")]
    Rate(u32),
    /// The number of samples is not a multiple of the number of channels, or there are no channels.
    #[error("{samples} samples cannot be divided into {channels} channels of equal length")]
    Samples {
        /// The number of samples.
        samples: usize,
        /// The number of channels.
        channels: usize,
    },
    /// The sound is damaged, or the decoder does not support its encoding.
    #[error("cannot decode the sound")]
    Decode(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Lets `?` convert the error in a function that is mapped over samples.
impl From<AudioError> for Error {
    fn from(error: AudioError) -> Self {
        Error::step(error)
    }
}

/// The highest sample rate.
const MAX_RATE: u32 = 768_000;

/// Checks a sample rate.
fn checked_rate(rate: u32) -> Result<u32, AudioError> {
    if (1..=MAX_RATE).contains(&rate) { Ok(rate) } else { Err(AudioError::Rate(rate)) }
}

/// Default maximum size of sound in memory, in bytes.
const DEFAULT_LIMIT: usize = 512 << 20;

/// Checks that this number of frames is within the limit.
fn within_limit(channels: usize, frames: u64, limit: usize) -> Result<(), AudioError> {
    let bytes = (channels as u128 * u128::from(frames)).saturating_mul(size_of::<f32>() as u128);
    if bytes <= limit as u128 { Ok(()) } else { Err(AudioError::TooLarge { channels, frames, limit }) }
}

impl Audio {
    /// Makes sound from its sample rate in samples per second, the number of its channels, and its samples:
    /// all samples of the first channel, then all samples of the next channel.
    ///
    /// # Errors
    /// [`AudioError::Rate`] for an unsupported rate, and [`AudioError::Samples`] if `channels` is 0 or does
    /// not divide the number of samples.
    pub fn new(sample_rate: u32, channels: usize, samples: Vec<f32>) -> Result<Self, AudioError> {
        let sample_rate = checked_rate(sample_rate)?;
        if samples.len().checked_rem(channels) == Some(0) {
            Ok(Audio { sample_rate, channels, samples })
        } else {
            Err(AudioError::Samples { samples: samples.len(), channels })
        }
    }

    /// The number of samples per second in each channel.
    #[must_use]
    pub fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// The number of channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// The number of samples in each channel.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.samples.len() / self.channels
    }

    /// The samples of a channel; empty if there is no such channel.
    #[must_use]
    pub fn channel(&self, channel: usize) -> &[f32] {
        let frames = self.frames();
        let start = channel.saturating_mul(frames);
        self.samples.get(start..start.saturating_add(frames)).unwrap_or_default()
    }

    /// The samples: all samples of the first channel, then all samples of the next channel.
    #[must_use]
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    /// Returns the samples.
    #[must_use]
    pub fn into_samples(self) -> Vec<f32> {
        self.samples
    }

    /// The number of bytes of the samples.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of_val(&*self.samples)
    }

    /// The mean of all channels, as sound of one channel.
    #[must_use]
    pub fn mono(&self) -> Audio {
        let mut samples = self.channel(0).to_vec();
        for channel in 1..self.channels {
            samples.iter_mut().zip(self.channel(channel)).for_each(|(sum, sample)| *sum += sample);
        }
        let share = self.channels as f32;
        samples.iter_mut().for_each(|sum| *sum /= share);
        Audio { channels: 1, samples, ..*self }
    }
}

impl fmt::Debug for Audio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Audio({} channels of {} frames, {}/s)", self.channels, self.frames(), self.sample_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_must_fill_the_channels() {
        assert!(Audio::new(8_000, 3, vec![0.0; 6]).is_ok());
        assert!(matches!(Audio::new(8_000, 4, vec![0.0; 6]), Err(AudioError::Samples { .. })));
        assert!(matches!(Audio::new(8_000, 0, vec![]), Err(AudioError::Samples { .. })));
        assert!(matches!(Audio::new(0, 1, vec![]), Err(AudioError::Rate(0))));
        let audio = Audio::new(8_000, 2, vec![1.0, 2.0, 3.0, 5.0]).unwrap();
        assert_eq!(format!("{audio:?}"), "Audio(2 channels of 2 frames, 8000/s)");
        assert_eq!((audio.mono().samples(), audio.size()), (&[2.0, 3.5][..], 16));
        assert_eq!((audio.channel(2), audio.channel(usize::MAX)), (&[][..], &[][..]));
    }
}
