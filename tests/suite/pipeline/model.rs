//! A model of a loader in a few lines, without threads, ranks and states: items are taken from the streams in
//! turn.

use super::{VersionedSource, number, url};
use crate::support::versioned_source::counts;
use proptest::prelude::*;
use shardstream::adapters::IteratorExt;
use shardstream::loader::{LastBatch, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::{Error, Index};
use std::sync::Arc;

/// A stage on numbers; its parameters say which numbers it affects.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// `map(more)`: doubles each number and adds `more`.
    Add(u64),
    /// `map(by, rest)`: fails for the numbers whose remainder modulo `by` is `rest`.
    Fail(u64, u64),
    /// `filter_map(by, rest)`: skips the numbers whose remainder modulo `by` is `rest`, and adds 1 to all
    /// other numbers.
    Drop(u64, u64),
    /// `filter_map(by, rest)`: fails for the numbers whose remainder modulo `by` is `rest`, and skips all
    /// other even numbers.
    DropOrFail(u64, u64),
    /// `flat_map(by)`: replaces each number by consecutive numbers that begin with it. Their count is the
    /// number's remainder modulo `by`.
    Split(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Known {
    Nothing,
    Counts,
    Places,
}

/// A job of one dataset. Its number of ranks and threads is given separately.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) sizes: Vec<usize>,
    pub(super) streams: usize,
    pub(super) seed: u64,
    /// What the index knows: nothing, the sample counts, or also the offsets.
    pub(super) known: Known,
    pub(super) shuffle: usize,
    /// `(by, rest)`: selects the samples whose remainder modulo `by` is not `rest`.
    pub(super) select: Option<(u64, u64)>,
    pub(super) ops: Vec<Op>,
    /// `(length, separator, by)`: each number becomes a document of as many tokens as its remainder modulo 5.
    /// Documents are joined, with a separator if there is one, and cut into rows of this length. Rows whose
    /// sum is divisible by `by` are dropped.
    pub(super) rows: Option<(usize, Option<u64>, u64)>,
    pub(super) last: LastBatch,
    pub(super) endless: bool,
    pub(super) epoch: u64,
}

pub(super) type Item = Vec<u64>;

impl Op {
    fn apply(self, item: u64) -> std::result::Result<Vec<u64>, u64> {
        match self {
            Op::Add(more) => Ok(vec![2 * item + more]),
            Op::Fail(by, rest) | Op::DropOrFail(by, rest) if item % by == rest => Err(item),
            Op::Fail(..) => Ok(vec![item]),
            Op::Drop(by, rest) => Ok(if item % by == rest { vec![] } else { vec![item + 1] }),
            Op::DropOrFail(..) => Ok(if item.is_multiple_of(2) { vec![] } else { vec![item] }),
            Op::Split(by) => Ok((0..item % by).map(|part| item + part).collect()),
        }
    }

    fn stage(self, items: LoaderBuilder<u64>) -> LoaderBuilder<u64> {
        let made = move |item| self.apply(item).map_err(|item| Error::step(item.to_string()));
        match self {
            Op::Add(_) | Op::Fail(..) => items.map(move |item| Ok(made(item)?[0])),
            Op::Drop(..) | Op::DropOrFail(..) => items.filter_map(move |item| Ok(made(item)?.pop())),
            Op::Split(_) => items.flat_map(made),
        }
    }
}

fn document(item: u64) -> Vec<u64> {
    (0..item % 5).map(|at| 10 * item + at).collect()
}

impl Job {
    pub(super) fn builder(&self, source: &Arc<VersionedSource>, topology: Topology) -> LoaderBuilder<Item> {
        let items = Loader::builder(self.dataset(source, topology)).shuffle(self.shuffle);
        let items = match self.select {
            Some((by, rest)) => items.filter(move |sample| number(sample) % by != rest),
            None => items,
        };
        let items = items.map(|sample| Ok(number(&sample)));
        let items = self.ops.iter().fold(items, |items, op| op.stage(items));
        let items = match self.rows {
            None => items.map(|item| Ok(vec![item])),
            Some((length, separator, by)) => items
                .map(|item| Ok(document(item)))
                .chunked(length, separator)
                .filter_map(move |row| Ok((row.iter().sum::<u64>() % by != 0).then_some(row))),
        };
        items.last_batch(self.last).uneven_steps(true)
    }

    fn dataset(&self, source: &Arc<VersionedSource>, topology: Topology) -> Dataset {
        let dataset = source.dataset(self.sizes.len()).streams(self.streams).topology(topology);
        let dataset = dataset.shuffle_shards(true).seed(self.seed);
        let list = ShardList::from_urls((0..self.sizes.len()).map(url));
        let dataset = match self.known {
            Known::Nothing => dataset,
            Known::Counts => dataset.index(counts(&self.sizes)),
            Known::Places => dataset.index(Index::builder().store(source.store()).build(&list).unwrap()),
        };
        dataset.build().unwrap()
    }

    /// The items and failures of a stream in an epoch.
    fn stream(
        &self,
        source: &Arc<VersionedSource>,
        epoch: u64,
        stream: usize,
    ) -> Vec<std::result::Result<Item, String>> {
        let dataset = self.dataset(source, Topology::single());
        let samples = dataset.read(epoch, stream);
        let chosen = |sample: &Sample| self.select.is_none_or(|(by, rest)| number(sample) % by != rest);
        let selected = samples.filter(|sample| chosen(sample.as_ref().unwrap()));
        let shuffled = selected.pipeline().seed(self.seed, epoch, stream as u64).shuffle(self.shuffle);
        let mut items: Vec<std::result::Result<u64, String>> =
            shuffled.results().map(|sample| Ok(number(&sample.unwrap()))).collect();
        for op in &self.ops {
            let apply = |item: std::result::Result<u64, String>| match item.map(|item| op.apply(item)) {
                Ok(Ok(outputs)) => outputs.into_iter().map(Ok).collect(),
                Ok(Err(number)) => vec![Err(number.to_string())],
                Err(error) => vec![Err(error)],
            };
            items = items.into_iter().flat_map(apply).collect();
        }
        let Some((length, separator, by)) = self.rows else {
            return items.into_iter().map(|item| item.map(|item| vec![item])).collect();
        };
        let (mut rows, mut waiting) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Ok(item) => waiting.extend(document(item).into_iter().chain(separator)),
                Err(error) => rows.push(Err(error)),
            }
            while waiting.len() >= length {
                let row: Vec<u64> = waiting.drain(..length).collect();
                if row.iter().sum::<u64>() % by != 0 {
                    rows.push(Ok(row));
                }
            }
        }
        rows
    }

    /// The expected batches and errors of a rank, each batch with the sequence number at which it ends. For
    /// an endless job, only the first epochs.
    pub(super) fn expected(
        &self,
        source: &Arc<VersionedSource>,
        (rank, ranks): (usize, usize),
        batch: usize,
    ) -> Vec<ModelOutput> {
        let epochs = if self.endless { EPOCHS } else { 1 };
        let local_streams = (rank..self.streams).step_by(ranks).map(|stream| {
            (self.epoch..self.epoch + epochs)
                .flat_map(|epoch| self.stream(source, epoch, stream))
                .collect::<Vec<_>>()
        });
        let mut local_streams: Vec<_> = local_streams.map(Vec::into_iter).collect();
        let (mut given, mut items, mut passed, mut ended) =
            (Vec::new(), Vec::new(), 0, vec![false; local_streams.len()]);
        let full = self.last == LastBatch::Drop && !self.endless;
        for place in (rank as u64..).step_by(ranks) {
            if ended.iter().all(|ended| *ended) {
                if !items.is_empty() && !full && !self.endless {
                    let end = (place / ranks as u64).next_multiple_of(batch as u64) * ranks as u64;
                    given.push(ModelOutput::Batch(self.padded(items, batch), end));
                }
                return given;
            }
            let local_stream = (place as usize / ranks) % local_streams.len();
            loop {
                match local_streams[local_stream].next() {
                    Some(Ok(item)) => items.push(item),
                    Some(Err(error)) => {
                        given.push(ModelOutput::Error(error, place));
                        continue;
                    }
                    // For an endless job, the model covers only the first `EPOCHS` epochs. It stops
                    // when a stream has no more items in these epochs.
                    None if self.endless => return given,
                    None => ended[local_stream] = true,
                }
                break;
            }
            passed += 1;
            let done = if full { items.len() == batch } else { passed == batch };
            if done {
                let end = if full { place + 1 } else { place - rank as u64 + ranks as u64 };
                passed = 0;
                if !items.is_empty() {
                    given.push(ModelOutput::Batch(self.padded(std::mem::take(&mut items), batch), end));
                }
            }
        }
        unreachable!("places do not end")
    }

    fn padded(&self, mut items: Vec<Item>, batch: usize) -> Vec<Item> {
        if self.last == LastBatch::Pad {
            let last = items[items.len() - 1].clone();
            items.resize(batch, last);
        }
        items
    }
}

/// For an endless job, this number of epochs is compared.
const EPOCHS: u64 = 3;

/// A batch and the sequence number at which it ends; or a failed number and the sequence number that it would
/// have had.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ModelOutput {
    Batch(Vec<Item>, u64),
    Error(String, u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let pair = || (2u64..7, 0u64..7).prop_map(|(by, rest)| (by, rest % by));
    let op = prop_oneof![
        1 => (0u64..5).prop_map(Op::Add),
        2 => pair().prop_map(|(by, rest)| Op::Fail(by, rest)),
        2 => pair().prop_map(|(by, rest)| Op::Drop(by, rest)),
        1 => pair().prop_map(|(by, rest)| Op::DropOrFail(by, rest)),
        2 => (2u64..5).prop_map(Op::Split),
    ];
    prop::collection::vec(op, 0..4)
}

pub(super) fn jobs() -> impl Strategy<Value = Job> {
    let rows = (1usize..9, prop::option::of(Just(7u64)), 2u64..9);
    let last = prop_oneof![Just(LastBatch::Keep), Just(LastBatch::Drop), Just(LastBatch::Pad)];
    let known = prop_oneof![2 => Just(Known::Nothing), 1 => Just(Known::Counts), 2 => Just(Known::Places)];
    let shuffle = prop_oneof![Just(0usize), 2usize..20];
    (
        (prop::collection::vec(0usize..14, 4..9), prop::sample::select(vec![1usize, 2, 4]), 0u64..1000),
        (known, shuffle, prop::option::weighted(0.4, (2u64..5, 0u64..2))),
        (ops(), prop::option::weighted(0.4, rows)),
        (last, prop::bool::weighted(0.3), 0u64..3),
    )
        .prop_map(
            |((sizes, streams, seed), (known, shuffle, select), (ops, rows), (last, endless, epoch))| {
                let counted = known != Known::Nothing;
                let is_counting = |op: &Op| !matches!(op, Op::Add(_) | Op::Fail(..));
                // The model does not cover streams of known length; the tests in `steps.rs` do. A selection
                // makes the length unknown.
                let unknown = rows.is_some() || select.is_some() || ops.iter().any(is_counting);
                let select = if counted && !unknown { Some((3, 1)) } else { select };
                // Each stream needs a sample.
                let enough = !counted || sizes.iter().sum::<usize>() >= streams;
                let sizes = if enough { sizes } else { vec![5; 4] };
                Job { sizes, streams, seed, known, shuffle, select, ops, rows, last, endless, epoch }
            },
        )
}
