//! The error type of the crate: what went wrong, where, and what to do about it.
//!
//! [`Error`] and [`ErrorKind`] are both in this file, since each may contain the other. The types of their
//! fields are in `location`, `size_limit` and `value_type`; their methods are in `context`, `display`, `name`
//! and `failure_class`.

mod context;
mod display;
mod failure_class;
mod location;
mod name;
mod size_limit;
mod value_type;

#[doc(hidden)]
pub use failure_class::FailureClass;
pub use location::{Attempts, Location};
#[doc(hidden)]
pub use name::one_of_each;
pub use size_limit::SizeLimit;
pub use value_type::ValueType;

use crate::secret_url::{SecretUrl, SentSecrets};
use std::time::Duration;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type ErrorSource = Box<dyn std::error::Error + Send + Sync>;

/// An error with its location.
///
/// [`kind`](Error::kind) says what went wrong: match on it. [`location`](Error::location) says where: the
/// shard, the byte offset in it, the tar member and the sample key, as far as they are known.
///
/// As usual, `{}` shows this error alone, and [`source`](std::error::Error::source) returns its cause. `{:#}`
/// shows the error with all causes in one line, for logs, and so does `{:?}`, which Rust prints if `main`
/// returns an error.
///
/// None of these forms shows user information or queries of URLs: see [`SecretUrl`].
///
/// ```
/// # use shardstream_base as shardstream;
/// use shardstream::{Error, ErrorKind};
///
/// let error = Error::from(ErrorKind::Truncated { missing: 512 });
/// let error = error.in_shard("train-000007.tar").at_offset(10_240);
/// assert_eq!(error.location().offset(), Some(10_240));
/// assert!(error.to_string().contains("train-000007.tar"));
/// ```
pub struct Error(Box<ErrorDetails>);

struct ErrorDetails {
    kind: ErrorKind,
    location: Location,
    attempts: Option<Attempts>,
    /// The secrets that were sent to a custom source, if this is an error of that source. The error's text
    /// may repeat these secrets.
    repeats: Option<SentSecrets>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A shard pattern could not be expanded.
    #[error(
        "bad shard pattern: {message}\n  {pattern}\n  {caret:>width$}",
        caret = "^",
        width = 1 + pattern.shown_before(*position)
    )]
    Pattern {
        /// The pattern as given.
        pattern: SecretUrl,
        /// The byte position of the error in the whole pattern.
        position: usize,
        /// What is wrong with the pattern.
        message: String,
    },
    /// A `${NAME}` in a shard pattern has no value.
    #[error(
        "the pattern {pattern:?} uses ${{{name}}}, but neither a value nor the environment variable \
         WDS_{name} is given"
    )]
    MissingVariable {
        /// The pattern as given.
        pattern: SecretUrl,
        /// The name of the variable.
        name: String,
    },
    /// A list of shards is empty.
    #[error("no shards: {0}")]
    NoShards(String),
    /// The topology (ranks, workers) is contradictory or cannot be detected.
    #[error("bad topology: {0}")]
    Topology(String),
    /// There are fewer shards than readers, but each reader needs at least one shard.
    #[error(
        "{shards} shards cannot feed {readers} {what}: a reader without a shard would leave the others \
         waiting; use an index, which cuts shards into slices (`DatasetBuilder::auto_index`, or `--index` of \
         the program), or at least {readers} shards, or fewer {what}"
    )]
    TooFewShards {
        /// The number of shards in the list.
        shards: usize,
        /// The number of readers.
        readers: usize,
        /// What the readers are: "ranks", "workers", "streams".
        what: &'static str,
    },
    /// An option or a combination of options is invalid.
    #[error("bad option: {0}")]
    Config(String),
    /// A `State` cannot be read, merged or restored.
    #[error("the state cannot be used: {0}")]
    State(String),
    /// There is no such object or file.
    #[error("not found")]
    NotFound(#[source] ErrorSource),
    /// The store refused access.
    #[error("access denied: check the credentials, and that they may read or write this place")]
    Denied(#[source] ErrorSource),
    /// The scheme of a URL is unknown, or its feature is not compiled in.
    #[error("cannot open {scheme}:// URLs: {hint}")]
    UnsupportedScheme {
        /// The scheme, without `://`.
        scheme: String,
        /// What to do.
        hint: String,
    },
    /// The store does not support the operation, such as listing a web server.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The compression of a shard or a field is unknown, or its feature is not compiled in.
    #[error("{0}")]
    UnsupportedCompression(String),
    /// The compressed data of a shard is damaged or truncated. Errors of the disk or the network have other
    /// kinds.
    ///
    /// [`Location::offset`] is the number of bytes that were decompressed before the error.
    #[error("damaged {compression} data: the object cannot be decompressed from about its byte {offset} on")]
    Decompress {
        /// The compression: "gzip" or "zstd".
        compression: &'static str,
        /// Number of compressed bytes that the decoder had consumed without an error. If a checksum at the
        /// end of the data found the damage, the damage may be anywhere before this byte.
        offset: u64,
        /// The decoder's own error.
        #[source]
        source: std::io::Error,
    },
    /// The number of bytes received differs from the object's length.
    #[error("the object has {expected} bytes, but {received} were received")]
    Length {
        /// The length that the store announced.
        expected: u64,
        /// The number of bytes received.
        received: u64,
    },
    /// The object changed while it was being read.
    #[error("the object changed while it was being read (version {before} became {after})")]
    Changed {
        /// The version (ETag, generation or modification time) when reading began.
        before: String,
        /// The version found later.
        after: String,
    },
    /// A shard has changed since it was indexed, or since a state was taken.
    #[error(
        "the shard has changed: {then} when it was indexed or a state was taken, and {now} now; put it back, \
         or build the index again and begin an epoch anew (for a copy, which has a version of its own, use \
         an index with checksums, which decide, or `Index::without_versions`, in the program \
         `--without-versions`)"
    )]
    Stale {
        /// The shard's size and version, or its number of samples, when it was indexed or the state was
        /// taken.
        then: String,
        /// The shard's current size and version, or its current number of samples.
        now: String,
    },
    /// The operating system or the network reported an error.
    #[error("input/output error")]
    Io(#[from] std::io::Error),
    /// The object store reported an error.
    #[error("object store error")]
    Store(#[source] ErrorSource),
    /// The store asks its clients to slow down, or is temporarily unavailable.
    #[error("the store is busy{}", pause(*retry_after))]
    Busy {
        /// The pause that the store asks for before the next try.
        retry_after: Option<Duration>,
        /// The error of the store.
        source: ErrorSource,
    },
    /// The bytes of an object do not match the checksum in its store.
    #[error(
        "the object is damaged, or was damaged in transit: its checksum should be {expected} and is \
         {received}; samples that were read from it before this error may be wrong"
    )]
    Damaged {
        /// The checksum in the store.
        expected: String,
        /// The checksum of the received bytes.
        received: String,
    },
    /// The bytes of a sample do not match the checksum in the index.
    #[error(
        "the sample is damaged: the CRC-32C of what was read is {received:08x}, and {expected:08x} in the \
         index; read it again to see whether it was damaged in transit, or fetch or write the shard again"
    )]
    SampleChecksum {
        /// The checksum in the index.
        expected: u32,
        /// The checksum of the bytes that were read.
        received: u32,
    },
    /// A file of a `Cache` was damaged, and damaged again after the cache had fetched its bytes a second
    /// time. None of the damaged bytes have been returned.
    #[error(
        "the cache file {} was damaged again after it was refetched: the checksum of a block should be \
         {expected} and is {received}; check the disk, or use another disk for the cache",
        file.display()
    )]
    DamagedCache {
        /// The file, which has been removed.
        file: std::path::PathBuf,
        /// The checksum of the block when it was written.
        expected: String,
        /// The checksum of the bytes that were read.
        received: String,
    },
    /// Reading was stopped before its end, by a `Stopper` or because its consumer was dropped.
    #[error("the reading was stopped")]
    Stopped,
    /// The shard ends inside a member, or has no end-of-archive marker.
    #[error("the tar archive is truncated: at least {missing} more bytes are needed")]
    Truncated {
        /// A lower bound of the number of missing bytes.
        missing: u64,
    },
    /// The end-of-archive marker of a tar archive is in the wrong place, or data or too many zeros follow it:
    /// a region of the shard was probably overwritten with zeros, and samples are missing.
    /// [`Location::offset`] is the offset of the first wrong byte.
    #[error("bad end of the tar archive: {0}")]
    ArchiveEnd(String),
    /// A tar header's checksum does not match its bytes.
    #[error("bad tar header checksum: the shard is damaged here")]
    Checksum,
    /// A tar header or extension is malformed.
    #[error("bad tar header: {0}")]
    Header(String),
    /// The file does not have the expected format, or is not compressed as its name says. No policy skips
    /// this error, since it seldom means damage. The usual cause is a pattern that matches an unrelated file,
    /// or shards that were never fetched.
    #[error("this is {found}, and no {expected}{remedy}; it begins with `{beginning}`")]
    NotAnArchive {
        /// What the file seems to be, such as "a Git LFS pointer".
        found: &'static str,
        /// What the file should be: "tar archive", "JSON lines", "gzip data" or "zstd data".
        expected: &'static str,
        /// What to do, beginning with a colon; may be empty.
        remedy: &'static str,
        /// The first line or bytes, escaped and shortened, with possible secrets removed.
        beginning: String,
    },
    /// A document is not an index of shards, or contradicts itself.
    #[error("bad index of shards: {0}")]
    Index(String),
    /// A size in the input exceeds a limit of the reader.
    #[error("{what} of {size} bytes exceeds the limit of {limit} bytes{}", what.hint())]
    TooLarge {
        /// What is too large.
        what: SizeLimit,
        /// The size of what is too large, in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A sample has more members than a reader accepts.
    #[error(
        "the sample has more than {limit} members: set `tar::Limits::members` (`--limit members=COUNT` in \
         the program), or check how the shard's members are named"
    )]
    TooManyMembers {
        /// The limit.
        limit: u64,
    },
    /// A sample has two members with the same extension.
    #[error("duplicate member: the sample already has a field {field:?}")]
    DuplicateMember {
        /// The field (extension) that occurs twice.
        field: String,
    },
    /// A shard in a format other than tar is malformed, in a way for which there is no other `ErrorKind`.
    #[error("bad data in the shard: {0}")]
    Format(String),
    /// The members of one sample are not adjacent in the shard.
    #[error(
        "the members of this key are not adjacent in the shard: `shardstream reshard --limit unsorted=1GiB` \
         writes shards in which they are"
    )]
    ScatteredSample,
    /// A `dataset::Side` has no sample of this key.
    #[error("the joined shard has no sample of this key{}", missing_sample_hint(*damaged))]
    MissingSample {
        /// Whether the joined shard is damaged. If so, the sample may be in the part that cannot be read.
        damaged: bool,
    },
    /// No sample has the key that was looked up.
    #[error("no sample has this key: {searched} were searched")]
    NoSuchKey {
        /// The keys that were searched.
        searched: String,
    },
    /// Several samples have the key that was looked up.
    #[error(
        "the key is not unique: {first} has it, and so has {second}; look the sample up by its position, or \
         write the shards with keys that are unique (`shardstream reshard --rekey`)"
    )]
    RepeatedKey {
        /// The first sample with the key.
        first: String,
        /// The next sample with the key.
        second: String,
    },
    /// A sample and the joined sample of a `dataset::Side` have a field of the same name.
    #[error("the sample that is joined has a field {field:?} too: give the side a `Side::prefix`")]
    FieldConflict {
        /// The field.
        field: String,
    },
    /// A sample lacks a field.
    #[error("the sample has no field {wanted:?}; it has: {present}")]
    MissingField {
        /// The field asked for; alternatives are separated by `;`.
        wanted: String,
        /// The fields that are present.
        present: String,
    },
    /// A batch lacks a tensor.
    #[error("the batch has no tensor {name:?}; it has: {available}")]
    MissingTensor {
        /// The tensor asked for.
        name: String,
        /// The tensors that are in the batch now. Tensors that were taken out of the batch are not among
        /// them.
        available: String,
    },
    /// The value of a field has another type than the requested one.
    #[error("the field {field:?} holds {found}, not {wanted}{}", wanted.hint(*found))]
    WrongType {
        /// The field.
        field: String,
        /// The type asked for.
        wanted: ValueType,
        /// The type found.
        found: ValueType,
    },
    /// A field could not be decoded.
    #[error("cannot decode the field {field:?}")]
    Decode {
        /// The field.
        field: String,
        /// The decoder's own error.
        #[source]
        source: ErrorSource,
    },
    /// A field could not be encoded.
    #[error("cannot encode the field {field:?}")]
    Encode {
        /// The field.
        field: String,
        /// The encoder's own error.
        #[source]
        source: ErrorSource,
    },
    /// A field contains a Python pickle, which could run any code.
    #[error(
        "the field {field:?} is a Python pickle, which can run any code when it is loaded: shardstream does \
         not read it; leave the field undecoded, add a decoder of your own for it, or rewrite the shards \
         with npy or json"
    )]
    Pickle {
        /// The field.
        field: String,
    },
    /// An array has another type or shape than the requested one.
    #[error("{0}")]
    Array(ErrorSource),
    /// A sample was not written, because reading it back would give a different sample.
    #[error("this sample would not read back as it is: {0}")]
    Unwritable(String),
    /// A step supplied by the caller failed.
    #[error("a pipeline step failed")]
    Step(#[source] ErrorSource),
    /// A step supplied by the caller panicked on a thread of the pipeline.
    #[error("a pipeline thread panicked: {0}")]
    Panicked(String),
    /// A task that reads, lists or writes objects panicked, in the caller's `Source` or by a bug in this
    /// crate. No policy skips this error, since it does not concern a single sample.
    #[error("reading or writing objects panicked, in a `Source` or in shardstream itself: {0}")]
    SourcePanicked(String),
    /// More failures would have been skipped than an `OnError` allows.
    #[error(
        "more failures than the loader may skip: {limit}, and {skipped} were skipped before this one; find \
         the cause of the last one, or raise the limit of `OnError`"
    )]
    TooManySkipped {
        /// The limit that was reached.
        limit: String,
        /// Number of failures that were skipped before the last one. For a limit on failures in a row: the
        /// stream's failures since its last success. For any other limit: all failures of the rank.
        skipped: u64,
        /// The failure that was not skipped.
        #[source]
        last: Error,
    },
}

/// The pause that a store asks for, as the end of a message.
fn pause(time: Option<Duration>) -> String {
    time.map_or_else(String::new, |time| format!(": it asks to wait {time:?}"))
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Error(Box::new(ErrorDetails { kind, location: Location::default(), attempts: None, repeats: None }))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        ErrorKind::from(error).into()
    }
}

/// What to do if a joined shard lacks the sample of a key, as the end of a message.
fn missing_sample_hint(damaged: bool) -> &'static str {
    match damaged {
        true => ": the shard is damaged, as an earlier error says, and the rest of it cannot be read",
        false => ": write it there, or choose by `Side::missing` what happens to this sample",
    }
}

#[cfg(test)]
mod tests;
