//! A split: the slices of a loader, one for each device, which share the runs that they read.
//!
//! burn calls `slice` for one device after the other. A slice that begins where the previous slice ended is
//! added to the split of the previous slice.

use crate::error::SliceError;
use crate::run::Run;
use crate::shared::Shared;
use burn::tensor::Device;
use shardstream::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All slices of a loader. A loader that is not sliced has a split with one slice.
pub(crate) struct Split<O> {
    state: Mutex<SplitState<O>>,
}

struct SplitState<O> {
    /// The item after the last item of the last slice.
    end: usize,
    /// The error that the slices return as long as they do not cover all items; `None` if they cover all
    /// items.
    incomplete: Option<SliceError>,
    slices: Vec<Slice>,
    /// The started runs by number, counted from 0. A run is removed when all slices have finished reading it.
    runs: BTreeMap<u64, SharedRun<O>>,
}

struct Slice {
    device: Device,
    /// Number of runs that this slice has started.
    started: u64,
}

struct SharedRun<O> {
    run: Arc<Mutex<Run<O>>>,
    /// Number of slices that have finished reading this run.
    ended: usize,
}

pub(crate) type NumberedRun<O> = (u64, Arc<Mutex<Run<O>>>);

/// Why a slice cannot start a run.
pub(crate) enum StartError {
    Slice(SliceError),
    Data(Error),
}

impl<O> Split<O> {
    /// The split of a loader that is not sliced.
    pub(crate) fn whole(device: Device) -> Self {
        Self::starting_with(device, 0, None)
    }

    /// A split with one slice, which ends before item `end`.
    fn starting_with(device: Device, end: usize, incomplete: Option<SliceError>) -> Self {
        let slices = vec![Slice { device, started: 0 }];
        Split { state: Mutex::new(SplitState { end, incomplete, slices, runs: BTreeMap::new() }) }
    }

    /// The split of a slice that cannot be read. burn's strategies never make such a slice: their first slice
    /// begins at item 0, and each further slice begins where the previous slice ends.
    pub(crate) fn incomplete(device: Device, slice: SliceError) -> Arc<Self> {
        Arc::new(Self::starting_with(device, usize::MAX, Some(slice)))
    }

    fn lock(&self) -> MutexGuard<'_, SplitState<O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the split of a loader that is not sliced.
    pub(crate) fn is_whole(&self) -> bool {
        let state = self.lock();
        state.slices.len() == 1 && state.incomplete.is_none()
    }

    pub(crate) fn slices(&self) -> usize {
        self.lock().slices.len()
    }

    /// Adds a slice for a device: to the split `last` if `slice` begins where `last` ends, otherwise to a new
    /// split. Returns the split, and the number of the slice in it.
    pub(crate) fn with_slice(
        last: Option<Arc<Self>>,
        slice: SliceError,
        device: Device,
    ) -> (Arc<Self>, usize) {
        let incomplete = if slice.end < slice.items { Some(slice) } else { None };
        if slice.start == 0 {
            return (Arc::new(Self::starting_with(device, slice.end, incomplete)), 0);
        }
        let Some(last) = last else { return (Self::incomplete(device, slice), 0) };
        let mut state = last.lock();
        if state.end != slice.start || state.incomplete.is_none() {
            return (Self::incomplete(device, slice), 0);
        }
        let number = state.slices.len();
        state.slices.push(Slice { device, started: 0 });
        state.end = slice.end;
        state.incomplete = incomplete;
        drop(state);
        (last, number)
    }

    pub(crate) fn set_device(&self, slice: usize, device: &Device) {
        self.lock().slices[slice].device = device.clone();
    }
}

impl<O: Send + 'static> Split<O> {
    /// The next run of a slice, with its number. The first slice that asks for a run starts it.
    pub(crate) fn next_run(&self, slice: usize, shared: &Shared<O>) -> Result<NumberedRun<O>, StartError> {
        let mut state = self.lock();
        if let Some(error) = state.incomplete {
            return Err(StartError::Slice(error));
        }
        let number = state.slices[slice].started;
        let run = match state.runs.get(&number) {
            Some(shared_run) => shared_run.run.clone(),
            None => {
                let devices = state.slices.iter().map(|slice| slice.device.clone()).collect();
                let run = Arc::new(Mutex::new(Run::start(shared, devices).map_err(StartError::Data)?));
                state.runs.insert(number, SharedRun { run: run.clone(), ended: 0 });
                run
            }
        };
        state.slices[slice].started += 1;
        Ok((number, run))
    }

    /// Notes that a slice has finished reading a run. Returns the run if all slices have finished reading it.
    pub(crate) fn end_run(&self, number: u64) -> Option<Arc<Mutex<Run<O>>>> {
        let mut state = self.lock();
        let slices = state.slices.len();
        let shared_run = state.runs.get_mut(&number)?;
        shared_run.ended += 1;
        if shared_run.ended < slices {
            return None;
        }
        state.runs.remove(&number).map(|shared_run| shared_run.run)
    }
}
