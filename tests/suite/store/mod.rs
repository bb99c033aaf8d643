//! One suite for all stores, and tests of misbehaving servers.
//!
//! The tests that use [`builder`] run once more over the other HTTP client, see `over_reqwest`.

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
mod over_reqwest;
#[cfg(unix)]
mod places;
mod ranged;
mod ranges;
#[cfg(feature = "gcs")]
mod retries;
#[cfg(feature = "http")]
mod transport;
#[cfg(feature = "gcs")]
mod uploads;
#[cfg(feature = "http")]
mod versions;

use shardstream::store::{Store, StoreBuilder};

/// The variable that names the HTTP client under test.
const TRANSPORT: &str = "SHARDSTREAM_TEST_TRANSPORT";

/// The builder of a store that fetches bodies with the HTTP client that the environment names.
pub(crate) fn builder() -> StoreBuilder {
    let transport = std::env::var(TRANSPORT).map_or_else(|_| Ok(Default::default()), |name| name.parse());
    Store::builder().transport(transport.unwrap())
}
