//! A simulated network on one machine: servers, and links with a delay and rate limits.

pub(crate) mod link;
pub(crate) mod server;
pub(crate) mod tls;
