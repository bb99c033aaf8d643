//! `shardstream bench`

use crate::context::Context;
use crate::failure::Failure;
use crate::files;
use crate::measuring::{Bench, LoaderSettings, SampleWork, StageRate};
use crate::options::{JsonOption, TrainingOptions};
use crate::table::Table;
use crate::text;
use serde::Serialize;
use shardstream::SecretUrl;
use shardstream::store::{ObjectUrl, ObjectVersion, RequestRecording};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of measurements of each setting of `--compare`.
const ROUNDS: usize = 3;
/// Size in bytes below which a sample takes longer to parse than to read.
const SMALL_SAMPLE: f64 = 16e3;

/// Measure how fast shards are read, parsed, decoded and loaded, and name the slowest stage.
///
/// Each stage is measured by itself for --seconds, and includes the work of the stages before it: `read`
/// reads the bytes, `parse` splits them into samples, `decode` decodes their fields (with --decode or
/// --resize), and `loader` does all of this in batches, as in a training. Local files that were read before
/// come from the page cache; to measure the disk, use data larger than the memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    training: TrainingOptions,
    /// Number of samples in a batch.
    #[arg(long, value_name = "SAMPLES", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Decode all fields, including images.
    #[arg(long)]
    decode: bool,
    /// Decode only the image of each sample, and resize it to a square tensor with this side.
    #[arg(long, value_name = "PIXELS", conflicts_with = "decode")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    resize: Option<u16>,
    /// Seconds for which each stage is measured.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Measure only the loader, three times with each value of a setting: threads, streams, batch or shuffle,
    /// such as threads=1,2,4.
    #[arg(long, value_name = "SETTING=VALUES", value_parser = comparison)]
    compare: Option<Comparison>,
    /// Write a timeline of the loader's threads to this file, for Perfetto or chrome://tracing. The file
    /// grows by some MB per second.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the size and times of each request for remote shards to this file, without names, URLs or keys.
    /// A recording can be replayed without a network, to test how the number of connections is tuned.
    #[arg(long, value_name = "FILE")]
    record: Option<String>,
}

impl Options {
    /// The file for the timeline.
    pub(crate) fn trace(&self) -> Option<&Path> {
        self.trace.as_deref()
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| format!("{text:?} is not a number of seconds from 0.01 to 86400"))
}

/// A setting of the loader, and the values to compare.
#[derive(Debug, Clone)]
struct Comparison {
    setting: ComparedSetting,
    values: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ComparedSetting {
    Threads,
    Streams,
    Batch,
    Shuffle,
}

/// Parses the value of `--compare`.
fn comparison(text: &str) -> Result<Comparison, String> {
    let (setting, values) = text.split_once('=').ok_or("expected SETTING=VALUES, such as threads=1,2,4")?;
    let setting = <ComparedSetting as clap::ValueEnum>::from_str(setting, false)
        .map_err(|_| format!("{setting:?} is not a setting: give threads, streams, batch or shuffle"))?;
    let values = values.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
    match values {
        Ok(values) if values.iter().all(|value| *value > 0 || setting == ComparedSetting::Shuffle) => {
            Ok(Comparison { setting, values })
        }
        _ => Err("the values must be numbers above 0, separated by commas".into()),
    }
}

/// The document that `--json` writes.
#[derive(Debug, Serialize)]
struct BenchReport {
    stages: Vec<StageRate>,
    slowest: String,
    advice: String,
    /// The loader's own report, which says what limits the loader.
    loader: serde_json::Value,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let training = &options.training;
    let shards = training.patterns.shards(context)?;
    let index = training.index.load(context)?;
    let threads = training.threads.count();
    let work = match options.resize {
        Some(pixels) => SampleWork::Resize(pixels.into()),
        None if options.decode => SampleWork::Decode,
        None => SampleWork::Nothing,
    };
    let streams = training.streams(threads.min(shards.len()));
    let (batch, shuffle) = (options.batch as usize, training.shuffle as usize);
    let recording = options.record.as_deref().map(|path| RecordingFile::begin(path, context)).transpose()?;
    let store = match &recording {
        Some(recording) => context.recorded_store(&recording.recording)?,
        None => context.store.clone(),
    };
    let time = Duration::from_secs_f64(options.seconds);
    let bench = Bench { shards, index, time, store, context };
    let keep_shards = training.keep_shards;
    let settings = LoaderSettings { threads, streams, batch, keep_shards, shuffle, work };
    // An option that the dataset refuses is an error before anything is measured.
    bench.dataset(settings)?;
    let done = match &options.compare {
        Some(comparison) => compare(&bench, settings, comparison, training.json),
        None => stages(&bench, settings, training.json),
    };
    // The recording is saved even after a failure.
    let saved = recording.map_or(Ok(()), |recording| recording.save(context));
    done.and(saved)
}

/// The recording of `--record`, and its file.
struct RecordingFile<'a> {
    path: &'a str,
    recording: RequestRecording,
}

impl<'a> RecordingFile<'a> {
    /// Writes an empty recording, so that a file which cannot be written is an error before the measurement.
    ///
    /// # Errors
    /// If the file cannot be written, or if it exists and is not a recording: in `bench --record data/*.tar`,
    /// the shell gives the first shard as the name of the recording.
    fn begin(path: &'a str, context: &Context) -> Result<Self, Failure> {
        let recording = RecordingFile { path, recording: RequestRecording::new() };
        if files::exists(&context.store, path)? {
            let mut first = context.store.open_range(path, 0..MAX_HEAD, &ObjectVersion::any())?;
            let head = first.next().transpose()?.unwrap_or_default();
            if !head.is_empty() && !RequestRecording::is_recording(&head) {
                return Err(Failure::Failed(format!(
                    "--record: {} already exists, and is not a recording: give another name",
                    SecretUrl::from(path)
                )));
            }
        }
        recording.save(context)?;
        Ok(recording)
    }

    fn save(&self, context: &Context) -> Result<(), Failure> {
        files::write(&context.store, self.path, self.recording.to_json_lines().as_bytes(), true)?;
        Ok(())
    }
}

/// The first line of a recording has at most this many bytes.
const MAX_HEAD: u64 = 4096;

/// Measures all stages.
fn stages(bench: &Bench<'_>, settings: LoaderSettings, json: JsonOption) -> Result<(), Failure> {
    let mut stages = vec![bench.read(settings.threads)?];
    if bench.is_compressed() {
        stages.push(bench.decompress(settings.threads)?);
    }
    let parsed = bench.parse(settings.threads, SampleWork::Nothing)?;
    if parsed.samples == 0 {
        return Err(Failure::Failed(format!(
            "no sample was read in {:.1} s: the shards have no samples, or --seconds is too short",
            parsed.seconds
        )));
    }
    let bytes_per_sample = parsed.bytes as f64 / parsed.samples as f64;
    stages.push(parsed);
    if settings.work != SampleWork::Nothing {
        stages.push(bench.parse(settings.threads, settings.work)?);
    }
    let (mut measured, loader) = bench.loader("loader", settings)?;
    measured.set_bytes_from_samples(bytes_per_sample);
    stages.push(measured);
    let (slowest, advice) = verdict(&stages, settings, bench);
    if json.json {
        let loader = serde_json::from_str(&loader.to_json()).unwrap_or_default();
        return bench.context.output.document(&BenchReport { stages, slowest, advice, loader });
    }
    let output = &bench.context.output;
    output.lines(table("stage", &stages))?;
    output.lines(format_args!("\nloader: {}", loader.to_string().replace('\n', "\n        ")))?;
    output.line(format_args!("slowest: {slowest}"))?;
    output.lines(format_args!("try: {advice}"))
}

fn table(title: &str, stages: &[StageRate]) -> Table {
    if stages.iter().all(|stage| stage.bytes == 0) {
        let mut table = Table::new(&[title, ">samples/s", ">seconds"]);
        for stage in stages {
            let rate = text::number(stage.samples_per_second as u64);
            table.row([stage.stage.clone(), rate, format!("{:.1}", stage.seconds)]);
        }
        return table;
    }
    let mut table = Table::new(&[title, ">MB/s", ">samples/s", ">seconds"]);
    for stage in stages {
        let rate = match stage.samples {
            0 => String::new(),
            _ => text::number(stage.samples_per_second as u64),
        };
        let megabytes = match stage.bytes {
            0 => String::new(),
            _ => format!("{:.1}", stage.bytes_per_second / 1e6),
        };
        table.row([stage.stage.clone(), megabytes, rate, format!("{:.1}", stage.seconds)]);
    }
    table
}

/// The stage that takes the longest for a sample of this size. The time of a stage includes the stages before
/// it, so the stage's own time is its time minus the time of the stage before.
fn slowest(stages: &[StageRate], bytes_per_sample: f64) -> Option<&StageRate> {
    let mut before = 0.0;
    let mut slowest: Option<(&StageRate, f64)> = None;
    for stage in stages {
        let time = bytes_per_sample / stage.bytes_per_second.max(1e-9);
        let own = (time - before).max(0.0);
        before = time.max(before);
        if slowest.is_none_or(|(_, longest)| own > longest) {
            slowest = Some((stage, own));
        }
    }
    slowest.map(|(stage, _)| stage)
}

/// The name of the slowest stage, and advice.
fn verdict(stages: &[StageRate], settings: LoaderSettings, bench: &Bench<'_>) -> (String, String) {
    let parsed = stages.iter().find(|stage| stage.samples > 0);
    let bytes_per_sample = parsed.map_or(1.0, |parse| parse.bytes as f64 / parse.samples as f64).max(1.0);
    // For compressed shards, the stored bytes per sample are not known. So `read` is left out; the time of
    // `decompress` includes the time of `read`.
    let counted = if bench.is_compressed() { &stages[1..] } else { stages };
    let Some(slowest) = slowest(counted, bytes_per_sample) else { return ("read".into(), String::new()) };
    let remote = bench.shards.iter().any(|url| !ObjectUrl::from(url).is_local());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let advice = match &*slowest.stage {
        "read" if remote => "more --threads and --streams, for more requests at a time; a --cache",
        "read" => "a faster disk, or more --threads if it is idle",
        "decompress" => ".tar instead of compressed shards: images are compressed already",
        "parse" if bytes_per_sample < SMALL_SAMPLE => {
            "more --threads, or larger samples: the headers of small samples take most of the time"
        }
        "parse" => "more --threads: parsing takes little more than reading the bytes from memory",
        "decode" if settings.threads < cores => "more --threads: some cores are idle",
        "decode" => "smaller images in the shards, or more cores: all cores decode",
        _ if settings.streams < settings.threads => "more --streams: there are fewer streams than threads",
        _ => "--compare threads=…, streams=… or shuffle=…: the loader takes longer than its work on samples",
    };
    (slowest.stage.clone(), advice.into())
}

/// Measures the loader with each value of a setting.
fn compare(
    bench: &Bench<'_>,
    settings: LoaderSettings,
    comparison: &Comparison,
    json: JsonOption,
) -> Result<(), Failure> {
    let name = format!("{:?}", comparison.setting).to_lowercase();
    let mut rounds: Vec<Vec<StageRate>> = vec![Vec::new(); comparison.values.len()];
    // The values take turns, so that other load on the machine affects all of them alike.
    for _ in 0..ROUNDS {
        for (value, measured) in comparison.values.iter().zip(&mut rounds) {
            let mut settings = settings;
            match comparison.setting {
                ComparedSetting::Threads => settings.threads = *value,
                ComparedSetting::Streams => settings.streams = *value,
                ComparedSetting::Batch => settings.batch = *value,
                ComparedSetting::Shuffle => settings.shuffle = *value,
            }
            measured.push(bench.loader(&format!("{name}={value}"), settings)?.0);
        }
    }
    let median = |mut measured: Vec<StageRate>| {
        measured.sort_by(|one, other| one.samples_per_second.total_cmp(&other.samples_per_second));
        measured.swap_remove(measured.len() / 2)
    };
    let medians: Vec<StageRate> = rounds.into_iter().map(median).collect();
    if json.json {
        return medians.iter().try_for_each(|measured| bench.context.output.record(measured));
    }
    bench.context.output.lines(table("loader", &medians))?;
    let best =
        medians.iter().max_by(|one, other| one.samples_per_second.total_cmp(&other.samples_per_second));
    let best = best.map_or("", |best| &best.stage);
    bench.context.output.lines(format_args!("\nfastest: {best} (medians of {ROUNDS} rounds, in turn)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_stage_adds_most_to_the_time_of_a_sample() {
        let slowest_of = |rates: &[(&str, f64)]| {
            let stages: Vec<StageRate> = rates
                .iter()
                .map(|(stage, rate)| StageRate {
                    bytes_per_second: *rate,
                    ..StageRate::new(*stage, 0, 0, Duration::ZERO)
                })
                .collect();
            slowest(&stages, 1000.0).map(|stage| stage.stage.clone())
        };
        assert_eq!(
            slowest_of(&[("read", 9e8), ("parse", 5e8), ("decode", 1e8), ("loader", 9.5e7)]).unwrap(),
            "decode"
        );
        assert_eq!(slowest_of(&[("read", 1e8), ("parse", 9.9e7), ("loader", 9.5e7)]).unwrap(), "read");
        assert_eq!(slowest_of(&[("read", 9e8), ("parse", 8e8), ("loader", 1e8)]).unwrap(), "loader");
        // A case of noise: `parse` was measured as faster than `read`, although `parse` includes `read`.
        assert_eq!(slowest_of(&[("read", 1e8), ("parse", 2e8), ("loader", 9.9e7)]).unwrap(), "read");
        assert_eq!(slowest_of(&[]), None);
    }

    #[test]
    fn comparisons_are_a_setting_and_its_values() {
        let read = comparison("threads=1,2,4").unwrap();
        assert_eq!((read.setting, read.values), (ComparedSetting::Threads, vec![1, 2, 4]));
        assert!(
            ["threads", "threads=", "threads=0", "x=1", "threads=a"]
                .iter()
                .all(|text| comparison(text).is_err())
        );
        assert!(comparison("shuffle=0,1000").is_ok());
        assert!(seconds("0").is_err() && seconds("nan").is_err() && seconds("0.5") == Ok(0.5));
    }
}
