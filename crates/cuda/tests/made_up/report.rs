//! The state of the fake driver, for the tests.

/// Counts of the fake driver's calls and objects.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Report {
    /// Number of ranges that are pinned now.
    pub(crate) registered: usize,
    /// Number of times that memory was pinned.
    pub(crate) registrations: usize,
    /// Number of retained contexts that are not released yet.
    pub(crate) contexts: i64,
    /// Events that exist.
    pub(crate) events: i64,
    /// Number of contexts on the calling thread's stack of contexts.
    pub(crate) depth: usize,
    /// Number of calls without a current context, or with an object that does not exist.
    pub(crate) misuses: usize,
}
