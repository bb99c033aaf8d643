//! `shardstream create`

use crate::class_folders::ClassFolders;
use crate::class_list::{check_classes, check_neighbours, load_classes, share_classes};
use crate::context::Context;
use crate::csv_rows::CellFormat;
use crate::documents::check_index;
use crate::empty_fields::EmptyFields;
use crate::failure::Failure;
use crate::file_samples::{FileSamples, PlannedSample, check_samples};
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

/// Create shards from files: folders of images, a CSV, TSV or JSON-lines list, or a list of files.
///
/// The plan is written beside the shards first (train.plan.json for train-%06d.tar). A shard appears under
/// its name when it is complete, and --resume continues an interrupted run. The shards are the same, byte by
/// byte, on any number of threads and machines. If a file changes between two runs but keeps its size, the
/// change is not noticed.
///
/// Files are stored unchanged, except for pictures that --max-side or --short-side resizes. An image with a
/// wrong extension, such as a PNG called .JPEG, is stored as the field of its real format (png), and a note
/// names it.
///
/// The key of a sample is the path of its file (below --from-dir, or as written in a CSV, TSV or JSON-lines
/// list), without the extension, and with _ for each dot in the file's name: cat/a.v2.png has the key
/// cat/a_v2. Keys stay the same if other files are added or removed, so `split` keeps each sample in its
/// split.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    from: SourceOptions,
    /// The directory for relative paths in a list. [default: the directory of a CSV, TSV or JSON-lines list;
    /// for --from-list, the working directory]
    #[arg(long, value_name = "DIR", conflicts_with = "from_dir")]
    root: Option<PathBuf>,
    #[command(flatten)]
    columns: ListColumns,
    /// With --from-list: the names end in NUL, as `find -print0` writes them.
    #[arg(long, conflicts_with_all = ["from_dir", "from_csv", "from_tsv", "from_jsonl"])]
    null: bool,
    /// Number the samples (000000000, 000000001, …) instead of making keys of the paths. An added or removed
    /// file then changes the keys of all samples after it, and `split` moves samples between train and val.
    #[arg(long, conflicts_with_all = ["key", "from_list"])]
    number_keys: bool,
    /// With --from-dir: number the classes by this JSON list of names. The first run writes the list, and
    /// later runs, such as one on a validation folder, use it.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["from_csv", "from_tsv", "from_jsonl", "from_list"])]
    classes: Option<String>,
    /// With --from-dir: add a field `json` with the path of the image.
    #[arg(long, conflicts_with_all = ["from_csv", "from_tsv", "from_jsonl", "from_list"])]
    with_names: bool,
    /// Decode every image before anything is written, and list damaged images. A later --resume does not need
    /// this option.
    #[arg(long)]
    verify: bool,
    /// Leave out samples with bad files, and list the bad files. A file is bad if it is missing or empty, if
    /// it has the extension of an image but is no image, or if --verify finds it damaged. COUNT is the
    /// maximum number of samples that are left out. [default: a thousandth of the samples, but at least 10]
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    skip_bad: Option<Option<u64>>,
    #[command(flatten)]
    empty: EmptyFields,
    /// The names of the shards, such as 'out/train-%06d.tar' or 's3://bucket/train-%06d.tar'.
    #[arg(long, value_name = "NAMES")]
    to: String,
    #[command(flatten)]
    limits: ShardLimits,
    /// Shuffle all samples with this seed. A training needs this: --from-dir lists the samples class by
    /// class, and a shuffle buffer mixes only nearby samples.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// Write the index of the shards to INDEX; without INDEX, beside the shards (train.index.json for
    /// train-%06d.tar). A training that has the index need not scan the shards.
    #[arg(long, value_name = "INDEX", num_args = 0..=1)]
    index: Option<Option<String>>,
    #[command(flatten)]
    write_options: WriteOptions,
}

/// The source of the samples.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct SourceOptions {
    /// A folder with one folder of images per class. Samples have the fields jpg, png or webp, and cls. The
    /// names of the classes are written beside the shards, in the order of their numbers
    /// (train.classes.json).
    #[arg(long, value_name = "DIR")]
    from_dir: Option<PathBuf>,
    /// A CSV list with one row per sample, and column names in the first row; - is stdin.
    #[arg(long, value_name = "FILE")]
    from_csv: Option<String>,
    /// A list of tab-separated values with one row per sample, and column names in the first row; quotes are
    /// ordinary characters; - is stdin.
    #[arg(long, value_name = "FILE")]
    from_tsv: Option<String>,
    /// A list with one JSON object per sample, each on a line; - is stdin.
    #[arg(long, value_name = "FILE")]
    from_jsonl: Option<String>,
    /// A list of files, one per line; - is stdin. Files whose paths are the same up to the first dot of the
    /// file name form one sample.
    #[arg(long, value_name = "FILE")]
    from_list: Option<String>,
}

/// The samples before their files are inspected.
struct CreateInput {
    root: PathBuf,
    samples: Vec<PlannedSample>,
    classes: Option<Vec<String>>,
    /// The name of the list that the samples come from, for messages.
    list: String,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let Options { limits, shuffle, write_options, verify, skip_bad, empty, .. } = &options;
    write_options.check(options.index.is_some())?;
    let series = Series::new(&options.to)?;
    let SourceOptions { from_dir, from_list, .. } = &options.from;
    if !options.columns.is_default() && (from_dir.is_some() || from_list.is_some()) {
        let what = "--file, --no-files, --key and --as-json are for --from-csv, --from-tsv and --from-jsonl";
        return Err(Failure::Usage(what.into()));
    }
    let place = options.index.as_ref();
    let index = place.map(|place| place.clone().unwrap_or_else(|| series.beside("index")));
    check_index(index.as_deref(), &series, write_options, context)?;
    let shared = SharedClasses::load(&options, index.as_deref(), &series, context)?;
    let CreateInput { root, mut samples, classes, list } = list_samples(&options, shared.as_ref(), context)?;
    if options.number_keys {
        samples.iter_mut().for_each(|sample| sample.key = None);
    }
    let advice = match (from_dir, from_list) {
        (Some(_), _) => "; rename a file, or number the samples by --number-keys",
        (_, None) if options.columns.keys_are_paths() => {
            "; give a column with keys by --key, or number the samples by --number-keys"
        }
        _ => "",
    };
    check_samples(&samples, &list, advice)?;
    let threads = write_options.threads.count();
    let inspection = Inspection {
        root: root.clone(),
        threads,
        decode: *verify,
        skip_bad: *skip_bad,
        empty: empty.clone(),
        list,
    };
    let Inspected { mut samples, left_out, renamed } = inspection.run(samples, context)?;
    if samples.is_empty() {
        return Err(Failure::Failed("there are no samples".into()));
    }
    if let Some(seed) = shuffle {
        Rng::new(*seed, 0, 0).shuffle(&mut samples);
    }
    let samples = FileSamples::new(root, samples);
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
    if options.number_keys {
        plan = plan.option("number-keys", true);
    }
    let place = series.beside("classes");
    let job = WriteJob { series, plan, shards, samples: Arc::new(samples) };
    if let Some(classes) = &classes {
        // The plan is checked before the other documents: if the plan differs too, its error says more than
        // the error of another document.
        job.check(write_options, context)?;
        check_classes(&place, classes, write_options, context)?;
        match &shared {
            None => check_neighbours(&job.series, classes, context)?,
            Some(SharedClasses { classes: Some(_), .. }) => {}
            Some(SharedClasses { place, .. }) => share_classes(place, classes, context)?,
        }
    }
    let start = Instant::now();
    let outcome = job.run(write_options, context)?.leaving_out(left_out);
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
            "when all machines are done, a run with --resume --index and without --rank checks all shards \
             and writes the index"
                .into()
        }),
    ];
    lines.into_iter().flatten().try_for_each(|line| context.output.line(line))
}

/// The file of `--classes`, and the classes in the file if the file exists.
struct SharedClasses {
    place: String,
    classes: Option<Vec<String>>,
}

impl SharedClasses {
    fn load(
        options: &Options,
        index: Option<&str>,
        series: &Series,
        context: &Context,
    ) -> Result<Option<Self>, Failure> {
        let Some(place) = options.classes.clone() else { return Ok(None) };
        let url = ObjectUrl::parse(&place);
        let plan = series.beside("plan");
        let is_other = [index, Some(&*plan)].into_iter().flatten().any(|other| {
            url.is_same_place(&ObjectUrl::parse(other))
        });
        if is_other || series.holds(&place) {
            let place = SecretUrl::from(place);
            return Err(Failure::Usage(format!(
                "the list of classes {place} would replace a file of the series: give another name"
            )));
        }
        let classes = load_classes(&place, context)?;
        Ok(Some(SharedClasses { place, classes }))
    }
}

/// Lists the samples of the source.
fn list_samples(
    options: &Options,
    shared: Option<&SharedClasses>,
    context: &Context,
) -> Result<CreateInput, Failure> {
    let SourceOptions { from_dir, from_csv, from_tsv, from_jsonl, from_list } = &options.from;
    if let Some(root) = from_dir {
        let progress = context.progress("listing files", Unit::Samples, None);
        // Listing waits for the disk, so more threads than cores are useful.
        let threads = options.write_options.threads.count().max(8);
        let listed = shared.and_then(|shared| shared.classes.clone());
        let ClassFolders { classes, samples, notes } =
            ClassFolders::read(root, listed, options.with_names, threads, progress, &context.interrupt)?;
        notes.iter().for_each(note);
        let list = String::new();
        return Ok(CreateInput { root: root.clone(), samples, classes: Some(classes), list });
    }
    let places = [from_csv, from_tsv, from_jsonl, from_list];
    let place = places.into_iter().flatten().next().map_or("-", String::as_str);
    let document = read_text(place, context)?;
    let list = if place == "-" { "stdin".to_owned() } else { SecretUrl::from(place).to_string() };
    let samples = match (from_csv, from_tsv, from_jsonl) {
        (Some(_), _, _) => lists::csv(&document, CellFormat::Csv, &options.columns, &list)?,
        (_, Some(_), _) => lists::csv(&document, CellFormat::Tsv, &options.columns, &list)?,
        (_, _, Some(_)) => lists::jsonl(&document, &options.columns, &list)?,
        _ => lists::files(&document, options.null, &list)?,
    };
    let beside = || match ObjectUrl::parse(place).local_path() {
        // The lists that `find` and `ls` write have paths relative to the working directory.
        Ok(Some(path)) if from_list.is_none() => path.parent().unwrap_or(Path::new("")).to_owned(),
        _ => PathBuf::new(),
    };
    Ok(CreateInput { root: options.root.clone().unwrap_or_else(beside), samples, classes: None, list })
}
