//! How the slices of a loader find each other: burn calls `slice` for one device after the other.

use crate::error::SliceError;
use crate::loader::Shared;
use crate::run::Run;
use burn::tensor::Device;
use shardstream::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All slices of a loader. A loader that is not sliced is its only slice.
pub(crate) struct Split<O> {
    state: Mutex<SplitState<O>>,
}

struct SplitState<O> {
    /// The item after those of the last slice.
    end: usize,
    /// What is wrong, unless the slices cover all items.
    incomplete: Option<SliceError>,
    slices: Vec<Slice>,
    /// By number, from 0: the epochs that not all slices have ended.
    runs: BTreeMap<u64, SharedRun<O>>,
}

struct Slice {
    device: Device,
    /// Number of runs that were started.
    started: u64,
}

/// A run that the slices share.
struct SharedRun<O> {
    run: Arc<Mutex<Run<O>>>,
    /// Number of slices that have ended it.
    ended: usize,
}

/// A run, and its number.
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

    /// A split that needs further slices, unless nothing is wrong.
    fn starting_with(device: Device, end: usize, incomplete: Option<SliceError>) -> Self {
        let slices = vec![Slice { device, started: 0 }];
        Split { state: Mutex::new(SplitState { end, incomplete, slices, runs: BTreeMap::new() }) }
    }

    /// The split of a slice that burn's strategies do not make.
    pub(crate) fn incomplete(device: Device, slice: SliceError) -> Arc<Self> {
        Arc::new(Self::starting_with(device, usize::MAX, Some(slice)))
    }

    fn lock(&self) -> MutexGuard<'_, SplitState<O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is a loader that is not sliced.
    pub(crate) fn is_whole(&self) -> bool {
        let state = self.lock();
        state.slices.len() == 1 && state.incomplete.is_none()
    }

    /// Number of slices.
    pub(crate) fn slices(&self) -> usize {
        self.lock().slices.len()
    }

    /// Adds the slice of these items, for a device: to `last` if it continues there, else to a new split.
    /// Returns the split, and the number of the slice.
    pub(crate) fn with_slice(
        last: Option<Arc<Self>>,
        slice: SliceError,
        device: Device,
    ) -> (Arc<Self>, usize) {
        let incomplete = Some(slice).filter(|slice| slice.end < slice.items);
        if slice.start > 0 {
            if let Some(last) = last {
                let mut state = last.lock();
                if state.end == slice.start && state.incomplete.is_some() {
                    let number = state.slices.len();
                    state.slices.push(Slice { device, started: 0 });
                    (state.end, state.incomplete) = (slice.end, incomplete);
                    drop(state);
                    return (last, number);
                }
            }
            return (Self::incomplete(device, slice), 0);
        }
        (Arc::new(Self::starting_with(device, slice.end, incomplete)), 0)
    }

    pub(crate) fn set_device(&self, slice: usize, device: &Device) {
        self.lock().slices[slice].device = device.clone();
    }
}

impl<O: Send + 'static> Split<O> {
    /// The next run of a slice, and its number. The first slice that gets there starts it.
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

    /// Notes that a slice has ended a run. The last one returns it.
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
