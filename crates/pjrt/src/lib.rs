#![cfg_attr(feature = "fetch", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "fetch"),
    doc = "A small safe layer over the PJRT C API. The example needs the feature `fetch`."
)]

// `abi` comes first, because its macros are in scope only in the modules that are declared after it.
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
#[cfg(feature = "fetch")]
pub mod fetch;
mod key_values;
mod plugin;
mod plugin_option;
mod profiler;
mod protobuf;
mod serialized;
#[allow(
    missing_docs,
    unreachable_pub,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    clippy::all
)]
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
pub use serialized::DeviceIdentity;
