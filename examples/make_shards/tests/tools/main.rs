//! The tests of the tools that make shards.

mod cifar;
#[cfg(all(unix, feature = "gcs"))]
mod commands;
mod imagefolder;
mod pickle;

// The server that the library's own tests use.
#[cfg(feature = "gcs")]
#[allow(dead_code)]
#[path = "../../../../tests/support/bucket.rs"]
mod bucket;
#[cfg(feature = "gcs")]
#[allow(dead_code)]
#[path = "../../../../tests/support/server.rs"]
mod server;
