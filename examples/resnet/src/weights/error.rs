//! Why weights cannot be written or used.

use safetensors::SafeTensorError;
use shardstream::SecretUrl;

/// Why weights cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The network is not one of the exporter's.
    #[error(
        "the program has a buffer {buffer} that torchvision's ResNets have no name for: its weights cannot \
         be written to or read from a file"
    )]
    Unnamed {
        /// Its name in the manifest.
        buffer: String,
    },
    /// The state belongs to another network.
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
    #[error("{url} is no whole safetensors file{}", hint_of_format(*is_pytorch))]
    Format {
        /// The file or object.
        url: SecretUrl,
        /// Whether it begins as PyTorch's own files do.
        is_pytorch: bool,
        /// What is wrong with it.
        source: SafeTensorError,
    },
    /// The file belongs to another network.
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
    /// Weights are NaN or infinite.
    #[error(
        "{values} values of {tensor} are NaN or infinite{}: such weights are not {}",
        in_url(url),
        verb(url)
    )]
    NotFinite {
        /// The file or object; `None` if the weights were to be written.
        url: Option<SecretUrl>,
        /// Torchvision's name.
        tensor: String,
        /// Number of such values.
        values: usize,
    },
}

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

fn in_url(url: &Option<SecretUrl>) -> String {
    url.as_ref().map(|url| format!(" in {url}")).unwrap_or_default()
}

fn verb(url: &Option<SecretUrl>) -> &'static str {
    if url.is_some() { "used" } else { "written" }
}
