//! Imports and exports weights: safetensors files with torchvision's names.
//!
//! A file holds what evaluation needs: parameters and batch-norm statistics. Only checkpoints hold the state
//! of the optimizer and of the data.

mod error;
mod file;
mod names;
#[cfg(test)]
mod tests;

pub use error::WeightsError;
pub use file::{Decoded, decode, encode};

use crate::artifact::Manifest;
use crate::causes::with_causes;
use crate::hex;
use sha2::{Digest, Sha256};
use shardstream::store::{ObjectUrl, Store};
use shardstream::{ErrorKind, SecretUrl};
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Weights that a training starts with.
#[derive(Debug, Clone)]
pub struct Initial {
    url: SecretUrl,
    sha256: String,
    decoded: Decoded,
}

impl Initial {
    /// Reads weights from `url`, a file or an object, and checks that they fit the network. Blocks.
    pub fn read(url: &str, manifest: &Manifest) -> Result<Self, WeightsError> {
        // Read as stored: the extension does not mean compression here.
        let body = Store::default().open_stored(url).and_then(|body| body.read_all());
        let bytes = body.map_err(|source| WeightsError::Read { url: url.into(), source })?;
        let decoded = decode(&bytes, url, manifest)?;
        Ok(Self { url: url.into(), sha256: hex(&Sha256::digest(&bytes)), decoded })
    }

    /// Sha256 of the file, in hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Copies the weights into an initial state. Momentum, and a last layer that does not fit, keep their
    /// initial values.
    pub fn apply(self, state: &mut [Vec<f32>]) {
        for (buffer, values) in self.decoded.buffers {
            if let Some(place) = state.get_mut(buffer) {
                *place = values;
            }
        }
    }
}

/// The line of the log. Every rank reads the file itself, and the digests show whether all read the same.
impl fmt::Display for Initial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, sha256, decoded: Decoded { buffers, head } } = self;
        write!(f, "initial weights: {} tensors of {url}, sha256 {}", buffers.len(), &sha256[..16])?;
        match head {
            Some(reason) => write!(f, "; the last layer, fc, keeps its random start: {reason}"),
            None => Ok(()),
        }
    }
}

/// A written file of weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedWeights {
    url: SecretUrl,
    bytes: usize,
    time: Duration,
}

impl fmt::Display for SavedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (megabytes, seconds) = (self.bytes as f64 / 1e6, self.time.as_secs_f64());
        write!(f, "weights: {megabytes:.1} MB in {seconds:.2} s -> {}", self.url)
    }
}

/// The file's name in a directory.
const FILE: &str = "model.safetensors";

/// The destination of weights.
#[derive(Debug, Clone)]
pub struct Destination {
    store: Store,
    url: String,
}

impl Destination {
    /// The file or object `url`; `model.safetensors` in it, if that is a directory or ends in a slash. Fails
    /// if nothing can be written there, so that this shows before the training.
    pub fn new(url: &str) -> Result<Self, WeightsError> {
        let url = if url.ends_with('/') || Path::new(url).is_dir() {
            format!("{}/{FILE}", url.trim_end_matches('/'))
        } else {
            url.to_owned()
        };
        if ObjectUrl::parse(&url).is_web() {
            let what = "web servers take no files: name a file, or an object of a bucket";
            let source = ErrorKind::Unsupported(what.into()).into();
            return Err(WeightsError::Write { url: url.into(), source });
        }
        let store = Store::default();
        // An object that is not finished never appears.
        match store.create(&url) {
            Ok(begun) => drop(begun),
            Err(source) => return Err(WeightsError::Write { url: url.into(), source }),
        }
        Ok(Self { store, url })
    }

    /// Writes the weights of a state. The file appears whole or not at all. A failed write is retried after
    /// each of `waits`. Blocks.
    pub fn write(
        &self,
        manifest: &Manifest,
        state: &[Vec<f32>],
        waits: &[Duration],
    ) -> Result<SavedWeights, WeightsError> {
        let start = Instant::now();
        let bytes = encode(manifest, state)?;
        let mut waits = waits.iter();
        loop {
            match (self.write_once(&bytes), waits.next()) {
                (Ok(()), _) => {
                    let url = SecretUrl::from(&self.url);
                    return Ok(SavedWeights { url, bytes: bytes.len(), time: start.elapsed() });
                }
                (Err(source), None) => {
                    return Err(WeightsError::Write { url: SecretUrl::from(&self.url), source });
                }
                (Err(error), Some(wait)) => {
                    eprintln!("warning: the weights are written again in {wait:?}: {}", with_causes(&error));
                    std::thread::sleep(*wait);
                }
            }
        }
    }

    fn write_once(&self, bytes: &[u8]) -> shardstream::Result<()> {
        self.store.put(&self.url, bytes).map(drop)
    }
}

/// Waits before the retries of a failed write. The weights are the result of the training, so giving up early
/// would waste it.
pub const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];
