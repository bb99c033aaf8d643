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

    /// Decodes sound whose samples take at most `limit` bytes. The first bytes of the file tell its format.
    ///
    /// A sample stored as an integer of `b` bits is divided by 2^(`b` - 1), as in libsndfile and torchaudio,
    /// so that values are from -1 to 1. Samples stored as floats are returned unchanged.
    ///
    /// Samples that an MP3 encoder added at the beginning and the end are removed, if the file says how many
    /// there are.
    ///
    /// Decoding sound of several channels takes twice the memory of its samples. If the file does not give
    /// the number of its frames, decoding takes up to four times the memory of the samples. The codebooks of
    /// Vorbis take at most 16 MiB.
    ///
    /// # Errors
    /// See [`AudioError`]. A truncated file is an error: WAV and FLAC must have the number of frames that
    /// their header gives, Ogg must have its last page, and MP3 must have the number of frames that its first
    /// frame announces, if it announces one. The checksum of the sound in FLAC and the checksum of each page
    /// in Ogg are verified.
    ///
    /// A WAV that was written to a pipe is an error: its header has the placeholder 4 GiB - 1 for the length.
    /// A FLAC that was written to a pipe has neither a number of frames nor a checksum of the sound. In such
    /// a FLAC a missing block of frames is an error, but truncation between two blocks is not detected.
    pub fn decode_within(file: &[u8], limit: usize) -> Result<Self, AudioError> {
        // Some damaged files make the decoders panic. The panic becomes an error.
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
        // An MPEG frame: the synchronization word, and a valid layer.
        [0xff, second, ..] if second & 0xe0 == 0xe0 && second & 0x06 != 0 => {
            // With a seekable stream, the reader estimates the number of frames from the first few frames,
            // and treats the estimate as exact: it would truncate some files and reject other files. So the
            // stream is not seekable.
            let stream = MediaSourceStream::new(Box::new(ReadOnlySource::new(file)), Default::default());
            Box::new(MpaReader::try_new(stream, options).map_err(decode_error)?)
        }
        _ => return Err(AudioError::Format),
    };
    let track =
        reader.default_track(TrackType::Audio).ok_or_else(|| decode_error("the file has no audio track"))?;
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
        // The reader silently skips damaged frames of FLAC. If the file gives no number of frames, only a gap
        // in the time stamps shows that frames are missing.
        if file.starts_with(b"fLaC") && wanted.is_none() && packet.pts.get() != sound.frames() as i64 {
            return Err(AudioError::Checksum);
        }
        let buffer = decoder.decode(&packet).map_err(decode_error)?;
        let spec = buffer.spec();
        let channels = spec.channels().count();
        // Reserves no more than the limit allows, whatever number the file claims.
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

/// The sound that has been decoded so far.
struct Sound {
    planes: Vec<Vec<f32>>,
    rate: u32,
}

impl Sound {
    fn frames(&self) -> usize {
        self.planes.first().map_or(0, Vec::len)
    }

    /// Checks that a decoded packet has the same channels and sample rate as the first one. The first call
    /// reserves memory for `frames` frames in each channel.
    fn begin(&mut self, channels: usize, rate: u32, frames: usize) -> Result<(), AudioError> {
        if self.planes.is_empty() {
            self.rate = checked_rate(rate)?;
            self.planes = (0..channels).map(|_| Vec::with_capacity(frames)).collect();
        }
        if (self.planes.len(), self.rate) == (channels, rate) && channels > 0 {
            return Ok(());
        }
        Err(decode_error("the number of channels or the sample rate changes within the file"))
    }

    fn finish(self) -> Result<Audio, AudioError> {
        let channels = self.planes.len();
        let mut planes = self.planes.into_iter();
        let mut samples = planes.next().ok_or_else(|| decode_error("the audio track is empty"))?;
        samples.reserve_exact((channels - 1) * samples.len());
        planes.for_each(|plane| samples.extend(plane));
        samples.shrink_to_fit();
        Audio::new(self.rate, channels, samples)
    }
}

/// The file without the ID3 tags that MP3 files and some FLAC files have before and after the sound.
fn without_tags(mut file: &[u8]) -> &[u8] {
    while let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = file {
        // Each byte holds seven bits of the length.
        let length = [a, b, c, d].into_iter().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
        let footer = if flags & 0x10 > 0 { 10 } else { 0 };
        file = file.get(10 + length + footer..).unwrap_or_default();
    }
    match file.split_last_chunk::<128>() {
        Some((before, [b'T', b'A', b'G', ..])) => before,
        _ => file,
    }
}

/// Wraps the error of a decoder, or a message.
fn decode_error(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AudioError {
    AudioError::Decode(cause.into())
}
