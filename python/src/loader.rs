//! Loaders, and the batches of a run.

use crate::options::{MASK, Options};
use crate::process::{self, Owned, check_not_forked};
use crate::tensor::Tensor;
use crate::{error, log};
use futures_core::Stream as _;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value as Json;
use shardstream::State;
use shardstream::adapters::IntoStream;
use shardstream::codec::DType;
use shardstream::collate::TensorBatch;
use shardstream::loader::{Batches as LoaderBatches, Reporter};
use shardstream::tensor::Tensor as BatchTensor;
use std::mem;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;

/// A loader with checked options.
#[pyclass(frozen, module = "shardstream._core")]
pub(crate) struct Loader {
    loader: Owned<shardstream::Loader<TensorBatch>>,
    pads: bool,
}

/// The batches of one epoch, or of all epochs from a given epoch on, without end.
#[pyclass(frozen, module = "shardstream._core")]
pub(crate) struct Batches {
    stream: Mutex<Slot>,
    reporter: Owned<Reporter>,
    pads: bool,
}

type Stream = Owned<IntoStream<LoaderBatches<TensorBatch>>>;

/// Holds the stream of the batches while no thread uses it.
enum Slot {
    Idle(Box<Stream>),
    /// A thread has taken the stream and waits for a batch.
    InUse,
    Closed,
}

/// The result of a wait that [`Batches::close`] has ended.
struct Closed;

/// The stream, taken from its slot while a thread waits for a batch.
struct Taken<'a> {
    batches: &'a Batches,
    stream: Option<Box<Stream>>,
}

impl Drop for Taken<'_> {
    /// Puts the stream back into its slot. If another thread has called `close` meanwhile, or a poll of the
    /// stream has panicked, drops the stream.
    fn drop(&mut self) {
        let mut slot = self.batches.slot();
        if matches!(*slot, Slot::InUse) && !thread::panicking() {
            *slot = self.stream.take().map_or(Slot::Closed, Slot::Idle);
            return;
        }
        *slot = Slot::Closed;
        drop(slot);
        drop_detached(self.stream.take());
    }
}

/// Drops a value without the interpreter's lock, since its `drop` joins threads.
fn drop_detached<T: Send>(value: T) {
    let mut value = Some(value);
    // If the interpreter has ended, `try_attach` fails, and the value is dropped at the end of this function.
    let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
}

#[pymethods]
impl Loader {
    /// Lists the shards, and checks all options.
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Self> {
        check_not_forked()?;
        log::update_level(py)?;
        let options = Options::parse(options).map_err(error::to_python)?;
        let pads = options.pads();
        let loader = process::run(py, move || options.build())?.map_err(error::to_python)?;
        Ok(Loader { loader: Owned::new(loader), pads })
    }

    /// Number of batches of an epoch on this rank, if it is known.
    fn steps(&self) -> Option<u64> {
        self.loader.get()?.steps()
    }

    /// The batches of an epoch.
    fn epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<Batches> {
        self.start(py, move |loader| Ok(loader.epoch(epoch)))
    }

    /// The batches of all epochs from `first` on, without end.
    fn epochs(&self, py: Python<'_>, first: u64) -> PyResult<Batches> {
        self.start(py, move |loader| Ok(loader.epochs(first)))
    }

    /// The batches after a state, which is this rank's own state or the merged state of the job.
    fn restore(&self, py: Python<'_>, state: &str) -> PyResult<Batches> {
        let state: State = state.parse().map_err(error::to_python)?;
        self.start(py, move |loader| loader.restore(&state))
    }
}

impl Loader {
    fn start(
        &self,
        py: Python<'_>,
        run: impl FnOnce(
            &shardstream::Loader<TensorBatch>,
        ) -> shardstream::Result<shardstream::loader::Batches<TensorBatch>>
        + Send
        + 'static,
    ) -> PyResult<Batches> {
        check_not_forked()?;
        log::update_level(py)?;
        let Some(loader) = self.loader.get().cloned() else { return Err(error::in_use()) };
        let batches = process::run(py, move || run(&loader))?.map_err(error::to_python)?;
        let reporter = Owned::new(batches.reporter());
        let stream = Mutex::new(Slot::Idle(Box::new(Owned::new(batches.into_stream()))));
        Ok(Batches { stream, reporter, pads: self.pads })
    }
}

#[pymethods]
impl Batches {
    /// The next batch; `None` at the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        check_not_forked()?;
        // If a signal interrupts the wait, `taken` puts the stream back, and no batch is lost.
        let mut taken = self.take_stream()?;
        let item = process::wait(py, |context| match taken.stream.as_mut().and_then(|it| it.get_mut()) {
            Some(_) if self.is_closed() => Poll::Ready(Err(Closed)),
            Some(batches) => Pin::new(batches).poll_next(context).map(Ok),
            None => Poll::Ready(Ok(None)),
        });
        drop(taken);
        match item?.map_err(|Closed| error::closed())? {
            Some(Ok(batch)) => self.tensors(py, batch).map(Some),
            Some(Err(failure)) => Err(error::to_python(failure)),
            None => Ok(None),
        }
    }

    /// The state after the last batch that was returned, as a JSON document.
    fn state(&self) -> PyResult<String> {
        Ok(self.reporter()?.state().to_string())
    }

    /// The report as a JSON document, and as lines for a log.
    fn report(&self) -> PyResult<(String, String)> {
        let report = self.reporter()?.report();
        Ok((report.to_json(), report.to_string()))
    }

    /// Ends the loader's threads, and wakes a thread that waits for a batch. Does nothing in a forked child:
    /// the loader's threads do not exist in the child, and a lock that a thread held during the fork is never
    /// released.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if process::is_forked() {
            return Ok(());
        }
        let stream = mem::replace(&mut *self.slot(), Slot::Closed);
        py.detach(|| drop(stream));
        log::flush(py)
    }
}

impl Batches {
    /// Locks the slot. Callers hold the lock only to move the stream in or out.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        matches!(*self.slot(), Slot::Closed)
    }

    fn take_stream(&self) -> PyResult<Taken<'_>> {
        let mut slot = self.slot();
        match mem::replace(&mut *slot, Slot::InUse) {
            Slot::Idle(stream) => Ok(Taken { batches: self, stream: Some(stream) }),
            Slot::InUse => Err(error::in_use()),
            Slot::Closed => {
                *slot = Slot::Closed;
                Err(error::closed())
            }
        }
    }

    fn reporter(&self) -> PyResult<&Reporter> {
        check_not_forked()?;
        self.reporter.get().ok_or_else(error::in_use)
    }

    /// The tensors by name, in the order of the columns.
    fn tensors<'py>(&self, py: Python<'py>, mut batch: TensorBatch) -> PyResult<Bound<'py, PyDict>> {
        let names: Vec<String> = batch.iter().map(|(name, _)| name.to_owned()).collect();
        let tensors = PyDict::new(py);
        for name in names {
            let tensor = batch.take(&name).map_err(error::to_python)?;
            tensors.set_item(name, Tensor::new(tensor))?;
        }
        if self.pads {
            let mask = mask(&batch).map_err(error::to_python)?;
            tensors.set_item(MASK, Tensor::new(mask))?;
        }
        Ok(tensors)
    }
}

/// A tensor of Booleans, one for each row: true if the row is a sample, false if it is padding.
fn mask(batch: &TensorBatch) -> shardstream::Result<BatchTensor> {
    let mut mask = BatchTensor::zeros(DType::Bool, [batch.len()])?;
    mask.as_mut_slice::<bool>()?[..batch.valid()].fill(true);
    Ok(mask)
}

impl Drop for Batches {
    fn drop(&mut self) {
        // In a forked child, the slot may be locked for ever: another thread may have held the lock during
        // the fork.
        if !process::is_forked() {
            drop_detached(mem::replace(&mut *self.slot(), Slot::Closed));
        }
    }
}

/// Merges the states of all ranks into the state of the job.
#[pyfunction]
pub(crate) fn merge_states(states: Vec<String>) -> PyResult<String> {
    let parsed = states.iter().map(|state| state.parse()).collect::<shardstream::Result<Vec<State>>>();
    let merged = parsed.and_then(State::merge).map_err(error::to_python)?;
    Ok(merged.to_string())
}

/// Returns the epoch of a state; whether its run reads all epochs without end; and whether the run has
/// `ended`, has `failed`, or is `open`.
#[pyfunction]
pub(crate) fn inspect_state(state: &str) -> PyResult<(u64, bool, &'static str)> {
    let state: State = state.parse().map_err(error::to_python)?;
    let document = serde_json::to_value(&state).unwrap_or_default();
    let end = match (&document["ended"], &document["failed"]) {
        (Json::Bool(true), _) => "ended",
        (_, Json::Bool(true)) => "failed",
        _ => "open",
    };
    Ok((state.epoch(), state.is_endless(), end))
}
