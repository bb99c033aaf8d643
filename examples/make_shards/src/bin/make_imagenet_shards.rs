//! The command line of `make_imagenet_shards`.

use clap::Parser;
use make_shards::imagenet::{self, Done, Made, Options};
use make_shards::plan::Limits;
use make_shards::series::Series;
use make_shards::summary::Summary;
use make_shards::{Error, Result};
use shardstream::store::Store;
use shardstream::{SecretUrl, Topology};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Make shards of a folder of images with one folder for each class: ROOT/CLASS/*.{jpg,jpeg,png,webp}.
///
/// A sample has the bytes of the file and the number of its class (cls), which is the place of the folder's name among
/// all of them, sorted. Beside the shards stand their index, the names of the classes, and the plan, by which the same
/// command goes on where it was broken off.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The folder with a folder for each class
    root: PathBuf,
    /// Names of the shards, as out/train-%06d.tar or gs://bucket/train-%06d.tar
    pattern: String,
    /// Of the order in which the files are put into the shards
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The most samples in a shard
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    max_count: u64,
    /// The most bytes in a shard
    #[arg(long, default_value_t = 500_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    max_bytes: u64,
    /// Give each sample a field json with the path of its file below ROOT
    #[arg(long)]
    with_names: bool,
    /// Leave out files that are empty or no images of their extension, and list them
    #[arg(long)]
    skip_bad: bool,
    /// Remove the shards of this name that are there, and start over
    #[arg(long)]
    overwrite: bool,
    /// How many shards are written at a time; 0: as many as there are cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Which of several processes this is; else the environment of torchrun, Slurm, MPI and others says it
    #[arg(long, requires = "world_size")]
    rank: Option<usize>,
    /// How many processes write the shards together
    #[arg(long, requires = "rank")]
    world_size: Option<usize>,
}

fn main() -> ExitCode {
    make_shards::exit(run(Args::parse()))
}

fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let topology = match (args.rank, args.world_size) {
        (Some(rank), Some(world)) => Topology::new(rank, world)?,
        _ => Topology::detect()?,
    };
    let Args { root, pattern, seed, max_count, max_bytes, with_names, skip_bad, overwrite, threads, .. } =
        args;
    let series = Series::new(&pattern)?;
    let limits = Limits { seed, max_count, max_bytes, with_names };
    let options = Options { root, series, limits, skip_bad, overwrite, topology };
    let outcome = make_shards::on_threads(threads, || imagenet::make(&Store::default(), &options))?;

    for file in &outcome.bad {
        eprintln!("left out: {file}");
    }
    let summary = |done: &mut dyn Iterator<Item = &Done>| Summary {
        shards: done.map(|done| (done.index.samples(), done.index.bytes().unwrap_or_default())).collect(),
    };
    let all = summary(&mut outcome.done.iter());
    let written = summary(&mut outcome.done.iter().filter(|done| done.made != Made::Kept));
    let mut out = std::io::stdout();
    match &outcome.index {
        Some(index) => writeln!(out, "{all}index              {}", SecretUrl::from(index))?,
        None => writeln!(
            out,
            "{topology}: its part of {} shards is there. When all are, run once more with --rank 0 --world-size 1: \
             it checks them, and writes the index",
            outcome.plan.shards
        )?,
    }
    writeln!(out, "{}", all.line(&written, start.elapsed())).map_err(Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        let parse = |more: &[&str]| Args::try_parse_from(["tool", "root", "%d.tar"].iter().chain(more));
        assert!(parse(&[]).is_ok() && parse(&["--rank", "0", "--world-size", "2"]).is_ok());
        for bad in
            [&["--rank", "0"][..], &["--world-size", "2"], &["--max-count", "0"], &["--max-bytes", "0"]]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
