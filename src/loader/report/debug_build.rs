//! Whether the library was compiled without optimisation, which makes images and checksums many times slower.

/// What a report and a warning say then.
pub(in crate::loader) const DEBUG_BUILD: &str = "debug build: shardstream was compiled without optimisation, \
     and is many times slower; use `cargo run --release`, or set `opt-level = 2` under \
     `[profile.dev.package.\"*\"]` in Cargo.toml";

/// Whether this is a debug build without optimisation. `debug_assertions` do not tell: they stay on in a
/// debug build whose profile optimises this package. The build script knows the level.
pub(in crate::loader) const fn is_debug_build() -> bool {
    cfg!(unoptimised)
}
