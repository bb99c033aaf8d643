//! Reads and writes weights, as safetensors files with torchvision's names.
//!
//! A file has the parameters and the batch-norm statistics, which evaluation needs. Only checkpoints have the
//! states of the optimizer and of the data.

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

/// Initial weights of a training.
#[derive(Debug, Clone)]
pub struct Initial {
    url: SecretUrl,
    sha256: String,
    decoded: Decoded,
}

impl Initial {
    /// Reads weights from `url`, a file or an object, and checks that they fit the network. Blocks.
    pub fn read(url: &str, manifest: &Manifest) -> Result<Self, WeightsError> {
        // A file of weights is not compressed. `open` would decompress it if its name ended in `.gz` or
        // `.zst`; `open_stored` never decompresses.
        let body = Store::default().open_stored(url).and_then(|body| body.read_all());
        let bytes = body.map_err(|source| WeightsError::Read { url: url.into(), source })?;
        let decoded = decode(&bytes, url, manifest)?;
        Ok(Self { url: url.into(), sha256: hex(&Sha256::digest(&bytes)), decoded })
    }

    /// Sha256 of the file, as hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Copies the weights into an initial state. The momentum, and a last layer that does not fit, keep their
    /// initial values.
    pub fn apply(self, state: &mut [Vec<f32>]) {
        for (buffer, values) in self.decoded.buffers {
            if let Some(old) = state.get_mut(buffer) {
                *old = values;
            }
        }
    }
}

/// The line of the log. Every rank reads the file itself; the digests show whether all ranks read the same
/// file.
impl fmt::Display for Initial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, sha256, decoded: Decoded { buffers, head } } = self;
        write!(f, "initial weights: {} tensors of {url}, sha256 {}", buffers.len(), &sha256[..16])?;
        match head {
            Some(reason) => write!(f, "; the last layer, fc, keeps its random weights: {reason}"),
            None => Ok(()),
        }
    }
}

/// A file of weights that was written. Its `Display` is the line of the log.
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

/// Name of the file, if the destination is a directory.
const FILE: &str = "model.safetensors";

/// The destination of weights.
#[derive(Debug, Clone)]
pub struct Destination {
    store: Store,
    url: String,
}

impl Destination {
    /// The destination `url`: a file or an object. If `url` is a directory or ends in a slash, the file is
    /// `model.safetensors` in it. Fails if the destination cannot be written, so that this error is found
    /// before the training.
    pub fn new(url: &str) -> Result<Self, WeightsError> {
        let url = if url.ends_with('/') || Path::new(url).is_dir() {
            format!("{}/{FILE}", url.trim_end_matches('/'))
        } else {
            url.to_owned()
        };
        if ObjectUrl::parse(&url).is_web() {
            let what = "a web server cannot be written to: give a file, or an object of a bucket";
            let source = ErrorKind::Unsupported(what.into()).into();
            return Err(WeightsError::Write { url: url.into(), source });
        }
        let store = Store::default();
        // The unfinished object is dropped, so that it never appears in the store.
        match store.create(&url) {
            Ok(object) => drop(object),
            Err(source) => return Err(WeightsError::Write { url: url.into(), source }),
        }
        Ok(Self { store, url })
    }

    /// Writes the weights of a state. The file appears whole or not at all. A failed write is retried after
    /// each of `waits`. Blocks until the file is written.
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
                    eprintln!("warning: writing the weights is retried in {wait:?}: {}", with_causes(&error));
                    std::thread::sleep(*wait);
                }
            }
        }
    }

    fn write_once(&self, bytes: &[u8]) -> shardstream::Result<()> {
        self.store.put(&self.url, bytes).map(drop)
    }
}

/// How long to wait before each retry of a failed write. The weights are the result of the training, so a
/// short outage must not lose them.
pub const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];
