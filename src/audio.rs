//! Decoded sound.
//!
//! [`Audio::decode`] reads WAV (whole numbers and floats), FLAC, MP3 and Ogg Vorbis, and detects the format
//! from the content. [`Decoder::audio`](crate::codec::Decoder::audio) decodes audio fields, and
//! [`AudioColumn`](crate::collate::AudioColumn) turns them into batches: cut to one length, at one sample
//! rate.
//!
//! A truncated or damaged file is an error, if the damage can be detected in its format. WAV and FLAC store
//! their number of frames; FLAC also stores a checksum of the sound. Ogg stores a checksum of each page, and
//! marks the last page. An MP3 has no checksum, and stores its number of frames only if its encoder wrote it.
//! An Ogg file with several Vorbis streams in sequence is an error, and so is another codec in Ogg, such as
//! Opus.

#[doc(inline)]
pub use shardstream_audio::{Audio, AudioError, AudioResampler};

pub(crate) use shardstream_audio::EXTENSIONS;
