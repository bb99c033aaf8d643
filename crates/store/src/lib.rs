//! Reads, lists and writes objects in clouds, on web servers and on disks. Use this crate as
//! `shardstream::store`: the API under that path is stable. The items that only the library uses are hidden
//! from the documentation.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "http")]
mod bearer;
mod body;
mod bucket;
mod budget;
mod builder;
mod cache;
mod checksum;
#[cfg(feature = "transport")]
mod client;
mod cloud;
mod compression;
#[cfg(feature = "cloud")]
mod connector;
#[cfg(any(feature = "gcs", feature = "s3"))]
mod credentials;
mod custom_source;
mod decompress;
#[cfg(feature = "transport")]
mod environment;
mod failure;
mod fetch;
mod host_pause;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod http_headers;
#[cfg(feature = "transport")]
mod http_time;
#[cfg(feature = "http")]
mod hub;
mod key;
mod listing;
mod local;
mod location;
mod meter;
mod multipart;
mod object;
mod object_cell;
mod object_sums;
mod object_url;
mod object_version;
mod offload;
mod put_condition;
mod ranges;
mod recording;
mod report;
mod requests;
#[cfg(feature = "transport")]
mod response;
mod runtime;
mod server_url;
mod source;
mod source_registry;
mod store;
#[cfg(feature = "transport")]
mod transport;
mod upload;

pub use body::{Body, Stopper};
pub use budget::Budget;
pub use budget::{ReadAheadMemory, ReadQueue};
pub use builder::StoreBuilder;
pub use cache::{Cache, CacheBuilder};
pub use checksum::Checksum;
pub use compression::{Compression, SHARD_SUFFIXES, shard_stem};
pub use compression::{is_json_lines_name, is_shard_name};
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub use http_headers::HttpHeaders;
pub use local::{PartialDirectory, private_file, remove_partial_files};
pub use object_cell::ObjectCell;
pub use object_store;
pub use object_sums::{ObjectSums, RunningSums};
pub use object_url::ObjectUrl;
pub use object_version::{ObjectVersion, VersionComparison};
pub use put_condition::PutCondition;
pub use ranges::RangeRequests;
pub use recording::RequestRecording;
pub use report::{FileReport, SourceReport, StoreReport};
pub use requests::{RequestPhase, RequestReport};
/// For tests over TLS.
#[cfg(feature = "transport")]
#[doc(hidden)]
pub use rustls;
pub use source::{GetOptions, GetResponse, ObjectInfo, Source};
pub use store::Store;
pub use upload::ObjectWriter;
pub use upload::WriteOptions;
pub use upload::write_to;

use shardstream_base::{
    Error, ErrorKind, Result, SecretUrl, activity, aligned, error, memory, panic, read_buffer, seconds,
    secret_url, telemetry, wait,
};
