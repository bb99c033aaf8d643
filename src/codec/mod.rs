//! Decoding and encoding of fields by their extension.
//!
//! A [`Decoder`] turns the raw fields of a sample into values, an [`Encoder`] turns values into raw fields.
//! The last part of a field's name determines its type: `seg.png` is an image like `png`. The extensions are
//! the same as in Python's `webdataset`:
//!
//! | extension | value |
//! |---|---|
//! | `txt text transcript` | [`Value::Text`]: UTF-8, or an error |
//! | `cls cls2 class count index inx id` | [`Value::Int`], by the rules of Python's `int()` |
//! | `json jsn` | [`Value::Json`] |
//! | `npy` | [`Value::Array`] |
//! | `npz` | [`Value::Arrays`] (feature `npz`) |
//! | `jpg jpeg jpe jfif png webp ppm pgm pbm pnm` | [`Value::Image`], when [`Decoder::images`] is called |
//! | `bmp gif tif tiff qoi` | the same, with the feature `image-formats` |
//! | `wav flac mp3 ogg oga` | an `Audio`, when `Decoder::audio` is called (feature `audio`) |
//! | `pkl pickle pyd pth pt` | refused: a pickle can run any code |
//! | any of these with `.gz` | the same, decompressed (feature `gzip`) |
//! | any other | left as raw bytes |
//!
//! Decoding differs from `webdataset` where `webdataset` would silently accept wrong data: `null` in JSON is
//! a value, 16-bit grey is scaled and not clipped, damaged images are errors, and pickles are not loaded.
//! `NaN` is not JSON and is refused, unless [`Decoder::lenient_json`] reads it as null. A field `x.gz` with
//! an unknown extension `x` stays compressed, so that writing the sample gives the same file. If you set a
//! decoder for `x`, the decoder gets the decompressed bytes.
//!
//! [`Value::Text`]: crate::Value::Text
//! [`Value::Int`]: crate::Value::Int
//! [`Value::Json`]: crate::Value::Json
//! [`Value::Array`]: crate::Value::Array
//! [`Value::Arrays`]: crate::Value::Arrays
//! [`Value::Image`]: crate::Value::Image

mod decoder;
mod encoder;
#[cfg_attr(not(feature = "gzip"), path = "no_gzip.rs")]
mod gzip;
mod npy;
#[cfg(feature = "npz")]
mod npz;
mod registry;
mod scalar;

pub(crate) use npy::NpyView;
pub(crate) use scalar::{excerpt, parse_int, parse_json};

pub use crate::sample::{Array, ArrayError, DType, Element};
pub use decoder::Decoder;
pub use encoder::Encoder;

/// The error that a caller's own decoder or encoder returns. Errors of any type, and texts, convert to it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

const TEXT: &str = "txt text transcript";
const INT: &str = "cls cls2 class count index inx id";
const JSON: &str = "json jsn";
const PICKLE: &str = "pkl pickle pyd pth pt";
