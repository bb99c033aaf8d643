//! Decoding of raw fields to values.

use super::npy::NpyError;
use super::registry::{Registry, inside_gz};
use super::{Array, BoxError, INT, JSON, PICKLE, TEXT, gzip, scalar};
#[cfg(feature = "audio")]
use crate::audio::{self, Audio};
#[cfg(feature = "image")]
use crate::image::{self, Image, ImageMode};
use crate::{Error, ErrorKind, Result, Sample, Value};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// A function that decodes bytes to a value. The second argument is the maximum size of the value in bytes.
type Decode = dyn Fn(&Bytes, usize) -> Result<Value, BoxError> + Send + Sync;

/// Decodes the fields of samples by their extensions.
///
/// The [module](crate::codec) documentation has a table of extensions. If a field's name ends in several
/// known extensions, the longest of them is used: `seg.png` before `png`. If an extension gets a decoder
/// twice, the later one is used.
///
/// ```
/// use shardstream::codec::Decoder;
/// use shardstream::{Sample, Value};
///
/// let decoder = Decoder::new()
///     .with("tokens", |bytes| Ok(Value::other(bytes.chunks(2).map(<[u8]>::to_vec).collect::<Vec<_>>())))
///     .without("pkl");
/// let sample = Sample::new("0001").with("cls", b"7\n").with("txt", b"a cat");
/// let mut sample = decoder.decode(sample.with("tokens", b"abcd").with("bin", b"!"))?;
/// assert_eq!(sample.take::<i64>("cls")?, 7);
/// assert_eq!(sample.take::<String>("txt")?, "a cat");
/// assert_eq!(sample.get("tokens").and_then(Value::downcast::<Vec<Vec<u8>>>).unwrap().len(), 2);
/// assert_eq!(sample.get("bin").and_then(Value::as_bytes).unwrap(), "!");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Decoder {
    codecs: Registry<Decode>,
    only: Option<Arc<[String]>>,
    max_size: usize,
}

/// The error that a decoder returns for a pickle.
#[derive(Debug, thiserror::Error)]
#[error("a Python pickle")]
struct IsPickle;

impl Decoder {
    /// The default of [`max_size`](Decoder::max_size): 512 MiB.
    pub const DEFAULT_MAX_SIZE: usize = 512 << 20;

    /// The standard decoders. Images stay raw unless [`images`](Decoder::images) is called. Pickles are
    /// refused.
    #[must_use]
    pub fn new() -> Self {
        let decoder = Decoder::empty()
            .set(TEXT, |bytes, _| scalar::read_text(bytes))
            .set(INT, |bytes, _| scalar::read_int(bytes))
            .set(JSON, scalar::read_json)
            .set("npy", |bytes, _| Array::read_npy(bytes).map(Value::Array).map_err(array_error))
            .set(PICKLE, |_, _| Err(IsPickle.into()));
        #[cfg(feature = "npz")]
        let decoder = decoder.set("npz", |bytes, max_size| {
            super::npz::read(bytes, max_size).map(Value::Arrays).map_err(|error| match error {
                super::npz::NpzError::Array { source: NpyError::Pickle, .. } => IsPickle.into(),
                other => other.into(),
            })
        });
        decoder
    }

    /// A decoder without functions: all fields stay raw.
    #[must_use]
    pub fn empty() -> Self {
        Decoder { codecs: Registry::new(), only: None, max_size: Decoder::DEFAULT_MAX_SIZE }
    }

    /// Sets `decode` as the decoder for these extensions, which are separated by spaces or semicolons.
    ///
    /// If a field's name ends in the extension and `.gz`, the field is decompressed first, unless a decoder
    /// is set for the extension with `.gz`.
    #[must_use]
    pub fn with(
        self,
        extensions: &str,
        decode: impl Fn(&Bytes) -> Result<Value, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.set(extensions, move |bytes, _| decode(bytes))
    }

    /// Leaves fields with these extensions raw.
    #[must_use]
    pub fn without(mut self, extensions: &str) -> Self {
        self.codecs.remove(extensions);
        self
    }

    /// Also decodes images, to this mode. The format of an image is detected from its content.
    #[cfg(feature = "image")]
    #[must_use]
    pub fn images(self, mode: ImageMode) -> Self {
        self.set(image::EXTENSIONS, move |bytes, max_size| {
            Ok(Value::Image(Image::decode_within(bytes, mode, max_size)?))
        })
    }

    /// Also decodes sound, to [`Audio`] values. The format of a sound is detected from its content.
    ///
    /// ```
    /// use shardstream::audio::Audio;
    /// use shardstream::codec::Decoder;
    /// use shardstream::{Sample, Value};
    ///
    /// // Two frames of 16 bits, at 8,000 frames per second.
    /// let header = b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0";
    /// let wav = [&header[..], b"data\x04\0\0\0\0\x40\0\xc0"].concat();
    /// let sample = Decoder::new().audio().decode(Sample::new("0001").with("wav", wav))?;
    /// let sound = sample.get("wav").and_then(Value::downcast::<Audio>).unwrap();
    /// assert_eq!((sound.sample_rate(), sound.samples()), (8_000, &[0.5, -0.5][..]));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[cfg(feature = "audio")]
    #[must_use]
    pub fn audio(self) -> Self {
        self.set(audio::EXTENSIONS, |bytes, max_size| {
            Ok(Value::other(Audio::decode_within(bytes, max_size)?))
        })
    }

    /// Reads the numbers `NaN`, `Infinity` and `-Infinity` in JSON as null. Python's `json` writes these
    /// numbers. By default, they are an error, because they are not valid JSON.
    ///
    /// ```
    /// use shardstream::codec::Decoder;
    /// use shardstream::{Sample, Value};
    ///
    /// let sample = Sample::new("0001").with("json", br#"{"similarity": NaN, "w": 3}"#);
    /// let error = Decoder::new().decode(sample.clone()).unwrap_err();
    /// assert!(format!("{error:#}").contains("JSON has no NaN"));
    /// let sample = Decoder::new().lenient_json().decode(sample)?;
    /// let Some(Value::Json(json)) = sample.get("json") else { panic!("{sample:?}") };
    /// assert_eq!((json["similarity"].as_f64(), json["w"].as_i64()), (None, Some(3)));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn lenient_json(self) -> Self {
        self.set(JSON, scalar::read_lenient_json)
    }

    /// Decodes only these fields and leaves all other fields raw. The names are full names: `only(&["png"])`
    /// leaves `seg.png` raw.
    #[must_use]
    pub fn only(mut self, fields: &[&str]) -> Self {
        self.only = Some(fields.iter().map(|field| (*field).to_owned()).collect());
        self
    }

    /// Refuses fields that take more than this many bytes of memory when decompressed, parsed as JSON or
    /// decoded to an image or sound, because a few bytes of input can claim any amount of memory. The memory
    /// of a JSON document is estimated before it is parsed, with 64 bytes for a number and 650 for a map. The
    /// estimate is up to twice the memory that the document takes.
    #[must_use]
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.max_size = bytes;
        self
    }

    /// Checks the options. If they are invalid, [`decode`](Decoder::decode) refuses every sample, and [the
    /// adapter](crate::adapters::Pipeline::decode) reads no sample.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], which names the option and says how to fix it.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(ErrorKind::Config(what.into()).into());
        match &self.only {
            Some(only) if only.is_empty() => return bad("`only` of no fields: name at least one to decode"),
            Some(only) if only.iter().any(String::is_empty) => {
                return bad("`only` of a field \"\": give the full names of fields, as in \"seg.png\"");
            }
            _ => {}
        }
        if self.max_size == 0 {
            return bad("`max_size` of 0 bytes: make it at least 1");
        }
        self.codecs.check()
    }

    /// Decodes every raw field with a known extension, and leaves the other fields unchanged.
    ///
    /// # Errors
    /// The errors of [`check`](Decoder::check) and [`decode_field`](Decoder::decode_field), with the sample's
    /// key and shard.
    pub fn decode(&self, mut sample: Sample) -> Result<Sample> {
        match self.decode_fields(&mut sample) {
            Ok(()) => Ok(sample),
            Err(error) => Err(sample.locate(error)),
        }
    }

    fn decode_fields(&self, sample: &mut Sample) -> Result<()> {
        for (field, value) in sample.fields_mut() {
            if let Value::Bytes(bytes) = value
                && let Some(decoded) = self.decode_field(field, bytes)?
            {
                *value = decoded;
            }
        }
        Ok(())
    }

    /// Decodes one field. Returns `None` if the field stays raw.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] with the error of the decoder, [`ErrorKind::Pickle`] for pickles, and the errors
    /// of [`check`](Decoder::check).
    pub fn decode_field(&self, field: &str, bytes: &Bytes) -> Result<Option<Value>> {
        self.check()?;
        if self.only.as_ref().is_some_and(|only| !only.iter().any(|name| name == field)) {
            return Ok(None);
        }
        let decoded = if let Some(decode) = self.codecs.find(field) {
            decode(bytes, self.max_size)
        } else if let Some(decode) = inside_gz(field).and_then(|inner| self.codecs.find(inner)) {
            gzip::decompress(bytes, self.max_size).and_then(|bytes| decode(&bytes, self.max_size))
        } else {
            return Ok(None);
        };
        decoded.map(Some).map_err(|source| {
            if source.is::<IsPickle>() {
                ErrorKind::Pickle { field: field.into() }.into()
            } else {
                Error::decode(field, source)
            }
        })
    }

    fn set(
        mut self,
        extensions: &str,
        decode: impl Fn(&Bytes, usize) -> Result<Value, BoxError> + Send + Sync + 'static,
    ) -> Self {
        let decode: Arc<Decode> = Arc::new(decode);
        self.codecs.set(extensions, &decode);
        self
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("extensions", &self.codecs.extensions().collect::<Vec<_>>())
            .field("only", &self.only)
            .field("max_size", &self.max_size)
            .finish()
    }
}

fn array_error(error: NpyError) -> BoxError {
    match error {
        NpyError::Pickle => IsPickle.into(),
        other => other.into(),
    }
}
