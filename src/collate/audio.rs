//! `AudioColumn`: sound of one sample rate and length.

use super::cell::{Cell, Output};
use super::check::{self, config_error};
use super::column::Column;
use crate::audio::{Audio, AudioResampler};
use crate::error::{Error, ErrorKind, Result, ValueType};
use crate::sample::{DType, Sample, Value};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

/// Which part of a sound an [`AudioColumn`] keeps if the sound has more frames than the column stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cut {
    /// The beginning.
    #[default]
    Start,
    /// The middle.
    Center,
    /// A part whose first frame is drawn at random, uniformly from all possible frames. The random number
    /// depends on the seed, the epoch, the sample and the name of the column (see
    /// [`Columns`](super::Columns)).
    Random,
}

/// A column of sound: a field with a WAV, FLAC, MP3 or Ogg Vorbis file, or a decoded [`Audio`]. Every sound
/// is converted to the same sample rate and number of channels, and cut or padded to the same length.
///
/// The column makes two tensors. The first contains the sound: `float32[samples, channels, frames]`. The
/// second, `int32[samples]`, has the suffix `.lengths` and contains the number of frames of each sound that
/// are not padding. Padding frames are zeros. The whole file is decoded, so damage anywhere in it is an
/// error. Only the part that is kept is resampled (see [`AudioResampler`]).
///
/// ```
/// use shardstream::Sample;
/// use shardstream::Value;
/// use shardstream::audio::Audio;
/// use shardstream::collate::{AudioColumn, Columns, Cut};
///
/// // One second of sound: one channel, 16,000 frames per second, cut at a random position.
/// let speech = AudioColumn::new("flac;wav", 16_000, 16_000).cut(Cut::Random);
/// let short = Audio::new(16_000, 2, vec![0.5, 1.0, 0.0, -1.0])?;
/// let sample = Sample::new("0001").with("wav", Value::other(short));
/// let batch = Columns::new().with("speech", speech).collate([sample])?;
/// assert_eq!(batch["speech"].shape(), [1, 1, 16_000]);
/// assert_eq!(batch["speech"].as_slice::<f32>()?[..3], [0.25, 0.0, 0.0]);
/// assert_eq!(batch["speech.lengths"].as_slice::<i32>()?, [2]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AudioColumn {
    field: String,
    rate: u32,
    frames: usize,
    channels: usize,
    cut: Cut,
    max_size: usize,
    resamplers: Arc<Mutex<Resamplers>>,
}

/// Resamplers, each with the sample rate that it converts from; the newest is last.
type Resamplers = Vec<(u32, Arc<AudioResampler>)>;

/// The maximum number of resamplers that a column keeps.
const MAX_RATES: usize = 8;

impl AudioColumn {
    /// Reads `field`, which may be several alternatives separated by semicolons. Each sound in the batch has
    /// `frames` frames, at a sample rate of `rate` frames per second.
    #[must_use]
    pub fn new(field: &str, rate: u32, frames: usize) -> Self {
        let (field, resamplers) = (field.into(), Arc::default());
        AudioColumn { field, rate, frames, channels: 1, cut: Cut::Start, max_size: 512 << 20, resamplers }
    }

    /// Sets the number of channels. Default: 1, which stores the mean of all channels of a file. For any
    /// other number, each file must have exactly this number of channels.
    #[must_use]
    pub fn channels(mut self, channels: usize) -> Self {
        self.channels = channels;
        self
    }

    /// Sets which part of a sound is kept if the sound has more frames than the column stores. Default: the
    /// beginning.
    #[must_use]
    pub fn cut(mut self, cut: Cut) -> Self {
        self.cut = cut;
        self
    }

    /// Refuses sound that takes more than this number of bytes when decoded. Default: 512 MiB.
    #[must_use]
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.max_size = bytes;
        self
    }

    fn sound<'a>(&self, sample: &'a Sample) -> Result<Cow<'a, Audio>> {
        let decode = |error| Error::decode(self.field.as_str(), error);
        let value = sample.field(&self.field)?;
        let sound = match (value, value.downcast::<Audio>()) {
            (Value::Bytes(file), _) => Cow::Owned(Audio::decode_within(file, self.max_size).map_err(decode)?),
            (_, Some(sound)) => Cow::Borrowed(sound),
            (other, None) => {
                let (wanted, found) = (ValueType::Named("the raw bytes of a sound file"), other.value_type());
                return Err(ErrorKind::WrongType { field: self.field.as_str().into(), wanted, found }.into());
            }
        };
        match (self.channels, sound.channels()) {
            (wanted, found) if wanted == found => Ok(sound),
            (1, _) => Ok(Cow::Owned(sound.mono())),
            (wanted, found) => {
                let what = format!("sound of {found} channels in a column of {wanted}: see `channels`");
                Err(Error::decode(self.field.as_str(), what))
            }
        }
    }

    fn resampler(&self, rate: u32) -> Result<Arc<AudioResampler>> {
        let mut kept = self.resamplers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, resampler)) = kept.iter().find(|(known, _)| *known == rate) {
            return Ok(Arc::clone(resampler));
        }
        let new = AudioResampler::new(rate, self.rate)
            .map_err(|error| Error::decode(self.field.as_str(), error))?;
        let new = Arc::new(new);
        if kept.len() == MAX_RATES {
            kept.remove(0);
        }
        kept.push((rate, Arc::clone(&new)));
        Ok(new)
    }
}

impl Column for AudioColumn {
    fn outputs(&self) -> Vec<Output> {
        let sound = Output::fixed(DType::F32, [self.channels, self.frames]);
        vec![sound, Output::fixed(DType::I32, []).named(".lengths")]
    }

    fn check(&self) -> Result<()> {
        check::field(&self.field)?;
        check::length(self.frames)?;
        AudioResampler::new(self.rate, self.rate).map_err(config_error)?;
        match (self.channels, self.max_size) {
            (0, _) => Err(config_error("`channels` of 0: make it at least 1")),
            (_, 0) => Err(config_error("`max_size` of 0 bytes: make it at least 1")),
            _ => Ok(()),
        }
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let [samples, length] = cells else {
            return Err(check::wrong_cells());
        };
        let sound = self.sound(sample)?;
        let resampler = self.resampler(sound.sample_rate())?;
        let available = resampler.frames(sound.frames());
        let surplus = available.saturating_sub(self.frames);
        let start = match self.cut {
            Cut::Start => 0,
            Cut::Center => surplus / 2,
            Cut::Random => sample.rng(seed).below(surplus as u64 + 1) as usize,
        };
        let kept = available.min(self.frames);
        for (channel, slot) in samples.numbers::<f32>()?.chunks_exact_mut(self.frames).enumerate() {
            let (part, padding) = slot.split_at_mut(kept);
            resampler.resample(sound.channel(channel), start, part);
            padding.fill(0.0);
        }
        // `check` made sure that the number of frames fits into an `i32`.
        length.numbers::<i32>()?.fill(kept as i32);
        Ok(())
    }
}
