//! One suite for all places that objects can lie in, and what happens when a server misbehaves.

mod blocking;
mod cache;
#[cfg(all(feature = "gcs", feature = "s3"))]
mod clouds;
mod conformance;
#[cfg(any(feature = "gcs", feature = "s3", feature = "azure"))]
mod emulators;
#[cfg(any(feature = "gcs", feature = "http"))]
mod faults;
#[cfg(feature = "http")]
mod http;
mod ranged;
mod ranges;
#[cfg(feature = "gcs")]
mod retries;
#[cfg(feature = "http")]
mod transport;
#[cfg(feature = "gcs")]
mod uploads;
