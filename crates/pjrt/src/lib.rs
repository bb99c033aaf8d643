//! A small safe layer over the parts of the PJRT C API that a trainer needs.
//!
//! [`Plugin`] → [`Client`] → [`Executable`] and [`Buffer`]. A plugin is a shared library that drives one kind
//! of device (TPU, GPU, CPU). Programs are StableHLO, as exported by JAX.
//!
//! ```no_run
//! use resnet::pjrt::{CompileOptions, Plugin, Signature, Spec};
//!
//! # fn main() -> Result<(), resnet::pjrt::PjrtError> {
//! # let code: &[u8] = &[];
//! let client = Plugin::load("xla_cpu_pjrt.so")?.client(&[])?;
//! let takes_seed = Signature { state: vec![], inputs: vec![Spec::of::<i32>(&[])] };
//! let init = client.compile(code, takes_seed, &CompileOptions::default())?;
//! let seed = client.upload(&[1i32], &[], 0)?;
//! let state = init.run(vec![vec![]], &[vec![&seed]])?;
//! # Ok(())
//! # }
//! ```

// The macros of `abi` are used by the modules after it.
#[macro_use]
mod abi;
mod buffer;
mod client;
mod compile;
mod compile_options;
mod dma;
mod error;
mod event;
mod executable;
mod key_values;
mod plugin;
mod plugin_option;
mod profiler;
mod serialized;
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code, clippy::all)]
mod sys;
#[cfg(test)]
mod tests;
mod topology;
mod upload;

pub use buffer::{Buffer, Element, ElementType, Spec};
pub use client::Client;
pub use compile_options::{CompileOptions, Span};
pub use dma::DmaMapping;
pub use error::{Code, PjrtError};
pub use executable::{Executable, Signature};
pub use key_values::{KeyValueError, KeyValues};
pub use plugin::Plugin;
pub use plugin_option::{OptionValue, ParseOptionError, PluginOption};
pub use profiler::Profiler;
#[cfg(test)]
pub(crate) use profiler::tests as profiler_tests;
pub use serialized::DeviceIdentity;
