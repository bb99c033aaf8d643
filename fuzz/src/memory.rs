//! A limit on the memory that a target allocates.

/// Runs `work` and asserts that it never holds more than `limit` bytes of memory.
pub(crate) fn within(limit: u64, work: impl FnOnce()) {
    let held = allocation_counter::measure(work).bytes_max;
    assert!(held <= limit, "{held} bytes of memory were held; the limit is {limit}");
}
