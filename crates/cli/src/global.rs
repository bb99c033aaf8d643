//! Options that every command has.

use crate::failure::Failure;
use crate::logging::Level;
use crate::progress::ProgressSettings;
use crate::quantity::{seconds, size};
use clap::Args;
use shardstream::store::{Cache, Store, StoreBuilder};
use shardstream::tar::Limits;
use std::path::PathBuf;
use std::time::Duration;

/// Options that every command has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct GlobalOptions {
    /// Show no progress.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Seconds between progress lines if stderr is not a terminal.
    #[arg(long, global = true, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    progress: Duration,
    /// Cache remote shards in this directory.
    #[arg(long, global = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Maximum size of the cache, such as 500G.
    #[arg(long, global = true, value_name = "SIZE", requires = "cache", value_parser = size)]
    cache_size: Option<u64>,
    /// Limit on the shards that are accepted, such as sample=8GiB. May be given several times. The limits
    /// sample, member, extension, padding and unsorted are sizes; members and archives are numbers. A larger
    /// sample limit raises the member limit too, if that is not given. With unsorted, archives that are not
    /// sorted by name, such as those of `tar -cf x.tar .`, are also read, if the members of each sample are
    /// within this many bytes of each other. Up to this many bytes are held in memory.
    #[arg(long, global = true, value_name = "NAME=VALUE", value_parser = limit)]
    limit: Vec<(LimitName, u64)>,
    /// Maximum number of retries of a request after a network fault.
    #[arg(long, global = true, value_name = "COUNT")]
    retries: Option<u32>,
    /// Show events of this level and above on stderr: long waits, retries, shards.
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<Level>,
}

/// The limits of `--limit`, named after the fields of [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitName {
    Sample,
    Member,
    Extension,
    Members,
    Padding,
    Archives,
    Unsorted,
}

fn limit(text: &str) -> Result<(LimitName, u64), String> {
    let bad = || format!("{text:?} is not a limit: give one such as sample=8GiB, member=8GiB or archives=10");
    let (name, value) = text.split_once('=').ok_or_else(bad)?;
    let name = match name {
        "sample" => LimitName::Sample,
        "member" => LimitName::Member,
        "extension" => LimitName::Extension,
        "members" => LimitName::Members,
        "padding" => LimitName::Padding,
        "archives" => LimitName::Archives,
        "unsorted" => LimitName::Unsorted,
        _ => return Err(bad()),
    };
    Ok((name, size(value)?))
}

impl GlobalOptions {
    /// A builder of a store with the cache and retry settings of these options.
    pub(crate) fn store_builder(&self) -> Result<StoreBuilder, Failure> {
        let mut store = Store::builder();
        if let Some(directory) = &self.cache {
            let mut cache = Cache::builder(directory);
            if let Some(bytes) = self.cache_size {
                cache = cache.max_bytes(bytes);
            }
            store = store.cache(cache.build()?);
        }
        if let Some(retries) = self.retries {
            store = store.retries(retries);
        }
        Ok(store)
    }

    /// The limits on the shards that are accepted.
    pub(crate) fn limits(&self) -> Result<Limits, Failure> {
        let mut limits = Limits::default();
        for &(name, value) in &self.limit {
            match name {
                LimitName::Sample => limits.sample = value,
                LimitName::Member => limits.member = value,
                LimitName::Extension => limits.extension = value,
                LimitName::Members => limits.members = value,
                LimitName::Padding => limits.padding = Some(value),
                LimitName::Archives => limits.archives = value,
                LimitName::Unsorted => limits.unsorted = value,
            }
        }
        if !self.limit.iter().any(|(name, _)| *name == LimitName::Member) {
            limits.member = limits.member.max(limits.sample);
        }
        let may_be_zero = [LimitName::Padding, LimitName::Unsorted];
        let is_zero = |(name, value): &(LimitName, u64)| *value == 0 && !may_be_zero.contains(name);
        match self.limit.iter().any(is_zero) {
            true => Err(Failure::Usage("--limit: a limit of 0 accepts no shard that has samples".into())),
            false => Ok(limits),
        }
    }

    /// The lowest level of events that are shown; `None` shows no events.
    pub(crate) fn log(&self) -> Option<Level> {
        self.log
    }

    /// How progress is shown.
    pub(crate) fn progress(&self) -> ProgressSettings {
        ProgressSettings { quiet: self.quiet, interval: self.progress }
    }
}
