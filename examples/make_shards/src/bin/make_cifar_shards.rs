//! The command line of `make_cifar_shards`.

use clap::Parser;
use make_shards::Result;
use make_shards::cifar::{self, Format, Options};
use make_shards::progress::Task;
use make_shards::series::Series;
use make_shards::summary::Summary;
use shardstream::SecretUrl;
use shardstream::store::Store;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Make shards from the downloaded CIFAR-10 files: DEST/train/cifar-train-%06d.tar and
/// DEST/val/cifar-val-%06d.tar.
///
/// A sample has an image (png or ppm) and the number of its class (cls). The index of each set is written
/// beside its shards.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// cifar-10-binary.tar.gz or cifar-10-python.tar.gz, or the folder of one of these archives
    source: PathBuf,
    /// A directory, or gs://bucket/prefix
    dest: String,
    /// Number of copies of each training image
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat_train: u64,
    /// Number of copies of each validation image
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat_val: u64,
    /// Samples in a shard
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    per_shard: u64,
    /// Format of the images
    #[arg(long, value_enum, default_value_t = Format::Png)]
    format: Format,
    /// Shuffle with this seed, each copy in another order. Without a seed, keep the order of the source
    #[arg(long, value_name = "SEED")]
    shuffle_seed: Option<u64>,
    /// Remove existing shards with the same names
    #[arg(long)]
    overwrite: bool,
    /// Number of threads that encode images. With 0, it is the number of cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    make_shards::exit(run(&args))
}

fn run(args: &Args) -> Result<()> {
    let store = Store::default();
    let reading = Task::spinner("reading the source");
    let sets = cifar::read(&args.source)?;
    let (train, test) = (Arc::new(sets.train), Arc::new(sets.test));
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 { cores() } else { args.threads };
    drop(reading);
    let dest = args.dest.trim_end_matches('/').replace('%', "%%");
    let mut out = std::io::stdout();
    for (set, images, repeat) in [("train", &train, args.repeat_train), ("val", &test, args.repeat_val)] {
        let start = Instant::now();
        let series = Series::new(&format!("{dest}/{set}/cifar-{set}-%06d.tar"))?;
        let options = Options {
            repeat,
            per_shard: args.per_shard,
            format: args.format,
            shuffle_seed: args.shuffle_seed,
            overwrite: args.overwrite,
            threads,
        };
        let shards = cifar::write(&store, &series, images, &options)?;
        let summary = Summary { shards: shards.iter().map(|shard| (shard.samples, shard.bytes)).collect() };
        writeln!(out, "{}", SecretUrl::from(series.pattern()))?;
        writeln!(out, "{summary}index              {}", SecretUrl::from(series.index()))?;
        writeln!(out, "{}", summary.line(start.elapsed()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        for bad in ["--repeat-train=0", "--per-shard=0", "--format=gif"] {
            assert!(Args::try_parse_from(["tool", "source", "dest", bad]).is_err(), "{bad}");
        }
    }
}
