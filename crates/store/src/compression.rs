//! The compression of an object, which the suffix of its name determines.

use super::object_url::ObjectUrl;

/// Suffixes of the names of shards that can be read and written.
#[doc(hidden)]
pub const SHARD_SUFFIXES: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];

/// The compression of an object.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// The compression that the suffix of the object's name stands for; `None` if the name has no such
    /// suffix.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::Compression;
    ///
    /// assert_eq!(Compression::of("gs://bucket/train-000000.tar.gz"), Some(Compression::Gzip));
    /// assert_eq!(Compression::of("https://host/a.tar?signature=a.gz"), None);
    /// ```
    #[must_use]
    pub fn of(url: &str) -> Option<Self> {
        let name = ObjectUrl::parse(url).file_name().to_ascii_lowercase();
        let has_suffix =
            |compression: &Self| compression.suffixes().iter().any(|suffix| name.ends_with(suffix));
        [Compression::Gzip, Compression::Zstd].into_iter().find(has_suffix)
    }

    fn suffixes(self) -> [&'static str; 2] {
        match self {
            Compression::Gzip => [".gz", ".tgz"],
            Compression::Zstd => [".zst", ".tzst"],
        }
    }
}

/// The name of a shard without its suffix; `None` if it is not the name of a shard. Case matters, as it does
/// when shards are written.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::shard_stem;
///
/// assert_eq!(shard_stem("train-000000.tar.gz"), Some("train-000000"));
/// assert_eq!(shard_stem("train.index.json"), None);
/// ```
#[doc(hidden)]
#[must_use]
pub fn shard_stem(name: &str) -> Option<&str> {
    SHARD_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix))
}

/// Whether this is the name of a file of JSON lines, compressed or not. Case does not matter.
#[doc(hidden)]
#[must_use]
pub fn is_json_lines_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let plain = [".gz", ".zst"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name);
    plain.ends_with(".jsonl") || plain.ends_with(".ndjson")
}

/// Whether this is the name of a tar shard. Case does not matter.
#[doc(hidden)]
pub fn is_shard_name(name: &str) -> bool {
    shard_stem(&name.to_ascii_lowercase()).is_some()
}
