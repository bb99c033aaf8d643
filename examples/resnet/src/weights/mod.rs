//! The weights of a network in and out of the trainer: safetensors files with torchvision's names.
//!
//! A file holds what evaluation needs, parameters and batch-norm statistics. The state of the optimizer and
//! the place in the data are in checkpoints alone.

mod file;
mod names;
#[cfg(test)]
mod tests;

pub use file::{decode, encode};

use crate::artifact::Manifest;
use crate::error::with_causes;
use crate::hex;
use safetensors::SafeTensorError;
use sha2::{Digest, Sha256};
use shardstream::store::Store;
use shardstream::{ErrorKind, SecretUrl};
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Why weights cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network is not built as the exporter builds them.
    #[error(
        "the program has a buffer {buffer} that torchvision's ResNets have no name for: its weights cannot \
         be written to or read from a file"
    )]
    Unnamed {
        /// As the manifest calls it.
        buffer: String,
    },
    /// A state of another network.
    #[error("cannot write the weights: the state does not have the shapes of the manifest ({0})")]
    State(String),
    /// The file could not be written.
    #[error("cannot write the weights to {url}")]
    Write {
        /// The file or object.
        url: SecretUrl,
        /// Why.
        source: shardstream::Error,
    },
    /// The file could not be read.
    #[error("cannot read the weights {url}")]
    Read {
        /// The file or object.
        url: SecretUrl,
        /// Why.
        source: shardstream::Error,
    },
    /// The file could not be put together.
    #[error("cannot put the weights into a safetensors file")]
    Encode(#[source] SafeTensorError),
    /// The file is damaged, or of another format.
    #[error("{url} is no whole safetensors file{}", hint_of_format(*is_pytorch))]
    Format {
        /// The file or object.
        url: SecretUrl,
        /// Whether it begins as PyTorch's own files do.
        is_pytorch: bool,
        /// What is wrong with it.
        source: SafeTensorError,
    },
    /// The file is of another network.
    #[error("the weights {url} do not fit the network {model}: {}", list(differences, *count))]
    Mismatch {
        /// The file or object.
        url: SecretUrl,
        /// What the manifest calls the network.
        model: String,
        /// The first ones.
        differences: Vec<String>,
        /// How many there are.
        count: usize,
    },
    /// A weight that no network can compute with.
    #[error("{values} values of {tensor} are NaN or infinite{}: such weights are not {}", of(url), verb(url))]
    NotFinite {
        /// The file or object; none while it is written.
        url: Option<SecretUrl>,
        /// As torchvision calls it.
        tensor: String,
        /// How many.
        values: usize,
    },
}

/// The result of writing and reading weights.
pub type Result<T> = std::result::Result<T, Error>;

fn hint_of_format(is_pytorch: bool) -> &'static str {
    if is_pytorch {
        ", but one of torch.save: convert it with safetensors.torch.save_file(torch.load(FILE), OUT)"
    } else {
        ""
    }
}

fn list(differences: &[String], count: usize) -> String {
    let rest = count.saturating_sub(differences.len());
    let rest = if rest == 0 { String::new() } else { format!("; and {rest} more") };
    differences.join("; ") + &rest
}

fn of(url: &Option<SecretUrl>) -> String {
    url.as_ref().map(|url| format!(" in {url}")).unwrap_or_default()
}

fn verb(url: &Option<SecretUrl>) -> &'static str {
    if url.is_some() { "used" } else { "written" }
}

/// What a file of weights has for a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The buffers that the file has values for, by their place in the manifest, in the order of the program.
    pub buffers: Vec<(usize, Vec<f32>)>,
    /// Why the last layer is left as it is, if it is.
    pub head: Option<String>,
}

/// Weights that a training begins with.
#[derive(Debug, Clone)]
pub struct Initial {
    url: SecretUrl,
    sha256: String,
    decoded: Decoded,
}

impl Initial {
    /// Reads them from `url`, a file or an object, and checks that they fit. Blocks.
    pub fn read(url: &str, manifest: &Manifest) -> Result<Self> {
        // As it is stored: the name of a file says nothing of compression here.
        let body = Store::default().open_stored(url).and_then(|body| body.read_all());
        let bytes = body.map_err(|source| Error::Read { url: url.into(), source })?;
        let decoded = decode(&bytes, url, manifest)?;
        Ok(Self { url: url.into(), sha256: hex(&Sha256::digest(&bytes)), decoded })
    }

    /// Of the file, in hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Puts them into a state as the program draws it. The rest of it, momentum and a head that does not fit,
    /// stays.
    pub fn apply(self, state: &mut [Vec<f32>]) {
        for (buffer, values) in self.decoded.buffers {
            if let Some(place) = state.get_mut(buffer) {
                *place = values;
            }
        }
    }
}

/// The line of the log. Every rank reads the file by itself, and the digests show whether all read the same.
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

/// A file of weights that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    url: SecretUrl,
    bytes: usize,
    time: Duration,
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (megabytes, seconds) = (self.bytes as f64 / 1e6, self.time.as_secs_f64());
        write!(f, "weights: {megabytes:.1} MB in {seconds:.2} s -> {}", self.url)
    }
}

/// The name of a file in a directory.
const FILE: &str = "model.safetensors";

/// Where weights are written.
#[derive(Debug, Clone)]
pub struct Destination {
    store: Store,
    url: String,
}

impl Destination {
    /// The file or object `url`; in a directory, or under a URL that ends in a slash, `model.safetensors`.
    /// Fails where nothing can be written, so that this does not show only at the end of a training.
    pub fn new(url: &str) -> Result<Self> {
        let url = if url.ends_with('/') || Path::new(url).is_dir() {
            format!("{}/{FILE}", url.trim_end_matches('/'))
        } else {
            url.to_owned()
        };
        if url.starts_with("http://") || url.starts_with("https://") {
            let what = "web servers take no files: name a file, or an object of a bucket";
            let source = ErrorKind::Unsupported(what.into()).into();
            return Err(Error::Write { url: url.into(), source });
        }
        let store = Store::default();
        // What is not finished never appears.
        match store.create(&url) {
            Ok(begun) => drop(begun),
            Err(source) => return Err(Error::Write { url: url.into(), source }),
        }
        Ok(Self { store, url })
    }

    /// Writes the weights of a state: a file that appears whole or not at all. What the store refuses is
    /// tried again after each of `waits`. Blocks.
    pub fn write(&self, manifest: &Manifest, state: &[Vec<f32>], waits: &[Duration]) -> Result<Saved> {
        let start = Instant::now();
        let bytes = encode(manifest, state)?;
        let mut waits = waits.iter();
        loop {
            match (self.put(&bytes), waits.next()) {
                (Ok(()), _) => {
                    let url = SecretUrl::from(&self.url);
                    return Ok(Saved { url, bytes: bytes.len(), time: start.elapsed() });
                }
                (Err(source), None) => return Err(Error::Write { url: SecretUrl::from(&self.url), source }),
                (Err(error), Some(wait)) => {
                    eprintln!("warning: the weights are written again in {wait:?}: {}", with_causes(&error));
                    std::thread::sleep(*wait);
                }
            }
        }
    }

    fn put(&self, bytes: &[u8]) -> shardstream::Result<()> {
        let mut object = self.store.create(&self.url)?;
        object.write_all(bytes)?;
        object.finish()?;
        Ok(())
    }
}

/// Waits before weights that could not be written are tried again: at the end of a training they are all that
/// is left of it.
pub const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];
