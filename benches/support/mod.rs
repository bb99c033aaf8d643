//! A simulated network on one machine: a server, and a link with delay and rates.

pub(crate) mod line;
pub(crate) mod server;
pub(crate) mod tls;
