//! The sizes that have a limit.

use std::fmt;

/// What exceeds a limit, in [`ErrorKind::TooLarge`](super::ErrorKind::TooLarge).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SizeLimit {
    /// The fields of a sample together.
    Sample,
    /// A member of a tar archive.
    Member,
    /// An extension header of a tar archive: a long name, for example.
    ExtensionHeader,
    /// The distance in bytes between two members of a sample in an archive.
    MemberDistance,
    /// The decompressed data of an object.
    DecompressedData,
    /// The decompressed data of a field.
    DecompressedField,
    /// The memory that a parsed JSON document takes.
    ParsedJson,
    /// The header of a safetensors file.
    SafetensorsHeader,
    /// The memory that the keys of a joined shard take.
    SideKeys,
    /// The text of an index.
    Index,
    /// The memory that a parsed index takes.
    ParsedIndex,
    /// The part of a compact index that describes one shard.
    CompactShard,
    /// The text of a saved state.
    State,
    /// The memory that the objects of a listing take.
    Listing,
    /// Any other document that is read whole.
    Document,
    /// The status and the headers of a response.
    ResponseHead,
    /// A response that is not an object and is read whole: a listing, a credential, an error.
    Response,
}

impl SizeLimit {
    /// What is too large, as the beginning of a message.
    fn text(self) -> &'static str {
        match self {
            SizeLimit::Sample => "a sample",
            SizeLimit::Member => "a tar member",
            SizeLimit::ExtensionHeader => "a tar extension header",
            SizeLimit::MemberDistance => "a distance between members of this key",
            SizeLimit::DecompressedData => "decompressed data",
            SizeLimit::DecompressedField => "decompressed field",
            SizeLimit::ParsedJson => "a parsed JSON document",
            SizeLimit::SafetensorsHeader => "the header of a safetensors file",
            SizeLimit::SideKeys => "the keys of a side's shard",
            SizeLimit::Index => "an index",
            SizeLimit::ParsedIndex => "a parsed index",
            SizeLimit::CompactShard => "a shard in a compact index",
            SizeLimit::State => "the state",
            SizeLimit::Listing => "a listing",
            SizeLimit::Document => "a document",
            SizeLimit::ResponseHead => "the head of a response",
            SizeLimit::Response => "a response that is no object",
        }
    }

    /// The option that sets the limit, as the end of a message.
    pub(super) fn hint(self) -> &'static str {
        match self {
            SizeLimit::Sample => {
                ": set `tar::Limits::sample` if you trust the shard (`--limit sample=SIZE` in the \
                 program)"
            }
            SizeLimit::Member => {
                ": set `tar::Limits::member` if you trust the shard (`--limit member=SIZE` in the \
                 program)"
            }
            SizeLimit::ExtensionHeader => {
                ": set `tar::Limits::extension` if you trust the shard (`--limit extension=SIZE` in \
                 the program)"
            }
            SizeLimit::MemberDistance => {
                ": raise `tar::Limits::unsorted`, which takes as much memory (`--limit unsorted=SIZE` in the \
                 program)"
            }
            SizeLimit::DecompressedData => ": set `StoreBuilder::max_expansion` if you trust the object",
            SizeLimit::ParsedJson => ": if you trust it, decode it with a larger `Decoder::max_size`",
            SizeLimit::SideKeys => ": set `Side::key_bytes` if you trust the shard",
            SizeLimit::ParsedIndex => ": load it uncompressed if you trust it",
            SizeLimit::Listing => " of names in memory: list a directory below it",
            SizeLimit::DecompressedField
            | SizeLimit::SafetensorsHeader
            | SizeLimit::Index
            | SizeLimit::CompactShard
            | SizeLimit::State
            | SizeLimit::Document
            | SizeLimit::ResponseHead
            | SizeLimit::Response => "",
        }
    }

    /// Whether this limit applies to data in a shard. If a limit applies to other data, no policy skips the
    /// error for exceeding that limit.
    pub(super) fn is_of_shard(self) -> bool {
        match self {
            SizeLimit::Sample
            | SizeLimit::Member
            | SizeLimit::ExtensionHeader
            | SizeLimit::MemberDistance
            | SizeLimit::DecompressedData
            | SizeLimit::DecompressedField
            | SizeLimit::ParsedJson
            | SizeLimit::SafetensorsHeader
            | SizeLimit::SideKeys => true,
            SizeLimit::Index
            | SizeLimit::ParsedIndex
            | SizeLimit::CompactShard
            | SizeLimit::State
            | SizeLimit::Listing
            | SizeLimit::Document
            | SizeLimit::ResponseHead
            | SizeLimit::Response => false,
        }
    }
}

impl fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
