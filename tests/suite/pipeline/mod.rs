//! The stages of a loader, what happens to failures, and how an epoch ends.
//!
//! ```text
//! model      a model of the loader in a few lines, without threads, ranks and states
//! options    options that are refused
//! permuted   options in any order
//! order      stages, ranks, threads and stops, compared with the model
//! steps      full batches, and the same number of steps on all ranks
//! counts     the reported number of steps, compared with the batches that follow
//! ahead      skipped steps
//! failures   failed samples are handled alike, wherever they fail
//! foreign    panics of the caller's types and drivers
//! late       batches that fail after their samples were chosen
//! outage     a network outage ends a run, and its state resumes
//! policy     skipped failures: limits, and the ledger
//! rounds     streams that make many passes
//! memory     stateful stages that get inputs again after a restore
//! saves      stages that save their state: groups, packed rows, buckets
//! stages     panics, stages that drop nearly all items, states of other stages
//! mixes      mixed datasets, each with its own stages
//! weights    mixtures whose weights change
//! dialect    the same stages in a loader and in a pipeline
//! changed    states restored with a changed mixture
//! tensors    columns after stages that change the number of items
//! ```

mod ahead;
mod changed;
mod counts;
mod dialect;
mod failures;
mod following;
mod foreign;
mod late;
mod memory;
mod mixes;
mod model;
mod options;
mod order;
mod outage;
mod permuted;
mod policy;
mod rounds;
mod saves;
mod stages;
mod steps;
mod tensors;
mod weights;

use crate::support::state_schema;
use crate::support::versioned_source::{VersionedSource, url};
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, State};
use std::borrow::BorrowMut;

/// The number of a sample of [`VersionedSource`]: 1000 times its shard's number, plus its number in the
/// shard.
fn number(sample: &Sample) -> u64 {
    let (shard, sample) = sample.key().split_once('-').unwrap();
    shard.parse::<u64>().unwrap() * 1000 + sample.parse::<u64>().unwrap()
}

fn numbers(dataset: Dataset) -> LoaderBuilder<u64> {
    Loader::builder(dataset).map(|sample| Ok(number(&sample)))
}

/// A loader of numbers whose `map` fails for the numbers that `fails` selects.
fn failing(dataset: Dataset, fails: impl Fn(u64) -> bool + Send + Sync + 'static) -> LoaderBuilder<u64> {
    numbers(dataset)
        .map(move |number| if fails(number) { Err(Error::step(number.to_string())) } else { Ok(number) })
}

/// The items of a batch, or the cause of an error.
type Found<T = u64> = std::result::Result<Vec<T>, String>;

/// The next result: the items of a batch, or the innermost cause of an error.
fn next<T: Send + 'static>(batches: &mut Batches<Batch<T>>) -> Option<Found<T>> {
    Some(batches.next()?.map(Batch::into_items).map_err(|error| cause(&error)))
}

fn cause(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Step(source) => source.to_string(),
        kind => kind.name().to_owned(),
    }
}

/// The next results, each with the state after it.
fn all<T: Send + 'static>(
    mut batches: impl BorrowMut<Batches<Batch<T>>>,
    most: usize,
) -> Vec<(Found<T>, State)> {
    let batches = batches.borrow_mut();
    let mut found = Vec::new();
    while found.len() < most
        && let Some(item) = next(batches)
    {
        found.push((item, batches.state()));
    }
    found
}

fn good<T: Clone>(found: &[(Found<T>, State)]) -> Vec<Vec<T>> {
    found.iter().filter_map(|(item, _)| item.clone().ok()).collect()
}

fn errors<T>(found: &[(Found<T>, State)]) -> Vec<String> {
    found.iter().filter_map(|(item, _)| item.as_ref().err().cloned()).collect()
}

/// The state after a round trip through its text. The text must conform to the schema.
fn saved(state: &State) -> State {
    let text = state.to_string();
    state_schema::check(&serde_json::from_str(&text).unwrap())
        .unwrap_or_else(|what| panic!("{what}: {text}"));
    text.parse().unwrap()
}

fn rank(number: usize, of: usize) -> Topology {
    Topology::new(number, of).unwrap()
}
