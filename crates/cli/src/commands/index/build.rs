//! `shardstream index build`

use crate::context::Context;
use crate::documents::check_new;
use crate::failure::Failure;
use crate::files::exists;
use crate::options::Patterns;
use crate::parallel::for_each_shard;
use crate::samples::ShardProgress;
use crate::shard_reader::ShardReader;
use shardstream::index::{KeyIndex, KeyIndexBuilder, ShardIndex};
use shardstream::store::Store;
use shardstream::{ErrorKind, Index, Result, SecretUrl, ShardList};

/// Index shards from the headers of their archives.
///
/// The index is JSON, which Python's wids reads too, or compact if its name ends in .shidx.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// Where to write the index: a path or URL.
    #[arg(long, value_name = "INDEX")]
    to: String,
    /// Record a checksum of each sample. This reads the whole shards.
    #[arg(long)]
    checksums: bool,
    /// Also write the keys of the samples to INDEX.shkeys, with which `cat --key` finds a sample.
    #[arg(long, conflicts_with = "update")]
    keys: bool,
    /// Keep the entries of an existing index for shards that have not changed.
    #[arg(long)]
    update: bool,
    #[command(flatten)]
    force: super::save::ForceOption,
    /// Number of shards indexed at a time.
    #[arg(short = 'j', long, value_name = "COUNT", default_value_t = 16, value_parser = count)]
    threads: u16,
}

pub(super) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    if context.reader.limits.unsorted > 0 {
        let what = "--limit unsorted: an index cannot give the byte range of a sample whose members are not \
                    adjacent: write sorted shards with `reshard` first";
        return Err(Failure::Usage(what.into()));
    }
    let instead = "--update keeps the entries of unchanged shards, ";
    check_new(&options.to, options.update || options.force.force, instead, context)?;
    let keys = options.keys.then(|| keys_beside(&options.to)).transpose()?;
    if let Some(place) = keys.as_ref().filter(|_| !options.force.force)
        && exists(&context.store, place)?
    {
        let place = SecretUrl::from(place);
        return Err(Failure::Failed(format!("{place} already exists: --force replaces it")));
    }
    let shards = options.patterns.shards(context)?;
    let old = match options.update {
        true => match Index::load(&context.store, &options.to) {
            Ok(index) => Some(index),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        },
        false => None,
    };
    let mut builder = keys.is_some().then(KeyIndex::builder);
    let (known, threads) = (old.clone(), options.threads.into());
    let index = index_shards(&shards, known, options.checksums, threads, builder.as_mut(), context)?;
    super::save::save(&index, &options.to, context)?;
    let (Some(place), Some(builder)) = (keys, builder) else {
        return match old {
            Some(old) if !has_same_shards(&old, &index) => remove_keys(&options.to, context),
            _ => Ok(()),
        };
    };
    let keys = builder.build();
    keys.save(&context.store, &place)?;
    let (place, count) = (SecretUrl::from(place), crate::text::counted(keys.len() as u64, "key"));
    context.output.line(format_args!("{place}: {count}"))
}

/// Whether two indexes describe the same versions of the same shards. The samples of the two indexes then
/// have the same keys. The checksums in the two indexes may differ.
fn has_same_shards(old: &Index, new: &Index) -> bool {
    fn identity(shard: &ShardIndex) -> (&str, u64, Option<u64>, Option<&str>) {
        (shard.url(), shard.samples(), shard.bytes(), shard.version())
    }
    old.iter().map(identity).eq(new.iter().map(identity))
}

/// Removes the key index beside an index that was updated, because it has the keys of the older shards.
fn remove_keys(index: &str, context: &Context) -> Result<(), Failure> {
    let Some(place) = KeyIndex::beside(index) else { return Ok(()) };
    if !exists(&context.store, &place)? {
        return Ok(());
    }
    context.store.delete(&place)?;
    let (place, index) = (SecretUrl::from(place), SecretUrl::from(index));
    context.output.line(format_args!(
        "{place}: removed, because it has the keys of older shards: write it with index build --to {index} \
         --keys --force"
    ))
}

/// The path or URL of the key index beside the index at `place`.
fn keys_beside(place: &str) -> Result<String, Failure> {
    let what = "--keys: the URL of the index has a query, so no file can be written beside it: give a URL \
                without a query";
    KeyIndex::beside(place).ok_or_else(|| Failure::Usage(what.into()))
}

/// Indexes shards, with progress. For a shard that has not changed, reuses the entry in `old`. Adds the keys
/// of the samples to `keys`.
pub(super) fn index_shards(
    shards: &ShardList,
    old: Option<Index>,
    checksums: bool,
    threads: usize,
    mut keys: Option<&mut KeyIndexBuilder>,
    context: &Context,
) -> Result<Index, Failure> {
    let progress = ShardProgress::start(context, "index", shards.len());
    let mut indexed: Vec<ShardIndex> = Vec::with_capacity(shards.len());
    let (reader, wants_keys) = (context.reader.clone(), keys.is_some());
    let work =
        move |_: usize, url: &SecretUrl| match old.as_ref().and_then(|old| old.get(url.expose_secret())) {
            Some(known) if is_current(known, url, checksums, &reader.store)? => {
                Ok((known.clone(), Vec::new()))
            }
            _ => index_shard(url, checksums, wants_keys, &reader),
        };
    for_each_shard(shards, threads, &context.interrupt, work, |_, (shard, of_shard)| {
        if let Some(keys) = &mut keys {
            keys.add(shard.clone(), of_shard)?;
        }
        progress.add_samples(shard.samples());
        progress.add_shard();
        indexed.push(shard);
        Ok(())
    })?;
    Ok(indexed.into_iter().collect())
}

/// Indexes a shard. Also returns the keys of its samples if `keys` is set.
fn index_shard(
    url: &SecretUrl,
    checksums: bool,
    keys: bool,
    reader: &ShardReader,
) -> Result<(ShardIndex, Vec<Box<str>>)> {
    let list = ShardList::from_urls([url.clone()]);
    let builder = reader.index_builder().threads(1).checksums(checksums);
    let indexed = match keys {
        true => builder.build_with_keys(&list)?.pop(),
        false => builder.build(&list)?.iter().next().map(|shard| (shard.clone(), Vec::new())),
    };
    indexed.ok_or_else(|| ErrorKind::NoShards("nothing was indexed".into()).into())
}

/// Whether the index of a shard is up to date, and has checksums if `checksums` is set.
fn is_current(known: &ShardIndex, url: &SecretUrl, checksums: bool, store: &Store) -> Result<bool> {
    let is_complete = known.url() == url.expose_secret()
        && known.selection().is_none()
        && (known.samples() == 0 || known.size_of(0).is_some())
        && (!checksums || known.samples() == 0 || known.checksum_of(0).is_some());
    if !is_complete || known.version().is_none() {
        return Ok(false);
    }
    Ok(known.object().compare(&store.stat(url.expose_secret())?).is_same())
}

fn count(text: &str) -> std::result::Result<u16, String> {
    let count = text.parse().ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "give a number from 1 to 1024".to_owned())
}
