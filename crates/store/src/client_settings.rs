//! The settings of clients that a store makes.

use super::fetch::FetchLimits;
use super::transport_choice::Transport;

/// Settings of the clients that a store makes by itself, beside those of the environment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClientSettings {
    #[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "for clients of clouds"))]
    pub(super) limits: FetchLimits,
    /// The HTTP client for bodies of objects.
    pub(super) transport: Transport,
}
