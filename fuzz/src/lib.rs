//! Fuzz targets: functions that take any bytes and panic if the library breaks one of its guarantees.
//!
//! `cargo test -p shardstream-fuzz` calls the targets with the files of `corpus/` and with mutations of these
//! files; this takes seconds. `just fuzz TARGET SECONDS` runs libFuzzer, which looks for inputs that reach
//! new code. Inputs that made a target fail are kept in the corpus.

#[cfg(test)]
mod tests;

mod audio;
mod braces;
mod columns;
mod image;
mod image_headers;
mod index;
mod json;
mod json_lines;
mod memory;
mod mixture;
mod npy;
mod parquet;
mod pickle;
mod shidx;
mod shkeys;
mod stages;
mod state;
mod tar;
mod urls;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// The targets by name. The files of a target's corpus are in `corpus/NAME`.
pub const TARGETS: [(&str, Target); 18] = [
    ("audio", audio::run),
    ("braces", braces::run),
    ("columns", columns::run),
    ("image", image::run),
    ("image_headers", image_headers::run),
    ("index", index::run),
    ("json", json::run),
    ("json_lines", json_lines::run),
    ("mixture", mixture::run),
    ("npy", npy::run),
    ("parquet", parquet::run),
    ("pickle", pickle::run),
    ("shidx", shidx::run),
    ("shkeys", shkeys::run),
    ("stages", stages::run),
    ("state", state::run),
    ("tar", tar::run),
    ("urls", urls::run),
];

/// The function of a target.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|(known, _)| *known == name).map(|(_, run)| run)
}
