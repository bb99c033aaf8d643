//! The tests of the tool that makes shards of CIFAR-10.

mod cifar;
#[cfg(all(unix, feature = "gcs"))]
mod commands;
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
