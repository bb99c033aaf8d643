//! Options that every command has.

use crate::failure::Failure;
use crate::logging::Level;
use crate::progress::ProgressSettings;
use crate::quantity::{seconds, size};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use shardstream::store::{Cache, Store, Transport};
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
    /// Number of retries of a request after a network fault.
    #[arg(long, global = true, value_name = "COUNT")]
    retries: Option<u32>,
    /// HTTP client that fetches remote shards [default: native].
    #[arg(long, global = true, value_name = "CLIENT", value_parser = transport())]
    transport: Option<Transport>,
    /// Show events of this level and above on stderr: long waits, retries, shards.
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<Level>,
}

fn transport() -> impl TypedValueParser<Value = Transport> {
    PossibleValuesParser::new(["native", "reqwest"]).try_map(|name| name.parse::<Transport>())
}

impl GlobalOptions {
    /// A store with these cache and retry settings.
    pub(crate) fn store(&self) -> Result<Store, Failure> {
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
        if let Some(transport) = self.transport {
            store = store.transport(transport);
        }
        Ok(store.build()?)
    }

    /// The lowest level of events that are shown; `None` shows none.
    pub(crate) fn log(&self) -> Option<Level> {
        self.log
    }

    /// How progress is shown.
    pub(crate) fn progress(&self) -> ProgressSettings {
        ProgressSettings { quiet: self.quiet, interval: self.progress }
    }
}
