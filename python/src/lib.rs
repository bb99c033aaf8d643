//! The extension module of the Python package `shardstream`: loaders, their batches, and the tensors in them.
//!
//! ```text
//! options     reads the JSON document with the options of a loader, which the Python code writes
//! columns     reads the columns in that document
//! transforms  reads the transforms of image columns
//! loader      `Loader` and `Batches`
//! tensor      `Tensor`: DLPack and the buffer protocol
//! error       turns errors into the exceptions of `shardstream.errors`
//! log         passes events of the library to Python's `logging`
//! process     waits that Ctrl-C can end, and values that a forked child cannot use
//! ```
//!
//! No thread of the library ever runs Python code or waits for the interpreter's lock. Otherwise a Python
//! thread that holds this lock and joins a thread of the library would wait for ever, and the interpreter
//! could not end.

mod columns;
mod error;
mod loader;
mod log;
mod options;
mod process;
mod tensor;
mod transforms;

use pyo3::prelude::*;

/// The extension module. An interpreter without a global lock can import it.
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
