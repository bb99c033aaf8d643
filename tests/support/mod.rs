//! What the integration tests share: servers that answer, or misbehave, as a test tells them to.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod bucket;
pub(crate) mod server;

/// Bytes in which every position is different enough from its neighbours to notice a shift.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ length as u64;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(step).collect()
}
