//! The extension module of the Python package `shardstream`: loaders, their batches, and the tensors in them.
//!
//! ```text
//! options     a JSON document with the options of a loader, which the package's Python part writes
//! columns     the part of it that says which tensors a batch has
//! transforms  the part of that which says what is done to pictures
//! loader      `Loader` and `Batches`
//! tensor      `Tensor`: DLPack and the buffer protocol
//! error       errors as the exceptions of `shardstream.errors`
//! log         events of the library for Python's `logging`
//! process     waits that Ctrl-C ends, and what a fork leaves behind
//! ```
//!
//! No thread of the library ever runs Python code or waits for the interpreter: threads that are joined
//! cannot wait for a lock that the joining thread holds, and neither can the end of the interpreter.

mod columns;
mod error;
mod loader;
mod log;
mod options;
mod process;
mod tensor;
mod transforms;

use pyo3::prelude::*;

/// The extension module. It can be imported by an interpreter without a global lock.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    log::install();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<loader::Batches>()?;
    module.add_class::<tensor::Tensor>()?;
    module.add_function(wrap_pyfunction!(loader::inspect_state, module)?)?;
    module.add_function(wrap_pyfunction!(loader::merge_states, module)?)
}
