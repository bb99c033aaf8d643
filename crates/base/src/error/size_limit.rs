//! The sizes that are limited.

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
    /// The bytes of an archive between two members of a sample.
    MemberDistance,
    /// The data that a compressed object becomes.
    DecompressedData,
    /// The data that a compressed field becomes.
    DecompressedField,
    /// The memory of a JSON document that was parsed.
    ParsedJson,
    /// The header of a safetensors file.
    SafetensorsHeader,
    /// The memory of the keys of a joined shard.
    SideKeys,
    /// The text of an index.
    Index,
    /// The memory of an index that was parsed.
    ParsedIndex,
    /// The part of one shard in an index in the compact form.
    CompactShard,
    /// The text of a saved state.
    State,
    /// The memory of a listing.
    Listing,
    /// Any other document that is read whole.
    Document,
    /// The status and the headers of a response.
    ResponseHead,
    /// A response that is read whole, and is no object.
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

    /// The option that sets the limit, for the end of a message.
    pub(super) fn hint(self) -> &'static str {
        match self {
            SizeLimit::Sample => {
                ": set `tar::Limits::sample` if the shard is to be trusted (`--limit sample=SIZE` in the \
                 program)"
            }
            SizeLimit::Member => {
                ": set `tar::Limits::member` if the shard is to be trusted (`--limit member=SIZE` in the \
                 program)"
            }
            SizeLimit::ExtensionHeader => {
                ": set `tar::Limits::extension` if the shard is to be trusted (`--limit extension=SIZE` in \
                 the program)"
            }
            SizeLimit::MemberDistance => {
                ": set `tar::Limits::unsorted`, which takes as much memory (`--limit unsorted=SIZE` in the \
                 program)"
            }
            SizeLimit::DecompressedData => {
                ": set `StoreBuilder::max_expansion` if the object is to be trusted"
            }
            SizeLimit::ParsedJson => ": if it is to be trusted, decode it with a larger `Decoder::max_size`",
            SizeLimit::SideKeys => ": set `Side::key_bytes` if the shard is to be trusted",
            SizeLimit::ParsedIndex => ": load it uncompressed if it is to be trusted",
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

    /// Whether it is the size of a part of a shard, rather than that of something that belongs to no shard.
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
