//! Decoding of sound files.

use super::{Audio, AudioError, DEFAULT_LIMIT, checked_rate, ogg, within_limit};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use symphonia::core::codecs::audio::AudioDecoderOptions;
use symphonia::core::codecs::audio::well_known::CODEC_ID_VORBIS;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, ReadOnlySource};
use symphonia::default::formats::{FlacReader, MpaReader, OggReader, WavReader};

impl Audio {
    /// Decodes sound that takes at most 512 MiB of memory.
    ///
    /// # Errors
    /// See [`Audio::decode_within`].
    pub fn decode(file: &[u8]) -> Result<Self, AudioError> {
        Audio::decode_within(file, DEFAULT_LIMIT)
    }

    /// Decodes sound whose samples take at most `limit` bytes. The format is detected by the first bytes.
    /// Values are from -1 to 1; those of a file of floats are as they are. Whole numbers are divided by the
    /// largest power of two of their type, as in libsndfile and torchaudio.
    ///
    /// The samples that an MP3 encoder added at the beginning and the end are left out if the file says how
    /// many.
    ///
    /// While it works, sound of several channels takes twice the memory of its samples, and up to four
    /// times if the file does not say how many frames it has. The codebooks of Vorbis take at most 16 MiB.
    ///
    /// # Errors
    /// See [`AudioError`]. The end of the file must be there: the number of frames that WAV and FLAC give,
    /// the last page of Ogg, and the frames that the first one of an MP3 announces, if it does. FLAC has a
    /// checksum of the sound, Ogg one of each page.
    ///
    /// A WAV that was written to a pipe does not say its length (it is 4 GiB - 1), and is an error. A FLAC
    /// that was has neither a number of frames nor a checksum of them: a block of frames that is lost is an
    /// error, but not the end of the file between two blocks.
    pub fn decode_within(file: &[u8], limit: usize) -> Result<Self, AudioError> {
        // Some damaged files make the decoders panic, which is an error.
        catch_unwind(AssertUnwindSafe(|| read(file, limit)))
            .unwrap_or_else(|_| Err(decode_error("the decoder panicked")))
    }
}

fn read(file: &[u8], limit: usize) -> Result<Audio, AudioError> {
    let file = without_tags(file);
    let stream = MediaSourceStream::new(Box::new(Cursor::new(file)), Default::default());
    let options = FormatOptions::default();
    let mut reader: Box<dyn FormatReader + '_> = match file {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => {
            Box::new(WavReader::try_new(stream, options).map_err(decode_error)?)
        }
        [b'f', b'L', b'a', b'C', ..] => Box::new(FlacReader::try_new(stream, options).map_err(decode_error)?),
        [b'O', b'g', b'g', b'S', ..] => {
            ogg::check_last_page(file)?;
            Box::new(OggReader::try_new(stream, options).map_err(decode_error)?)
        }
        // The synchronization word, and a layer that exists.
        [0xff, second, ..] if second & 0xe0 == 0xe0 && second & 0x06 != 0 => {
            // In a stream that can seek, the reader estimates the number of frames by the first few of them,
            // and takes it for the file's own: some files would be cut short, others refused.
            let stream = MediaSourceStream::new(Box::new(ReadOnlySource::new(file)), Default::default());
            Box::new(MpaReader::try_new(stream, options).map_err(decode_error)?)
        }
        _ => return Err(AudioError::Format),
    };
    let track =
        reader.default_track(TrackType::Audio).ok_or_else(|| decode_error("there is no sound in it"))?;
    let (id, wanted) = (track.id, track.num_frames);
    let parameters = track.codec_params.as_ref().and_then(|parameters| parameters.audio());
    let parameters = parameters.ok_or_else(|| decode_error("its codec is unknown"))?;
    if parameters.codec == CODEC_ID_VORBIS {
        ogg::check_codebooks(parameters.extra_data.as_deref().unwrap_or_default())?;
    }
    let options = AudioDecoderOptions::default().verify(true);
    let mut decoder =
        symphonia::default::get_codecs().make_audio_decoder(parameters, &options).map_err(decode_error)?;
    let mut sound = Sound { planes: Vec::new(), rate: 0 };
    if let (Some(frames), Some(channels)) = (wanted, &parameters.channels) {
        within_limit(channels.count(), frames, limit)?;
    }
    let mut decoded = Vec::new();
    while let Some(packet) = reader.next_packet().map_err(decode_error)? {
        if packet.track_id != id {
            continue;
        }
        // The reader passes over damaged frames of FLAC, and without their number nothing else reveals it.
        if file.starts_with(b"fLaC") && wanted.is_none() && packet.pts.get() != sound.frames() as i64 {
            return Err(AudioError::Checksum);
        }
        let buffer = decoder.decode(&packet).map_err(decode_error)?;
        let spec = buffer.spec();
        let channels = spec.channels().count();
        // Not more than the limit allows, whatever the file says.
        let frames = wanted.map(|frames| (frames as usize).min(limit / size_of::<f32>() / channels.max(1)));
        sound.begin(channels, spec.rate(), frames.unwrap_or_default())?;
        within_limit(sound.planes.len(), (sound.frames() + buffer.frames()) as u64, limit)?;
        buffer.copy_to_vecs_planar::<f32>(&mut decoded);
        for (plane, samples) in sound.planes.iter_mut().zip(&decoded) {
            plane.extend_from_slice(samples);
        }
    }
    if decoder.finalize().verify_ok == Some(false) {
        return Err(AudioError::Checksum);
    }
    let found = sound.frames() as u64;
    match wanted {
        Some(wanted) if found < wanted => Err(AudioError::Truncated { found, wanted }),
        _ => sound.finish(),
    }
}

/// The sound as far as it is decoded.
struct Sound {
    planes: Vec<Vec<f32>>,
    rate: u32,
}

impl Sound {
    fn frames(&self) -> usize {
        self.planes.first().map_or(0, Vec::len)
    }

    /// Checks that each part has the channels and the rate of the first one, which finds the memory for all
    /// frames, if their number is known.
    fn begin(&mut self, channels: usize, rate: u32, frames: usize) -> Result<(), AudioError> {
        if self.planes.is_empty() {
            self.rate = checked_rate(rate)?;
            self.planes = (0..channels).map(|_| Vec::with_capacity(frames)).collect();
        }
        if (self.planes.len(), self.rate) == (channels, rate) && channels > 0 {
            return Ok(());
        }
        Err(decode_error("the number of its channels or its sample rate changes"))
    }

    fn finish(self) -> Result<Audio, AudioError> {
        let channels = self.planes.len();
        let mut planes = self.planes.into_iter();
        let mut samples = planes.next().ok_or_else(|| decode_error("there is no sound in it"))?;
        samples.reserve_exact((channels - 1) * samples.len());
        planes.for_each(|plane| samples.extend(plane));
        samples.shrink_to_fit();
        Audio::new(self.rate, channels, samples)
    }
}

/// The file without ID3 tags before and behind the sound, which MP3 and some FLAC files have.
fn without_tags(mut file: &[u8]) -> &[u8] {
    while let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = file {
        // Seven bits of each byte.
        let length = [a, b, c, d].into_iter().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
        let footer = if flags & 0x10 > 0 { 10 } else { 0 };
        file = file.get(10 + length + footer..).unwrap_or_default();
    }
    match file.split_last_chunk::<128>() {
        Some((before, [b'T', b'A', b'G', ..])) => before,
        _ => file,
    }
}

/// Wraps an error of the decoder, or says what is missing.
fn decode_error(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AudioError {
    AudioError::Decode(cause.into())
}
