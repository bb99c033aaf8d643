//! Downloads plugins: files of Python wheels, which pip downloads, pinned by their hashes and kept in a
//! cache.
//!
//! [`cpu_plugin`] is all that most programs need; [`Wheel`] and [`WheelSet`] are for other plugins.
//!
//! ```no_run
//! let path = shardstream_pjrt::fetch::cpu_plugin(&|line| eprintln!("{line}"))?;
//! let plugin = shardstream_pjrt::Plugin::load(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cpu;
mod error;
mod pinned;
mod set;
mod wheel;

pub use cpu::{cache_dir, cpu_plugin, cpu_wheel};
pub use error::FetchError;
pub use pinned::Pinned;
pub use set::WheelSet;
pub use wheel::Wheel;
