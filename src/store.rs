//! Reading, writing and listing objects: local files, object stores, web servers, and sources of your own.
//!
//! | URL | place | feature |
//! |---|---|---|
//! | a path, `file:` | local files | |
//! | `gs://bucket/key` | Google Cloud Storage | `gcs` |
//! | `s3://bucket/key` | Amazon S3 and compatible stores | `s3` |
//! | `az://container/key`, `abfss://container@account.dfs.core.windows.net/key` | Azure Blob Storage | `azure` |
//! | `http://`, `https://` | web servers, signed URLs | `http` |
//! | `hf://datasets/OWNER/NAME@REVISION/path` | datasets of the Hugging Face Hub | `http` |
//!
//! A bucket URL contains the key as it is, without percent-encoding; a key may contain `//`. Keys that begin
//! with `/`, or have a part `.` or `..`, are listed, but cannot be read. Objects whose names end in `.gz` or
//! `.zst` (`.tgz`, `.tzst`) are decompressed while they are read.
//!
//! Cloud clients read their settings from environment variables with the names that `object_store` uses:
//! `GOOGLE_…`, `AWS_…` and `AZURE_…`, and `STORAGE_EMULATOR_HOST` for an emulator of Google Cloud Storage.
//! Public buckets are read without credentials if `GOOGLE_SKIP_SIGNATURE`, `AWS_SKIP_SIGNATURE` or
//! `AZURE_SKIP_SIGNATURE` is `true`. If the requester pays for a bucket's requests, set
//! `AWS_REQUEST_PAYER=requester` or `GOOGLE_USER_PROJECT` (the project that is billed).
//!
//! An object is read in bounded ranges of one pinned version, and the length of each range is checked: the
//! result is the object as it was at one moment, or an error. Error messages contain neither passwords nor
//! the query of a signed URL.

#[doc(hidden)]
pub use crate::wait::interrupt_process;
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
#[doc(inline)]
pub use shardstream_store::HttpHeaders;
pub use shardstream_store::object_store;
#[cfg(feature = "http")]
#[doc(hidden)]
pub use shardstream_store::rustls;
#[doc(inline)]
pub use shardstream_store::{
    Body, Budget, Cache, CacheBuilder, Checksum, FileReport, GetOptions, GetResponse, ObjectInfo, ObjectUrl,
    ObjectVersion, ObjectWriter, PutCondition, RangeRequests, RequestPhase, RequestRecording, RequestReport,
    Source, SourceReport, Stopper, Store, StoreBuilder, StoreReport, VersionComparison,
};
#[doc(hidden)]
pub use shardstream_store::{
    Compression, ObjectSums, PartialDirectory, RunningSums, SHARD_SUFFIXES, WriteOptions, private_file,
    remove_partial_files, shard_stem,
};
pub(crate) use shardstream_store::{
    ObjectCell, ReadAheadMemory, ReadQueue, is_json_lines_name, is_shard_name, write_to,
};
