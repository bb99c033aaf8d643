//! The conformance suite for all stores, and tests with misbehaving servers.

mod blocking;
mod cache;
#[cfg(all(feature = "gcs", feature = "s3"))]
mod clouds;
mod conformance;
#[cfg(all(feature = "gcs", feature = "s3"))]
mod credentials;
#[cfg(any(feature = "gcs", feature = "s3", feature = "azure"))]
mod emulators;
#[cfg(any(feature = "gcs", feature = "http"))]
mod faults;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod hub;
#[cfg(unix)]
mod places;
mod ranged;
mod ranges;
#[cfg(feature = "gcs")]
mod retries;
#[cfg(feature = "http")]
mod surplus;
#[cfg(feature = "http")]
mod transport;
#[cfg(feature = "gcs")]
mod uploads;
#[cfg(feature = "http")]
mod versions;
