//! Samples of shards, read by their ranges of bytes in any order.

use crate::input::Input;
use crate::making::{Samples, failed};
use crate::saved_plan::Hash;
use shardstream::index::{Member, ShardIndex};
use shardstream::prelude::*;
use shardstream::tar::{SampleParser, read};
use shardstream::write::{ArchiveSize, TarWriter};
use shardstream::{ErrorKind, Result};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The most bytes that are read at once, unless a single sample has more.
const LARGEST: u64 = 4 << 20;
/// The most bytes between two samples that are read and thrown away: another request would take longer.
const GAP: u64 = 256 << 10;

/// The unit in which a tar archive is laid out.
const BLOCK: u64 = 512;
/// The headers of a member with a name of up to 100 bytes, a longer one, and the longest one that is written.
const SHORT_NAME: u64 = BLOCK;
const LONG_NAME: u64 = 3 * BLOCK;
const LONGEST_NAME: u64 = 11 * BLOCK;

/// What is done to the fields of samples.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Edit {
    /// Keep only these fields.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    keep_fields: Vec<String>,
    /// Leave out these fields.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', conflicts_with = "keep_fields")]
    drop_fields: Vec<String>,
    /// Rename a field. May be given several times.
    #[arg(long, value_name = "FIELD=NEW", value_parser = renaming)]
    rename: Vec<(String, String)>,
}

fn renaming(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("expected FIELD=NEW".into()),
    }
}

impl Edit {
    /// The name that a field of the input has in the output; `None` for one that is left out.
    fn name<'a>(&'a self, field: &'a str) -> Option<&'a str> {
        let is_in = |list: &[String]| list.iter().any(|name| name == field);
        if is_in(&self.drop_fields) || !self.keep_fields.is_empty() && !is_in(&self.keep_fields) {
            return None;
        }
        let renamed = self.rename.iter().find(|(old, _)| old == field);
        Some(renamed.map_or(field, |(_, new)| new))
    }

    fn apply(&self, sample: Sample) -> Result<Sample> {
        if self.keep_fields.is_empty() && self.drop_fields.is_empty() && self.rename.is_empty() {
            return Ok(sample);
        }
        let mut edited = Sample::new(sample.key());
        for (field, value) in sample.fields() {
            let Some(name) = self.name(field) else { continue };
            if edited.set(name.to_owned(), value.clone()).is_some() {
                let what = format!("{}: two fields would have the name {name:?}", sample.key());
                return Err(failed(what).in_shard(sample.shard()));
            }
        }
        Ok(edited)
    }

    /// For the plan.
    pub(crate) fn shown(&self) -> String {
        let renamed: Vec<String> = self.rename.iter().map(|(old, new)| format!("{old}={new}")).collect();
        format!(
            "keep [{}], drop [{}], rename [{}]",
            self.keep_fields.join(","),
            self.drop_fields.join(","),
            renamed.join(",")
        )
    }
}

/// A sample of the input: the numbers of its shard, and of itself among those of the index.
pub(crate) type Place = (u32, u32);

/// Samples of shards in an order.
#[derive(Debug)]
pub(crate) struct Ranges(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    input: Arc<Input>,
    order: Vec<Place>,
    edit: Edit,
    /// How many ranges are read at a time for one shard that is written.
    reads: usize,
}

/// Samples of one shard that are read at once.
#[derive(Debug)]
struct Run {
    shard: u32,
    /// Ascending.
    samples: Vec<u64>,
    /// The bytes from the first to the last; none where the shard has no ranges.
    range: Option<Range<u64>>,
}

impl Ranges {
    pub(crate) fn new(store: Store, input: Arc<Input>, order: Vec<Place>, edit: Edit, reads: usize) -> Self {
        Ranges(Arc::new(Inner { store, input, order, edit, reads }))
    }

    /// Adds the members of a sample that is written: with their names where keys are known, and otherwise
    /// with headers as long as those of the input.
    pub(crate) fn add_members(&self, number: usize, size: &mut ArchiveSize) {
        let inner = &*self.0;
        let Some((shard, sample)) = inner.order.get(number).copied() else { return };
        if let Some(key) = inner.input.key(shard, sample) {
            for (field, bytes) in inner.sizes(number).unwrap_or_default() {
                size.add(key, &field, bytes);
            }
            return;
        }
        let headers = inner.headers(shard, sample).unwrap_or_default();
        let fields = inner.shard(shard).and_then(|shard| shard.fields(u64::from(sample)));
        for (at, (field, bytes)) in fields.into_iter().flatten().enumerate() {
            let Some(name) = inner.edit.name(field) else { continue };
            let header = headers.get(at).copied().unwrap_or(0).clamp(SHORT_NAME, LONGEST_NAME);
            // A longer name may no longer be a short one.
            let least = if name.len() > field.len() { LONG_NAME } else { SHORT_NAME };
            size.add_member(header.max(least), bytes);
        }
    }

    /// Refuses samples that one shard cannot have: without a field, with two fields of one name or names that
    /// no reader takes, or with one key.
    pub(crate) fn check(&self, samples: Range<usize>) -> Result<()> {
        let inner = &*self.0;
        let mut writer = TarWriter::new(io::sink());
        for number in samples {
            let Some((shard, sample)) = inner.order.get(number).copied() else { continue };
            let known = inner.input.key(shard, sample);
            // Without keys, fields are checked alone.
            let mut edited = Sample::new(known.map_or_else(|| number.to_string(), str::to_owned));
            let located = |error: shardstream::Error| {
                let error = match known {
                    Some(key) => error.with_key(key),
                    None => error,
                };
                match inner.input.urls.get(shard as usize) {
                    Some(url) => error.in_shard(url.expose_secret()),
                    None => error,
                }
            };
            for (field, _) in inner.sizes(number).unwrap_or_default() {
                if edited.set(field.clone(), Value::from(b"")).is_some() {
                    return Err(located(failed(format!(
                        "two fields of sample {sample} would have the name {field:?}"
                    ))));
                }
            }
            if edited.is_empty() {
                return Err(located(failed(format!("no field of sample {sample} is left"))));
            }
            writer.write(&edited).map_err(|error| match known {
                Some(_) => located(error),
                None => located(failed(format!("sample {sample} cannot be written: {}", error.kind()))),
            })?;
        }
        Ok(())
    }

    /// A hash of what is read, in its order.
    pub(crate) fn hash(&self) -> Hash {
        let Inner { input, order, .. } = &*self.0;
        let mut hash = Hash::default();
        for ((shard, url), version) in input.shards.iter().zip(&input.urls).zip(&input.versions) {
            // Without its directory: a bucket may be mounted elsewhere on another machine.
            let url = url.to_string();
            hash.text(url.rsplit('/').next().unwrap_or(&url));
            hash.number(shard.bytes().unwrap_or(0));
            hash.text(version.as_deref().unwrap_or_default());
        }
        // Without keys there is no number: a run that knows them is not one that does not.
        for keys in input.keys.iter().flatten() {
            hash.number(keys.len() as u64);
            keys.iter().for_each(|key| hash.text(key));
        }
        for (shard, sample) in order {
            let size = self.0.shard(*shard).and_then(|shard| shard.size_of(u64::from(*sample)));
            [u64::from(*shard), u64::from(*sample), size.unwrap_or(0)]
                .into_iter()
                .for_each(|n| hash.number(n));
        }
        hash
    }
}

impl Inner {
    /// How long the headers of each member of a sample are in the input; `None` where places are not known.
    fn headers(&self, shard: u32, sample: u32) -> Option<Vec<u64>> {
        let (shard, sample) = (self.shard(shard)?, u64::from(sample));
        let mut before = shard.range(sample..sample + 1)?.start;
        let header = |member: Member<'_>| {
            let headers = member.offset.saturating_sub(before);
            before = member.offset.saturating_add(member.size).checked_next_multiple_of(BLOCK)?;
            Some(headers)
        };
        shard.members(sample)?.map(header).collect()
    }

    fn shard(&self, number: u32) -> Option<&ShardIndex> {
        self.input.shards.get(number as usize)
    }

    fn sizes(&self, number: usize) -> Option<Vec<(String, u64)>> {
        let (shard, sample) = *self.order.get(number)?;
        let fields = self.shard(shard)?.fields(u64::from(sample))?;
        let named = fields.filter_map(|(field, size)| Some((self.edit.name(field)?.to_owned(), size)));
        Some(named.collect())
    }

    /// These samples, as runs of adjacent ones.
    fn runs(&self, samples: Range<usize>) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for &(number, sample) in self.order.get(samples).unwrap_or_default() {
            let (Some(shard), sample) = (self.shard(number), u64::from(sample)) else { continue };
            let range = shard.range(sample..sample + 1);
            if let Some(run) = runs.last_mut().filter(|run| run.shard == number)
                && run.samples.last().is_some_and(|last| *last < sample)
            {
                match (&mut run.range, &range) {
                    (None, None) => {
                        run.samples.push(sample);
                        continue;
                    }
                    (Some(before), Some(next))
                        if next.start.saturating_sub(before.end) <= GAP
                            && next.end - before.start <= LARGEST =>
                    {
                        run.samples.push(sample);
                        before.end = next.end;
                        continue;
                    }
                    _ => {}
                }
            }
            runs.push(Run { shard: number, samples: vec![sample], range });
        }
        runs
    }

    /// Reads a run, and gives each sample as it will be written.
    fn read(&self, run: &Run, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()> {
        let (Some(shard), Some(url)) = (self.shard(run.shard), self.input.urls.get(run.shard as usize))
        else {
            return Ok(());
        };
        let (url, first) = (url.expose_secret(), run.samples.first().copied().unwrap_or(0));
        let parser = SampleParser::new(url);
        let (mut body, parser) = match &run.range {
            Some(range) => {
                let parser = parser.starting(shard.position_of(first).unwrap_or(first), range.start);
                let is_cut = shard.bytes() != Some(range.end);
                let body = self.store.open_range(url, range.clone())?;
                (body, if is_cut { parser.cut() } else { parser })
            }
            // What is before is read too: a compressed shard has no ranges.
            None => (self.store.open(url)?, parser),
        };
        let mut wanted = run.samples.iter().copied().peekable();
        for sample in read(&mut body, parser) {
            let sample = sample?;
            let Some(next) = wanted.peek().copied() else { break };
            if shard.position_of(next) != Some(sample.position().sample) {
                continue;
            }
            wanted.next();
            shard.check(&sample).map_err(|error| error.in_shard(url))?;
            take(self.edit.apply(sample)?)?;
            if wanted.peek().is_none() {
                break;
            }
        }
        match wanted.next() {
            None => Ok(()),
            Some(missing) => Err(stale(url, &format!("it has no sample {missing}"))),
        }
    }
}

fn stale(url: &str, what: &str) -> shardstream::Error {
    let what = format!("{what} than the index says: build the index again");
    shardstream::Error::from(ErrorKind::Index(what)).in_shard(url)
}

impl Samples for Ranges {
    fn read(&self, samples: Range<usize>, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()> {
        let (inner, runs) = (&self.0, self.0.runs(samples));
        let ranged = runs.iter().all(|run| run.range.is_some());
        if inner.reads <= 1 || runs.len() <= 1 || !ranged {
            return runs.iter().try_for_each(|run| inner.read(run, take));
        }
        let (reader, reads) = (Arc::clone(inner), inner.reads);
        let found = runs.into_iter().map(Ok).par_map(reads, move |run: Run| {
            let mut found = Vec::with_capacity(run.samples.len());
            reader.read(&run, &mut |sample| {
                found.push(sample);
                Ok(())
            })?;
            Ok(found)
        });
        for samples in found.ahead(reads) {
            samples?.into_iter().try_for_each(&mut *take)?;
        }
        Ok(())
    }

    fn fields(&self, sample: usize) -> Option<Vec<(String, u64)>> {
        self.0.sizes(sample)
    }

    fn key(&self, sample: usize) -> Option<String> {
        let (shard, sample) = *self.0.order.get(sample)?;
        self.0.input.key(shard, sample).map(str::to_owned)
    }
}
