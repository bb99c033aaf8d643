//! What the sequence tells the feeder, from thread to thread.

use crate::error::Result;
use crate::wait;
use async_channel::{Receiver, Sender};
use std::sync::{Mutex, PoisonError};

/// What is wanted, told before each wait.
#[derive(Debug)]
pub(super) struct Demand {
    told: Mutex<Told>,
    tells: Sender<()>,
    news: Receiver<()>,
}

#[derive(Debug, Default)]
struct Told {
    surplus: Vec<i64>,
    need: Option<Need>,
    queued: usize,
    inputs: u64,
    outputs: u64,
}

/// What was told.
#[derive(Debug)]
pub(super) struct Look {
    /// What is waited for.
    pub(super) need: Option<Need>,
    /// How many outputs wait.
    pub(super) queued: usize,
    /// How many inputs have come, with how many outputs.
    pub(super) inputs: u64,
    pub(super) outputs: u64,
}

/// The source that the sequence cannot go on without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) source: usize,
    /// How many inputs of it have come.
    pub(super) received: u64,
    /// How often it has begun again.
    pub(super) again: u64,
}

impl Demand {
    pub(super) fn new(sources: usize) -> Self {
        let (tells, news) = async_channel::bounded(1);
        Demand { told: Mutex::new(Told { surplus: vec![0; sources], ..Told::default() }), tells, news }
    }

    /// Tells how many more outputs each source had than inputs, since it was told last; what is waited for;
    /// how many outputs wait to be wanted; and how many inputs have come, with how many outputs.
    pub(super) fn tell(
        &self,
        surplus: &[i64],
        need: Option<Need>,
        queued: usize,
        (inputs, outputs): (u64, u64),
    ) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.surplus.iter_mut().zip(surplus).for_each(|(sum, more)| *sum += more);
        (told.need, told.queued) = (need, queued);
        (told.inputs, told.outputs) = (inputs, outputs);
        drop(told);
        // Where the queue is full, somebody is about to look.
        let _ = self.tells.try_send(());
    }

    /// Whether something was told since the last look.
    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes what was told, and adds to `surplus`.
    pub(super) fn look(&self, surplus: &mut [i64]) -> Look {
        let _ = self.news.try_recv();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, more) in surplus.iter_mut().zip(&mut told.surplus) {
            *sum += std::mem::take(more);
        }
        Look { need: told.need, queued: told.queued, inputs: told.inputs, outputs: told.outputs }
    }

    /// Waits until something is told.
    pub(super) fn wait(&self) -> Result<()> {
        let _ = wait::block_on(self.news.recv())?;
        // It is still to be looked at.
        let _ = self.tells.try_send(());
        Ok(())
    }
}
