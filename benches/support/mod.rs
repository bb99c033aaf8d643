//! What a network is to those who read from it, on one machine: a server, and a line with delay and rates.

pub(crate) mod line;
pub(crate) mod server;
