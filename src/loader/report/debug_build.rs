//! Whether the library was compiled without optimisation, which makes images and checksums many times slower.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a report and a warning say then.
pub(in crate::loader) const DEBUG_BUILD: &str = "debug build: shardstream was compiled without optimisation, \
     and is many times slower; use `cargo run --release`, or set `opt-level = 2` under \
     `[profile.dev.package.\"*\"]` in Cargo.toml";

/// Number of steps of the loop that is measured.
const STEPS: u32 = 2000;
/// Longest time of a step of optimised code: between 0.4 ns and 9 ns, which it takes with optimisation and
/// without on a core of 3 GHz.
const LIMIT: Duration = Duration::from_nanos(2 * STEPS as u64);

/// Whether this is a debug build without optimisation.
///
/// `debug_assertions` alone do not tell: they stay on in a debug build whose profile optimises this package,
/// and no `cfg` has the level of optimisation. So a loop is measured once.
pub(in crate::loader) fn is_debug_build() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    cfg!(debug_assertions) && *FOUND.get_or_init(|| (0..16).map(|_| time_of_a_loop()).min() > Some(LIMIT))
}

/// The time of a loop over iterators, whose calls only an optimising compiler inlines.
fn time_of_a_loop() -> Duration {
    let start = Instant::now();
    let numbers = (0..black_box(STEPS)).filter(|number| number & 1 == 0).map(|number| number.rotate_left(3));
    black_box(numbers.fold(0, |sum: u32, number| sum ^ number));
    start.elapsed()
}
