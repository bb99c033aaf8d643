//! Options that commands share.

use crate::context::Context;
use crate::failure::Failure;
use crate::files::MAX_DOCUMENT;
use crate::interrupt::Interrupt;
use crate::shard_reader::STDIN;
use clap::Args;
use shardstream::dataset::Shards;
use shardstream::index::Index;
use shardstream::store::Store;
use shardstream::{SecretUrl, ShardList};
use std::io::{self, Read};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The shards that a command reads.
#[derive(Debug, Args)]
pub(crate) struct Patterns {
    /// Shards: paths, URLs, patterns with braces or wildcards, directories.
    #[arg(value_name = "PATTERN", required_unless_present = "list")]
    patterns: Vec<String>,
    /// Also read patterns from this file, one per line; - is stdin.
    #[arg(long, value_name = "FILE")]
    list: Option<String>,
}

impl Patterns {
    /// Patterns from other options.
    pub(crate) fn of(patterns: Vec<String>) -> Self {
        Patterns { patterns, list: None }
    }

    /// The patterns of the command line, followed by the patterns of the list.
    pub(crate) fn given(&self, context: &Context) -> Result<Vec<SecretUrl>, Failure> {
        let mut patterns: Vec<SecretUrl> = self.patterns.iter().map(SecretUrl::from).collect();
        if let Some(file) = &self.list {
            let text = read_text(file, context)?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            patterns.extend(lines.map(SecretUrl::from));
        }
        Ok(patterns)
    }

    /// The shards, in the order of the patterns. Lists directories and buckets for wildcards.
    ///
    /// # Errors
    /// If a pattern cannot be resolved, or is `-`: see [`Patterns::shards_or_stdin`].
    pub(crate) fn shards(&self, context: &Context) -> Result<ShardList, Failure> {
        shards_of(&self.given(context)?, &context.store)
    }

    /// Does the same as [`Patterns::shards`], for commands that read each shard once, from its beginning to
    /// its end. If one of the patterns is `-`, an archive is read from stdin.
    pub(crate) fn shards_or_stdin(&self, context: &Context) -> Result<ShardList, Failure> {
        let is_stdin = |pattern: &SecretUrl| pattern.expose_secret() == STDIN;
        let lists = usize::from(self.list.as_deref() == Some(STDIN));
        let check = |uses: usize| match uses > 1 {
            true => Err(Failure::Usage("stdin can be read only once: give - only once".into())),
            false => Ok(()),
        };
        // Check the command line before the list is read: if `-` is also a pattern, stdin is an archive,
        // which must not be parsed as a list.
        check(lists + self.patterns.iter().filter(|pattern| *pattern == STDIN).count())?;
        let patterns = self.given(context)?;
        let uses = patterns.iter().filter(|pattern| is_stdin(pattern)).count();
        check(lists + uses)?;
        if uses == 0 {
            return shards_of(&patterns, &context.store);
        }
        let mut shards: Vec<SecretUrl> = Vec::new();
        for pattern in patterns {
            match is_stdin(&pattern) {
                true => shards.push(pattern),
                false => shards.extend(shards_of(&[pattern], &context.store)?.iter().cloned()),
            }
        }
        Ok(shards.into_iter().collect())
    }
}

/// The shards that match patterns, in the order of the patterns.
///
/// # Errors
/// If a pattern cannot be resolved, or is `-`.
pub(crate) fn shards_of(patterns: &[SecretUrl], store: &Store) -> Result<ShardList, Failure> {
    let mut shards: Vec<SecretUrl> = Vec::new();
    for pattern in patterns {
        if pattern.expose_secret() == STDIN {
            let why = "the shard - is stdin, which can be read only once: give the path of a file, or ./- \
                       for a file with this name";
            return Err(Failure::Usage(why.into()));
        }
        shards.extend(Shards::Pattern(pattern.clone()).resolve(store)?.iter().cloned());
    }
    match shards.is_empty() {
        true => Err(Failure::Failed("no shards: the list of patterns is empty".into())),
        false => Ok(shards.into_iter().collect()),
    }
}

/// Whether the output is JSON.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct JsonOption {
    /// Write JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The number of threads.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ThreadsOption {
    /// Number of shards processed at a time [default: the number of cores].
    #[arg(short = 'j', long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl ThreadsOption {
    /// The number of threads; by default, the number of cores.
    pub(crate) fn count(self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(cores, usize::from)
    }
}

/// An optional index of the shards.
#[derive(Debug, Args)]
pub(crate) struct IndexOption {
    /// The index of the shards: a path or URL.
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    #[command(flatten)]
    versions: VersionsOption,
}

/// Whether the versions of shards are compared with those in an index.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct VersionsOption {
    /// Compare only the sizes and samples of shards with the index, not the versions: for shards that were
    /// copied together with their index.
    #[arg(long, requires = "index")]
    without_versions: bool,
}

impl VersionsOption {
    /// Loads the index at a path or URL.
    pub(crate) fn load(self, place: &str, context: &Context) -> Result<Index, Failure> {
        let index = Index::load(&context.store, place)?;
        Ok(if self.without_versions { index.without_versions() } else { index })
    }
}

impl IndexOption {
    pub(crate) fn is_given(&self) -> bool {
        self.index.is_some()
    }

    /// Loads the index, if one was given.
    pub(crate) fn load(&self, context: &Context) -> Result<Option<Index>, Failure> {
        self.index.as_ref().map(|place| self.versions.load(place, context)).transpose()
    }
}

/// The shards that a command with `--index` reads. Without patterns, it reads all shards of the index.
#[derive(Debug, Args)]
pub(crate) struct IndexedPatterns {
    /// Shards: paths, URLs, patterns with braces or wildcards, directories [default: the shards of --index].
    #[arg(value_name = "PATTERN", required_unless_present_any = ["list", "index"])]
    patterns: Vec<String>,
    /// Also read patterns from this file, one per line; - is stdin.
    #[arg(long, value_name = "FILE")]
    list: Option<String>,
    #[command(flatten)]
    index: IndexOption,
}

impl IndexedPatterns {
    /// The path or URL of the index, if one was given.
    pub(crate) fn index_place(&self) -> Option<&str> {
        self.index.index.as_deref()
    }

    /// The shards, in the order of the patterns (or in the order of the index if there are no patterns), and
    /// the index if one was given.
    pub(crate) fn shards(&self, context: &Context) -> Result<(ShardList, Option<Index>), Failure> {
        let index = self.index.load(context)?;
        let shards = match &index {
            Some(index) if self.patterns.is_empty() && self.list.is_none() => index.shards(),
            _ => self.patterns().shards(context)?,
        };
        Ok((shards, index))
    }

    /// Does the same as [`IndexedPatterns::shards`]. Without an index, a pattern may be `-`: see
    /// [`Patterns::shards_or_stdin`].
    pub(crate) fn shards_or_stdin(&self, context: &Context) -> Result<(ShardList, Option<Index>), Failure> {
        match self.index_place() {
            Some(_) => self.shards(context),
            None => Ok((self.patterns().shards_or_stdin(context)?, None)),
        }
    }

    fn patterns(&self) -> Patterns {
        Patterns { patterns: self.patterns.clone(), list: self.list.clone() }
    }
}

/// The shards and the loader settings of a training job, for `bench` and `plan`.
#[derive(Debug, Args)]
pub(crate) struct TrainingOptions {
    #[command(flatten)]
    pub(crate) patterns: Patterns,
    #[command(flatten)]
    pub(crate) index: IndexOption,
    #[command(flatten)]
    pub(crate) threads: ThreadsOption,
    /// Number of logical streams of all ranks together [default: in `plan`, the number of ranks; in `bench`,
    /// the number of threads or of shards, whichever is smaller].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    streams: Option<u32>,
    /// Streams keep their shards in all epochs; only the order within each stream changes.
    #[arg(long)]
    pub(crate) keep_shards: bool,
    /// Number of samples in the shuffle buffer of each stream.
    #[arg(long, value_name = "SAMPLES", default_value_t = 0)]
    pub(crate) shuffle: u32,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

impl TrainingOptions {
    /// The number of streams, or `default` without the option.
    pub(crate) fn streams(&self, default: usize) -> usize {
        self.streams.map_or(default, |streams| streams as usize)
    }
}

/// Reads a text file from a path or URL, without its byte order mark; `-` is stdin.
pub(crate) fn read_text(place: &str, context: &Context) -> Result<String, Failure> {
    let text = read_whole_text(place, context)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn read_whole_text(place: &str, context: &Context) -> Result<String, Failure> {
    if place == "-" {
        return read_stdin(&context.interrupt);
    }
    let bytes = context.store.open(place)?.read_at_most(MAX_DOCUMENT)?;
    let is_utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let utf8 = |_| {
        let why = if is_utf16 { "is UTF-16: save it as UTF-8" } else { "is not UTF-8" };
        Failure::Failed(format!("{} {why}", SecretUrl::from(place)))
    };
    String::from_utf8(bytes.into()).map_err(utf8)
}

/// Reads stdin to its end, or until the program is interrupted.
fn read_stdin(interrupt: &Interrupt) -> Result<String, Failure> {
    let (sender, receiver) = mpsc::channel();
    // Another thread reads, because a signal does not end a read of stdin.
    thread::spawn(move || {
        let mut text = String::new();
        // After an interrupt, the receiver is dropped and sending fails.
        drop(sender.send(io::stdin().read_to_string(&mut text).map(|_| text)));
    });
    loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(read) => return read.map_err(|error| Failure::io("cannot read stdin", &error)),
            Err(RecvTimeoutError::Timeout) => interrupt.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Failed("cannot read stdin".into()));
            }
        }
    }
}
