//! The parts that the crates of [shardstream](https://docs.rs/shardstream) share: one error with a location,
//! URLs that show no secret, one portable random generator, numeric element types, blocking waits that
//! another thread can interrupt, counters of memory and of threads' activities, and read buffers.
//!
//! Its API is not stable, and most of it is hidden: use `shardstream`, which exports the items that are meant
//! for users.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod activity;
#[doc(hidden)]
pub mod aligned;
#[doc(hidden)]
pub mod dtype;
pub mod error;
#[doc(hidden)]
pub mod file_kind;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod panic;
#[doc(hidden)]
pub mod read_buffer;
#[doc(hidden)]
pub mod rng;
#[doc(hidden)]
pub mod seconds;
#[doc(hidden)]
pub mod secret_url;
#[doc(hidden)]
pub mod telemetry;
#[doc(hidden)]
pub mod wait;

pub use activity::Activity;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use rng::Rng;
pub use secret_url::SecretUrl;
