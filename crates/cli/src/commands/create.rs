//! `shardstream create`

use crate::class_folders::ClassFolders;
use crate::context::Context;
use crate::documents::{check_classes, check_index};
use crate::failure::Failure;
use crate::file_samples::{FileSamples, PlannedSample};
use crate::inspection::{Inspected, Inspection};
use crate::lists::{self, ListColumns};
use crate::options::read_text;
use crate::outcome::Outcome;
use crate::output::note;
use crate::progress::Unit;
use crate::saved_plan::{SavedPlan, put};
use crate::series::Series;
use crate::shard_cutter::ShardCutter;
use crate::text;
use crate::write_job::WriteJob;
use crate::write_options::{ShardLimits, WriteOptions};
use shardstream::store::ObjectUrl;
use shardstream::{Rng, SecretUrl};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Create shards from files: folders of images, a CSV or JSON-lines list, or a list of files.
///
/// The plan is written beside the shards first (train.plan.json for train-%06d.tar). A shard appears under
/// its name when it is complete, and --resume resumes an interrupted run. The shards are the same, byte by
/// byte, on any number of threads and machines. A file that changes between two runs and keeps its size is
/// not noticed.
///
/// Files are stored as they are. An image with a wrong extension, such as a PNG called .JPEG, is stored as
/// the field of its real format (png), and listed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    from: SourceOptions,
    /// The directory for relative paths in a list. [default: that of a CSV or JSON-lines list, the working
    /// directory otherwise]
    #[arg(long, value_name = "DIR", conflicts_with = "from_dir")]
    root: Option<PathBuf>,
    #[command(flatten)]
    columns: ListColumns,
    /// With --from-dir: add a field `json` with the path of the image.
    #[arg(long, requires = "from_dir")]
    with_names: bool,
    /// Decode every image before anything is written, and list damaged ones. A later --resume does not need
    /// it.
    #[arg(long)]
    verify: bool,
    /// Leave out samples with files that are missing, empty, no image although their extension is that of
    /// one, or found by --verify, and list them.
    #[arg(long)]
    skip_bad: bool,
    /// The names of the shards, such as 'out/train-%06d.tar' or 's3://bucket/train-%06d.tar'.
    #[arg(long, value_name = "NAMES")]
    to: String,
    #[command(flatten)]
    limits: ShardLimits,
    /// Shuffle all samples with this seed. Training needs it: --from-dir lists them class by class, and a
    /// shuffle buffer mixes only nearby samples.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// Write the index of the shards, so that a training need not scan them: beside them (train.index.json
    /// for train-%06d.tar), or here.
    #[arg(long, value_name = "INDEX", num_args = 0..=1)]
    index: Option<Option<String>>,
    #[command(flatten)]
    write_options: WriteOptions,
}

/// The source of the samples.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct SourceOptions {
    /// A folder with one folder of images for each class. Samples have the fields jpg, png or webp, and cls.
    /// The names of the classes are written beside the shards, in the order of their numbers
    /// (train.classes.json).
    #[arg(long, value_name = "DIR")]
    from_dir: Option<PathBuf>,
    /// A CSV list with one row for each sample, and column names in the first row; - is stdin.
    #[arg(long, value_name = "FILE")]
    from_csv: Option<String>,
    /// A list with one JSON object a line for each sample; - is stdin.
    #[arg(long, value_name = "FILE")]
    from_jsonl: Option<String>,
    /// A list of files, one a line; - is stdin. Files whose paths are the same up to the first dot of the
    /// file name form one sample.
    #[arg(long, value_name = "FILE")]
    from_list: Option<String>,
}

/// The samples before their files are inspected.
struct CreateInput {
    root: PathBuf,
    samples: Vec<PlannedSample>,
    classes: Option<Vec<String>>,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let Options { limits, shuffle, write_options, verify, skip_bad, .. } = &options;
    write_options.check(options.index.is_some())?;
    let series = Series::new(&options.to)?;
    if !options.columns.is_default() && options.from.from_csv.is_none() && options.from.from_jsonl.is_none() {
        let what = "--file, --key and --as-json are for --from-csv and --from-jsonl";
        return Err(Failure::Usage(what.into()));
    }
    let place = options.index.as_ref();
    let index = place.map(|place| place.clone().unwrap_or_else(|| series.beside("index")));
    check_index(index.as_deref(), &series, write_options, context)?;
    let CreateInput { root, samples, classes } = list_samples(&options, context)?;
    let threads = write_options.threads.count();
    let inspection = Inspection { root: root.clone(), threads, decode: *verify, skip_bad: *skip_bad };
    let Inspected { mut samples, left_out, renamed } = inspection.run(samples, context)?;
    if samples.is_empty() {
        return Err(Failure::Failed("there are no samples".into()));
    }
    if let Some(seed) = shuffle {
        Rng::new(*seed, 0, 0).shuffle(&mut samples);
    }
    let samples = FileSamples::new(root, samples)?;
    let mut cutter = ShardCutter::new(*limits);
    for number in 0..samples.len() {
        cutter.push(&samples.key(number), samples.sizes(number));
    }
    let shards = cutter.finish();
    let mut hash = samples.hash();
    classes.iter().flatten().for_each(|class| hash.text(class));
    shards.iter().for_each(|range| hash.number(range.end as u64));
    let mut plan = SavedPlan::new("create", samples.len() as u64, shards.len() as u64, hash)
        .option("max-count", limits.max_count)
        .option("max-size", limits.max_size)
        .option("shuffle", shuffle.map_or_else(|| "none".into(), |seed| seed.to_string()));
    if options.with_names {
        plan = plan.option("with-names", true);
    }
    let place = series.beside("classes");
    let job = WriteJob { series, plan, shards, samples: Arc::new(samples) };
    if let Some(classes) = &classes {
        // If the plan differs too, its error says more.
        job.check(write_options, context)?;
        check_classes(&place, classes, write_options, context)?;
    }
    let start = Instant::now();
    let outcome = job.run(write_options, context)?;
    let rates = outcome.rates(start.elapsed());
    if let Some(classes) = classes {
        put(&place, &classes, &context.store)?;
    }
    outcome.save_index(index.as_deref(), context)?;
    Outcome::report(&[outcome], index.as_deref(), write_options.json, context)?;
    if write_options.json.json {
        return Ok(());
    }
    let files =
        |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", text::counted(count, "file")));
    let machines = write_options.machines.rank()?;
    let lines = [
        rates,
        files(renamed, "stored by content, not by extension"),
        (left_out > 0).then(|| format!("{} left out", text::counted(left_out, "sample"))),
        index.map(|index| format!("index: {}", SecretUrl::from(index))),
        (machines.world_size > 1).then(|| {
            "when all machines are done, --resume --index without --rank checks the shards of all, and \
             writes the index"
                .into()
        }),
    ];
    lines.into_iter().flatten().try_for_each(|line| context.output.line(line))
}

/// Lists the samples of the source.
fn list_samples(options: &Options, context: &Context) -> Result<CreateInput, Failure> {
    let SourceOptions { from_dir, from_csv, from_jsonl, from_list } = &options.from;
    if let Some(root) = from_dir {
        let progress = context.progress("listing files", Unit::Samples, None);
        // Listing waits for the disk, so more threads than cores are useful.
        let threads = options.write_options.threads.count().max(8);
        let folders = ClassFolders::read(root, options.with_names, threads, progress, &context.interrupt)?;
        let ClassFolders { classes, samples, ignored, hidden } = folders;
        if ignored > 0 {
            note(format_args!("left out: {} with another extension", text::counted(ignored, "file")));
        }
        if hidden > 0 {
            note(format_args!("left out: {}, as readers skip them", text::counted(hidden, "hidden file")));
        }
        return Ok(CreateInput { root: root.clone(), samples, classes: Some(classes) });
    }
    let list = [from_csv, from_jsonl, from_list].into_iter().flatten().next().map_or("-", String::as_str);
    let document = read_text(list, context)?;
    let shown = if list == "-" { "stdin".to_owned() } else { SecretUrl::from(list).to_string() };
    let samples = match (from_csv, from_jsonl) {
        (Some(_), _) => lists::csv(&document, &options.columns, &shown)?,
        (_, Some(_)) => lists::jsonl(&document, &options.columns, &shown)?,
        _ => lists::files(&document, &shown)?,
    };
    let beside = || match ObjectUrl::parse(list).local_path() {
        // Lists by `find` and `ls` have paths relative to the working directory.
        Ok(Some(path)) if from_list.is_none() => path.parent().unwrap_or(Path::new("")).to_owned(),
        _ => PathBuf::new(),
    };
    Ok(CreateInput { root: options.root.clone().unwrap_or_else(beside), samples, classes: None })
}
