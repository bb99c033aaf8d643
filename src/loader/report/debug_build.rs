//! Detects a library that was compiled without optimisation. In such a library, decoding and checksums are
//! many times slower than in an optimised one.

/// The text for reports and warnings of a library that was compiled without optimisation.
pub(in crate::loader) const DEBUG_BUILD: &str = "debug build: shardstream was compiled without optimisation, \
     and is many times slower; use `cargo run --release`, or set `opt-level = 2` under \
     `[profile.dev.package.\"*\"]` in Cargo.toml";

/// Whether this package was compiled without optimisation, as the build script has found out.
/// (`debug_assertions` would not show that: they are also on in a debug build whose profile optimises this
/// package.)
pub(in crate::loader) const fn is_debug_build() -> bool {
    cfg!(unoptimised)
}
