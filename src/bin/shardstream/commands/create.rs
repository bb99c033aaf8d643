//! `shardstream create`

use crate::class_folders::ClassFolders;
use crate::context::Context;
use crate::documents::{check_classes, check_index};
use crate::failure::Failure;
use crate::inspection::{Inspected, Inspection};
use crate::file_samples::{FileSamples, PlannedSample};
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
use shardstream::{Rng, SecretUrl};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Make shards of files: of folders of images, a CSV or JSON-lines list, or a list of files.
///
/// The plan is written beside the shards first (train.plan.json for train-%06d.tar). A shard appears under
/// its name when it is whole; a run that was ended is resumed by --resume, and the shards are the same, byte
/// by byte, on any number of threads and machines. A file that is changed between two runs, with the same
/// size, is not noticed.
///
/// Files are stored as they are. An image that is another one than its extension says, such as a PNG that is
/// called .JPEG, becomes the field of what it is (png), and is listed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    from: SourceOptions,
    /// The directory that relative paths of a list start from. [default: that of a CSV or JSON-lines list,
    /// the working directory otherwise]
    #[arg(long, value_name = "DIR", conflicts_with = "from_dir")]
    root: Option<PathBuf>,
    #[command(flatten)]
    columns: ListColumns,
    /// With --from-dir: a field `json` with the path of the image.
    #[arg(long, requires = "from_dir")]
    with_names: bool,
    /// Decode every image before anything is written, and list those that are damaged. A later --resume may
    /// leave it out.
    #[arg(long)]
    verify: bool,
    /// Leave out files that are missing, empty or no image where their extension says so, and those that
    /// --verify finds, and list them.
    #[arg(long)]
    skip_bad: bool,
    /// The names of the shards, such as 'out/train-%06d.tar' or 's3://bucket/train-%06d.tar'.
    #[arg(long, value_name = "NAMES")]
    to: String,
    #[command(flatten)]
    limits: ShardLimits,
    /// Put the samples into a random order, as a training needs it: --from-dir has them class by class, and a
    /// shuffle buffer mixes only what is near.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// Write the index of the shards, for which a training needs no look at them: beside them
    /// (train.index.json for train-%06d.tar), or here.
    #[arg(long, value_name = "INDEX", num_args = 0..=1)]
    index: Option<Option<String>>,
    #[command(flatten)]
    write_options: WriteOptions,
}

/// What samples are made of.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct SourceOptions {
    /// A folder with a folder of images for each class: samples of jpg, png or webp, and cls. The classes, in
    /// the order of their numbers, are written beside the shards (train.classes.json).
    #[arg(long, value_name = "DIR")]
    from_dir: Option<PathBuf>,
    /// A CSV list with a row for each sample, and the names of the columns in the first row; - is stdin.
    #[arg(long, value_name = "FILE")]
    from_csv: Option<String>,
    /// A list with a JSON object for each sample; - is stdin.
    #[arg(long, value_name = "FILE")]
    from_jsonl: Option<String>,
    /// A list of files; - is stdin. Files that are the same up to the first dot of their names are one
    /// sample.
    #[arg(long, value_name = "FILE")]
    from_list: Option<String>,
}

/// The samples before their files are looked at.
struct CreateInput {
    root: PathBuf,
    items: Vec<PlannedSample>,
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
    let CreateInput { root, items, classes } = find(&options, context)?;
    let threads = write_options.threads.count();
    let inspection = Inspection { root: root.clone(), threads, decode: *verify, skip_bad: *skip_bad };
    let Inspected { mut items, left_out, renamed } = inspection.run(items, context)?;
    if items.is_empty() {
        return Err(Failure::Failed("there are no samples".into()));
    }
    if let Some(seed) = shuffle {
        Rng::new(*seed, 0, 0).shuffle(&mut items);
    }
    let items = FileSamples::new(root, items)?;
    let mut cutter = ShardCutter::new(*limits);
    for number in 0..items.len() {
        cutter.push(&items.key(number), items.sizes(number));
    }
    let shards = cutter.finish();
    let mut hash = items.hash();
    classes.iter().flatten().for_each(|class| hash.text(class));
    shards.iter().for_each(|samples| hash.number(samples.end as u64));
    let mut plan = SavedPlan::new("create", items.len() as u64, shards.len() as u64, hash)
        .option("max-count", limits.max_count)
        .option("max-size", limits.max_size)
        .option("shuffle", shuffle.map_or_else(|| "none".into(), |seed| seed.to_string()));
    if options.with_names {
        plan = plan.option("with-names", true);
    }
    let place = series.beside("classes");
    let job = WriteJob { series, plan, shards, samples: Arc::new(items) };
    if let Some(classes) = &classes {
        // Where the plan is another one, that says more.
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

fn find(options: &Options, context: &Context) -> Result<CreateInput, Failure> {
    let SourceOptions { from_dir, from_csv, from_jsonl, from_list } = &options.from;
    if let Some(root) = from_dir {
        let progress = context.progress("listing files", Unit::Samples, None);
        // To list a directory is to wait for a disk.
        let threads = options.write_options.threads.count().max(8);
        let tree = ClassFolders::read(root, options.with_names, threads, progress, &context.interrupt)?;
        let ClassFolders { classes, items, ignored } = tree;
        if ignored > 0 {
            note(format_args!("left out: {} with another extension", text::counted(ignored, "file")));
        }
        return Ok(CreateInput { root: root.clone(), items, classes: Some(classes) });
    }
    let list = [from_csv, from_jsonl, from_list].into_iter().flatten().next().map_or("-", String::as_str);
    let document = read_text(list, context)?;
    let shown = if list == "-" { "stdin".to_owned() } else { SecretUrl::from(list).to_string() };
    let items = match (from_csv, from_jsonl) {
        (Some(_), _) => lists::csv(&document, &options.columns, &shown)?,
        (_, Some(_)) => lists::jsonl(&document, &options.columns, &shown)?,
        _ => lists::files(&document, &shown)?,
    };
    let beside = || match list {
        // A list of files, as `find` and `ls` write it, has paths from the working directory.
        _ if from_list.is_some() || list == "-" || list.contains("://") => PathBuf::new(),
        list => Path::new(list).parent().unwrap_or(Path::new("")).to_owned(),
    };
    Ok(CreateInput { root: options.root.clone().unwrap_or_else(beside), items, classes: None })
}
