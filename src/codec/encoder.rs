//! Encoding of values to raw fields.

use super::registry::{Registry, inside_gz};
use super::scalar::{self, refuse};
use super::{BoxError, INT, JSON, PICKLE, TEXT, gzip};
#[cfg(feature = "image")]
use crate::image::{Image, ImageError};
use crate::{ErrorKind, Result, Value};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

type Encode = dyn Fn(&Value) -> Result<Bytes, BoxError> + Send + Sync;

/// Encodes values by the extension of their field. A [`Decoder`](super::Decoder) decodes them to the same
/// values.
///
/// Raw bytes are written unchanged, whatever the extension. Text is written unchanged if the extension is
/// unknown or is one for text. In a field for labels, text must be a label; in a field for JSON, it must be a
/// JSON document. If the extension ends in `.gz`, the encoded bytes are compressed.
///
/// ```
/// use shardstream::Value;
/// use shardstream::codec::Encoder;
///
/// let encoder = Encoder::new();
/// assert_eq!(encoder.encode("cls", &Value::Int(7))?, "7");
/// assert!(encoder.encode("npy", &Value::Int(7)).is_err());
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Encoder {
    codecs: Registry<Encode>,
}

impl Encoder {
    /// The standard encoders, for the extensions of [the table](crate::codec). Images are encoded for the
    /// extensions `png`, `webp` (lossless), `ppm`, `pgm` and `pnm`. For `jpg`, `jpeg`, `jpe`, `jfif`, `image`
    /// and `img`, they are encoded as JPEG of quality 100, the same as in webdataset.
    #[must_use]
    pub fn new() -> Self {
        let encoder = Encoder::empty()
            .with(&format!("{TEXT} html htm"), scalar::write_text)
            .with(INT, scalar::write_int)
            .with(JSON, scalar::write_json)
            .with("npy", |value| match value {
                Value::Array(array) if array.dtype() == super::DType::BF16 => {
                    Err("npy files have no bfloat16".into())
                }
                Value::Array(array) => Ok(array.to_npy()),
                other => Err(refuse(other, "an array")),
            })
            .with(PICKLE, |_| Err("shardstream writes no pickles".into()));
        #[cfg(feature = "npz")]
        let encoder = encoder.with("npz", |value| match value {
            Value::Arrays(arrays) if arrays.values().any(|array| array.dtype() == super::DType::BF16) => {
                Err("npz files have no bfloat16".into())
            }
            Value::Arrays(arrays) => Ok(super::npz::write(arrays)?),
            other => Err(refuse(other, "named arrays")),
        });
        #[cfg(feature = "image")]
        let encoder = encoder
            .image("png", Image::to_png)
            .image("jpg jpeg jpe jfif image img", |image| image.to_jpeg(100))
            .image("webp", Image::to_webp)
            .image("ppm", Image::to_ppm)
            .image("pgm", Image::to_pgm)
            .image("pnm", |image| if image.mode().channels() == 1 { image.to_pgm() } else { image.to_ppm() });
        encoder
    }

    /// An encoder without functions: it writes only raw bytes and text.
    #[must_use]
    pub fn empty() -> Self {
        Encoder { codecs: Registry::new() }
    }

    /// Sets `encode` as the encoder for these extensions, which are separated by spaces or semicolons.
    #[must_use]
    pub fn with(
        mut self,
        extensions: &str,
        encode: impl Fn(&Value) -> Result<Bytes, BoxError> + Send + Sync + 'static,
    ) -> Self {
        let encode: Arc<Encode> = Arc::new(encode);
        self.codecs.set(extensions, &encode);
        self
    }

    #[cfg(feature = "image")]
    fn image(self, extensions: &str, encode: fn(&Image) -> Result<Vec<u8>, ImageError>) -> Self {
        self.with(extensions, move |value| match value {
            Value::Image(image) => Ok(encode(image)?.into()),
            other => Err(refuse(other, "an image")),
        })
    }

    /// Checks the options. [`ShardWriterBuilder::build`](crate::write::ShardWriterBuilder::build) calls it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], which names the option and says how to fix it.
    pub fn check(&self) -> Result<()> {
        self.codecs.check()
    }

    /// Encodes a value for a field.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`] if the value's type does not fit the extension, or if the value cannot be
    /// encoded; also the errors of [`check`](Encoder::check).
    pub fn encode(&self, field: &str, value: &Value) -> Result<Bytes> {
        self.check()?;
        if let Value::Bytes(bytes) = value {
            return Ok(bytes.clone());
        }
        let encoded = match (self.codecs.find(field), inside_gz(field)) {
            (None, Some(inner)) => self.encode_as(inner, value).and_then(|bytes| gzip::compress(&bytes)),
            _ => self.encode_as(field, value),
        };
        encoded.map_err(|source| ErrorKind::Encode { field: field.into(), source }.into())
    }

    fn encode_as(&self, field: &str, value: &Value) -> Result<Bytes, BoxError> {
        match (self.codecs.find(field), value) {
            (Some(encode), _) => encode(value),
            (None, Value::Text(_)) => scalar::write_text(value),
            (None, other) => Err(format!(
                "no encoder is known for this extension, and the value is {}; set one with `Encoder::with`",
                other.type_name()
            )
            .into()),
        }
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder::new()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extensions: Vec<&str> = self.codecs.extensions().collect();
        f.debug_struct("Encoder").field("extensions", &extensions).finish()
    }
}
