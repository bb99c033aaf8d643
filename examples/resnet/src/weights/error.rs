//! Errors of files of weights.

use safetensors::SafeTensorError;
use shardstream::SecretUrl;

/// An error of writing or reading a file of weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A buffer of the program has no name in torchvision's ResNets.
    #[error(
        "torchvision's ResNets have no name for the program's buffer {buffer}: its weights cannot be written \
         to or read from a file"
    )]
    Unnamed {
        /// The name of the buffer in the manifest.
        buffer: String,
    },
    /// The state does not have the shapes of the network.
    #[error("cannot write the weights: the state does not have the shapes of the manifest ({0})")]
    State(String),
    /// The file could not be written.
    #[error("cannot write the weights to {url}")]
    Write {
        /// The file or object.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
    /// The file could not be read.
    #[error("cannot read the weights {url}")]
    Read {
        /// The file or object.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
    /// The file could not be encoded.
    #[error("cannot put the weights into a safetensors file")]
    Encode(#[source] SafeTensorError),
    /// The file is damaged, or of another format.
    #[error("{url} is not a complete safetensors file{}", hint_of_format(*is_pytorch))]
    Format {
        /// The file or object.
        url: SecretUrl,
        /// Whether the file begins like a file of `torch.save`.
        is_pytorch: bool,
        /// The cause.
        source: SafeTensorError,
    },
    /// The tensors of the file do not fit the network.
    #[error("the weights {url} do not fit the network {model}: {}", list(differences, *count))]
    Mismatch {
        /// The file or object.
        url: SecretUrl,
        /// The name of the network in the manifest.
        model: String,
        /// The first few differences.
        differences: Vec<String>,
        /// Number of all differences.
        count: usize,
    },
    /// The file or the state has values that are NaN or infinite.
    #[error(
        "{values} values of {tensor} are NaN or infinite{}: such weights are not {}",
        in_url(url),
        verb(url)
    )]
    NotFinite {
        /// The file or object that was read; `None` on writing.
        url: Option<SecretUrl>,
        /// Torchvision's name of the tensor.
        tensor: String,
        /// Number of values that are NaN or infinite.
        values: usize,
    },
}

fn hint_of_format(is_pytorch: bool) -> &'static str {
    if is_pytorch {
        ", but a file of torch.save: convert it with safetensors.torch.save_file(torch.load(FILE), OUT)"
    } else {
        ""
    }
}

fn list(differences: &[String], count: usize) -> String {
    let rest = count.saturating_sub(differences.len());
    let rest = if rest == 0 { String::new() } else { format!("; and {rest} more") };
    differences.join("; ") + &rest
}

fn in_url(url: &Option<SecretUrl>) -> String {
    url.as_ref().map(|url| format!(" in {url}")).unwrap_or_default()
}

fn verb(url: &Option<SecretUrl>) -> &'static str {
    if url.is_some() { "used" } else { "written" }
}
