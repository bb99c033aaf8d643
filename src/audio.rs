//! Decoded sound.
//!
//! [`Audio::decode`] reads WAV (whole numbers and floats), FLAC, MP3 and Ogg Vorbis, which it tells apart by
//! their content. [`Decoder::audio`](crate::codec::Decoder::audio) decodes such fields, and
//! [`AudioColumn`](crate::collate::AudioColumn) makes batches of them: cut to one length, at one sample rate.
//!
//! A truncated or damaged file is an error, as far as its format tells: WAV and FLAC say how many frames they
//! have, FLAC has a checksum of the sound, and Ogg marks its last page and has a checksum of each. An MP3 has
//! no checksum, and its number of frames only if its encoder wrote it. Ogg Vorbis in several streams one
//! after the other is an error, and so is another codec in Ogg, such as Opus.

#[doc(inline)]
pub use shardstream_audio::{Audio, AudioError, AudioResampler};

pub(crate) use shardstream_audio::EXTENSIONS;
