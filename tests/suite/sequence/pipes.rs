//! The stages of the sequence tests, in any valid combination. The output of a stage depends only on the
//! items that it gets.

use crate::support::{member, shards::key};
use proptest::prelude::*;
use shardstream::adapters::{Fit, GroupBy, Pack, Stage};
use shardstream::dataset::{Missing, Side};
use shardstream::index::ShardIndex;
use shardstream::loader::LoaderBuilder;
use shardstream::prelude::*;
use shardstream::{Error, Result};
use std::path::{Path, PathBuf};

/// The key, content and random number of an item.
pub(super) type Item = (String, String, u64);

/// The stages of one dataset.
#[derive(Debug, Clone, Default)]
pub(super) struct Pipe {
    /// `Some(n)`: if the job has no index, every `n`-th shard is damaged. One of its samples is bad, and its
    /// end marker may be missing.
    pub(super) damage: Option<usize>,
    /// How a side dataset is joined.
    joined: Option<Joined>,
    /// `Some(n)`: drops about one in `n` samples.
    select: Option<u64>,
    /// `before_shuffle`: truncates texts to this length, drops some samples and fails for others.
    trim: Option<u64>,
    /// `Some(n)`: drops about one in `n` items.
    filter: Option<u64>,
    /// `flat_map`: the largest number of items for a sample.
    split: Option<u64>,
    /// `Some(n)`: about one in `n + 2` items fails.
    fail: Option<u64>,
    /// Whether the filter is before `flat_map`.
    filter_first: bool,
    /// `chunked`: the size of a row in bytes.
    rows: Option<usize>,
    /// The two arguments of [`Windows::new`].
    windows: Option<(usize, bool)>,
    /// A stage that saves its state. It is only used without `rows` and `windows`.
    saves: Option<Saves>,
}

/// A stage that saves its buffered items in the state, so that a restore does not read them again.
#[derive(Debug, Clone, Copy)]
enum Saves {
    /// The size of each group, and the maximum number of items in incomplete groups.
    Groups(usize, usize),
    /// Rows of this many bytes.
    Packed(usize),
}

/// How a side dataset is joined.
#[derive(Debug, Clone, Copy)]
struct Joined {
    missing: Missing,
    indexed: bool,
    buffer: usize,
}

impl Pipe {
    fn misses(&self, missing: Missing) -> bool {
        self.joined.is_some_and(|joined| joined.missing == missing)
    }

    /// The side dataset to join, made from the shards at `paths`; `None` if nothing is joined.
    pub(super) fn side(&self, paths: Vec<PathBuf>, index: impl Fn(&PathBuf) -> ShardIndex) -> Option<Side> {
        let Joined { missing, indexed, buffer } = self.joined?;
        let shards: ShardList = paths.iter().map(|path| path.display().to_string()).collect();
        let side = Side::new(shards).missing(missing).buffer_bytes(buffer);
        Some(if indexed { side.index(paths.iter().map(index).collect()) } else { side })
    }

    /// Whether each sample becomes exactly one item.
    pub(super) fn is_plain(&self) -> bool {
        self.keeps_numbers() && !self.misses(Missing::Error) && self.fail.is_none() && self.damage.is_none()
    }

    /// Whether no stage changes the number of items.
    pub(super) fn keeps_numbers(&self) -> bool {
        self.select.is_none()
            && !self.misses(Missing::Skip)
            && self.trim.is_none()
            && self.filter.is_none()
            && self.split.is_none()
            && self.rows.is_none()
            && self.windows.is_none()
            && self.saves.is_none()
    }

    pub(super) fn stages(
        &self,
        loader: LoaderBuilder<Sample>,
        number: usize,
        seed: u64,
    ) -> LoaderBuilder<Item> {
        let loader = match self.select {
            Some(every) => loader.filter(move |sample| !of(sample.key()).is_multiple_of(every)),
            None => loader,
        };
        let loader = match self.trim {
            Some(length) => loader.before_shuffle(move |sample| match of(sample.key()) % (length + 3) {
                0 => Err(Error::step("on purpose")),
                1 => Ok(None),
                _ => {
                    let text = text(&sample);
                    let text = &text[..text.len().min(100 * length as usize)];
                    Ok(Some(Sample::new(sample.key()).with("txt", text.as_bytes().to_vec())))
                }
            }),
            None => loader,
        };
        let loader = loader.map(move |sample| {
            Ok((format!("{number}/{}", sample.key()), text(&sample), sample.rng(seed).below(1 << 40)))
        });
        let loader =
            if self.filter_first { self.split(self.filter(loader)) } else { self.filter(self.split(loader)) };
        let loader = match self.fail {
            Some(every) => loader.map(move |item| match of(&item.0) % (every + 2) {
                1 => Err(Error::step("on purpose")),
                _ => Ok(item),
            }),
            None => loader,
        };
        match self.rows {
            Some(length) => {
                let rows = loader
                    .map(|(key, text, _)| Ok(format!("{key}={}", &text[..text.len() / 40]).into_bytes()));
                let shown = |row: Vec<u8>| Ok((String::from_utf8(row).unwrap(), String::new(), 0));
                rows.chunked(length, b';').map(shown)
            }
            None => match self.windows {
                Some((size, reports_fresh)) => {
                    loader.stage("windows", move || Windows::new(size, reports_fresh))
                }
                None => self.saving(loader),
            },
        }
    }

    fn saving(&self, loader: LoaderBuilder<Item>) -> LoaderBuilder<Item> {
        match self.saves {
            Some(Saves::Groups(size, most)) => {
                let key = |item: &Item| match of(&item.0) % 7 {
                    3 => Err(Error::step("on purpose")),
                    key => Ok(key),
                };
                let groups = loader.stage("groups", move || GroupBy::new(size, key).max_waiting(most));
                groups.map(|group| {
                    let names: Vec<String> =
                        group.iter().map(|(key, text, _)| format!("{key} {text}")).collect();
                    Ok((names.join(" "), String::new(), group[0].2))
                })
            }
            Some(Saves::Packed(length)) => {
                let documents = loader
                    .map(|(key, text, _)| Ok(format!("{key}={}", &text[..text.len() / 40]).into_bytes()));
                let rows = documents.stage("packed", move || Pack::new(length).fit(Fit::Contiguous));
                rows.map(|row| {
                    let shown = format!("{:?} {}", row.lengths(), String::from_utf8_lossy(row.tokens()));
                    Ok((shown, String::new(), 0))
                })
            }
            None => loader,
        }
    }

    fn filter(&self, loader: LoaderBuilder<Item>) -> LoaderBuilder<Item> {
        match self.filter {
            Some(every) => {
                loader.filter_map(move |item: Item| Ok((of(&item.0) % every != 1).then_some(item)))
            }
            None => loader,
        }
    }

    fn split(&self, loader: LoaderBuilder<Item>) -> LoaderBuilder<Item> {
        match self.split {
            Some(most) => loader.flat_map(move |(key, text, random): Item| {
                let count = of(&key) % (most + 1);
                Ok((0..count).map(move |part| (format!("{key}.{part}"), text.clone(), random)))
            }),
            None => loader,
        }
    }
}

/// A stateful stage that returns windows of `size` items in reverse order. If a window has several items, the
/// first item is left out.
struct Windows {
    size: usize,
    /// Whether [`Stage::is_fresh`] returns true if the stage holds no items.
    reports_fresh: bool,
    held: Vec<Item>,
    ready: Vec<Item>,
}

impl Windows {
    fn new(size: usize, reports_fresh: bool) -> Self {
        Windows { size, reports_fresh, held: Vec::new(), ready: Vec::new() }
    }
}

impl Stage<Item> for Windows {
    type Out = Item;

    fn push(&mut self, item: Item) -> Option<Result<Item>> {
        self.held.push(item);
        if self.held.len() < self.size { None } else { self.drain() }
    }

    fn pull(&mut self) -> Option<Result<Item>> {
        self.ready.pop().map(Ok)
    }

    fn drain(&mut self) -> Option<Result<Item>> {
        if self.ready.is_empty() && !self.held.is_empty() {
            let first = usize::from(self.held.len() > 1);
            self.ready = self.held.drain(..).skip(first).collect();
        }
        self.pull()
    }

    fn is_fresh(&self) -> bool {
        self.reports_fresh && self.held.is_empty() && self.ready.is_empty()
    }
}

/// The text of a sample, followed by the text from the side dataset if the sample has been joined.
fn text(sample: &Sample) -> String {
    let field = |name| sample.get(name).map_or(Vec::new(), |value| value.as_bytes().unwrap().to_vec());
    String::from_utf8([field("txt"), field("side")].concat()).unwrap()
}

/// A hash of a key.
fn of(key: &str) -> u64 {
    key.bytes()
        .fold(7, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

/// Stages for each dataset that a job may have.
pub(super) fn pipes() -> impl Strategy<Value = Vec<Pipe>> {
    let some = |numbers: std::ops::Range<u64>| prop::option::weighted(0.3, numbers);
    let trim = prop::option::weighted(0.2, 1u64..5);
    let stages = (some(2..5), some(2..5), some(1..4), some(1..5), any::<bool>(), trim);
    let windows = prop::option::weighted(0.2, (1usize..9, any::<bool>()));
    let saves = prop_oneof![
        (1usize..5, 1usize..12).prop_map(|(size, most)| Saves::Groups(size, most)),
        (1usize..60).prop_map(Saves::Packed),
    ];
    let saves = prop::option::weighted(0.25, saves);
    let missing = prop::sample::select(vec![Missing::Error, Missing::Skip, Missing::None]);
    let buffer = prop::sample::select(vec![1, 1000, 4000, 1 << 20]);
    let joined = (missing, any::<bool>(), buffer).prop_map(|(missing, indexed, buffer)| Joined {
        missing,
        indexed,
        buffer,
    });
    let joined = prop::option::weighted(0.3, joined);
    let damage = prop::option::weighted(0.3, 1usize..4);
    let behind = (damage, joined, prop::option::weighted(0.2, 1usize..60), windows, saves);
    let pipe =
        (stages, behind).prop_map(
            |((select, filter, split, fail, filter_first, trim), (damage, joined, rows, windows, saves))| {
                Pipe { damage, joined, select, trim, filter, split, fail, filter_first, rows, windows, saves }
            },
        );
    let pipe = prop_oneof![1 => Just(Pipe::default()), 2 => pipe];
    prop::collection::vec(pipe, 3..=3)
}

/// Writes the shard of the side dataset that is joined to shard `number`. Some of the keys are missing, some
/// are in another order, and there is an extra key.
pub(super) fn beside(path: &Path, number: usize, size: usize) {
    let has = |sample: &usize| number.is_multiple_of(3) || !(number + sample).is_multiple_of(4);
    let mut keys: Vec<String> = (0..size).filter(has).map(|sample| key(number, sample)).collect();
    match number % 4 {
        1 => keys.reverse(),
        2 => keys.sort_by_key(|key| of(key)),
        _ => {}
    }
    keys.insert(keys.len() / 3, "other".into());
    let mut writer = shardstream::write::TarWriter::new(std::fs::File::create(path).unwrap());
    for (number, key) in keys.into_iter().enumerate() {
        let text = format!("+{key}").repeat(1 + 40 * (number % 3));
        writer.write(&Sample::new(key).with("side", text)).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes a shard whose middle sample has a duplicate member. Some of these shards also lack their end
/// marker.
pub(super) fn damaged(path: &Path, number: usize, size: usize) {
    let mut members = Vec::new();
    for sample in 0..size {
        let text = "x".repeat((number * 131 + sample * 977) % 1500);
        members.push((format!("{}.cls", key(number, sample)), sample.to_string()));
        members.push((format!("{}.txt", key(number, sample)), text.clone()));
        if sample == size / 2 {
            members.push((format!("{}.txt", key(number, sample)), text));
        }
    }
    let of = |(name, text): &(String, String)| member(name, tar::EntryType::Regular, text.as_bytes());
    let mut bytes: Vec<u8> = members.iter().flat_map(of).collect();
    bytes.resize(bytes.len() + 1024, 0);
    if number.is_multiple_of(3) {
        bytes.truncate(bytes.len().saturating_sub(2000));
    }
    std::fs::write(path, bytes).unwrap();
}
