//! Downloads plugins from Python wheels. Pip downloads the wheels, whose hashes are pinned; the unpacked
//! files are kept in a cache.
//!
//! Most programs need only [`cpu_plugin`]. [`Wheel`] and [`WheelSet`] download other plugins.
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
