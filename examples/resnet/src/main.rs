//! The program: opens devices, data and checkpoints as the command line says, and trains.

use clap::Parser;
use resnet::args::{Args, WaitLimits};
use resnet::artifact::Artifact;
use resnet::causes::with_causes;
use resnet::checkpoint::{Checkpoints, Resume, Saver};
use resnet::compile::{Cache, Compiler};
use resnet::curves::{Curves, serve_metrics};
use resnet::data::{DataOptions, Folder, Sets, ShardData, Source, Split, Waiting};
use resnet::log;
use resnet::logdir::{LogDir, LogDirError, Records};
use resnet::model::{DeviceMemory, Model, Uploader};
use resnet::network::{DryRun, Network};
use resnet::plugin::FoundPlugin;
use resnet::profile::Profile;
use resnet::progress::Task;
use resnet::report::Summary;
use resnet::signals::Signals;
use resnet::stop::{self, Stop};
use resnet::train::{self, Start, TrainContext, TrainOptions};
use resnet::watchdog::{Watchdog, WatchdogSettings};
use resnet::weights::{self, Destination, Initial};
use resnet::{Error, Result, devices, plugin, spawn};
use shardstream::{SecretUrl, Topology};
use shardstream_pjrt::Client;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use synthetic::{Counts, Shards};

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e @ Error::Stopped { .. }) => {
            eprintln!("{e}");
            ExitCode::from(e.exit_code())
        }
        Err(e) => {
            eprintln!("error: {}", with_causes(&e));
            ExitCode::from(e.exit_code())
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if !args.network.compile_only.is_empty() {
        return compile_only(args);
    }
    // This call comes before any other thread starts, so that the signals are blocked in all threads.
    let signals = Signals::block()?;
    match args.processes.spawn {
        Some(processes) if !spawn::is_spawned() => start_processes(args, processes, signals),
        _ => {
            let stop = Stop::default();
            listen(signals, stop.clone())?;
            spawn::follow_parent(stop.clone());
            train(args, stop)
        }
    }
}

/// Listens for signals: the first requests a stop, the second ends the process at once.
fn listen(signals: Signals, stop: Stop) -> Result<()> {
    let mut received = 0;
    signals.listen(move |signal| {
        received += 1;
        // Spawned processes get each signal twice: from the terminal, and from their parent.
        if received > 1 && !spawn::is_spawned() {
            stop::end("a second signal", 128 + signal);
        }
        stop.request();
    })?;
    Ok(())
}

/// Starts several processes. First downloads the plugin and writes the synthetic shards, since all processes
/// need both.
fn start_processes(args: &Args, processes: usize, signals: Signals) -> Result<()> {
    let found = plugin::find(args.network.plugin.as_ref())?;
    if args.data.shards.is_none() && args.data.folder.is_none() {
        synthetic::shards(&args.work_dir()?, Counts::default())?;
    }
    if !found.is_gpu() {
        return spawn::run(processes, found.is_tpu(), &[], signals);
    }
    let (_server, environment) = devices::serve(&args.artifact()?, processes)?;
    spawn::run(processes, found.is_tpu(), &environment, signals)
}

/// Trains, and copies the log to the log directory if there is one.
fn train(args: &Args, stop: Stop) -> Result<()> {
    let topology = args.topology()?;
    stop.set_idle(topology.world_size() == 1);
    if let Some(address) = args.metrics(&topology)? {
        serve_metrics(address)?;
    }
    // `println!` would panic if the standard output is closed.
    let mut out = std::io::stdout();
    let Some(url) = &args.output.log_dir else { return train_to(args, topology, None, stop, &mut out) };
    let dir = LogDir::new(url, topology.rank())?;
    let mut log = dir.log(out)?;
    let records = log.records();
    let result = train_to(args, topology, Some((&dir, records)), stop, &mut log);
    match &result {
        Ok(()) => {}
        Err(stopped @ Error::Stopped { .. }) => writeln!(log, "{stopped}")?,
        Err(error) => writeln!(log, "error: {}", with_causes(error))?,
    }
    // A log that cannot be written does not fail the training.
    warn_about_log(log.finish());
    result
}

fn warn_about_log(result: Result<(), LogDirError>) {
    if let Err(error) = result {
        eprintln!("warning: {}", with_causes(&error));
    }
}

/// Trains, and writes the log to `out`.
fn train_to(
    args: &Args,
    topology: Topology,
    dir: Option<(&LogDir, Records)>,
    stop: Stop,
    out: &mut dyn Write,
) -> Result<()> {
    let artifact = args.artifact()?;
    let options = args.train_options(topology);
    // Only rank 0 writes weights. The URL is checked here, before the training.
    let weights = match &args.output.save_weights {
        Some(url) if topology.rank() == 0 => Some(Destination::new(url)?),
        _ => None,
    };
    let checkpoints = open_checkpoints(args, &artifact, &options)?;
    let resume = args.output.resume.unwrap_or(Resume::No);
    let shared_checkpoints = checkpoints.clone().filter(|_| topology.world_size() > 1);
    let listed = shared_checkpoints.as_ref().map(Checkpoints::newest).transpose()?.flatten();
    // Each log begins with the line about the devices, so the lines about the resume are written after that
    // line.
    let mut resume_log = Vec::new();
    let resumed =
        checkpoints.as_ref().map(|checkpoints| checkpoints.begin(resume, &mut resume_log)).transpose();
    let checkpoint = match resumed {
        Ok(resumed) => resumed.flatten(),
        Err(error) => {
            out.write_all(&resume_log)?;
            return Err(error.into());
        }
    };
    if let Some(finished) = &checkpoint
        && finished.progress.epochs.len() as u64 >= args.training.epochs
    {
        out.write_all(&resume_log)?;
        if let Some(weights) = weights {
            writeln!(out, "{}", weights.write(&artifact.manifest, &finished.tensors, &weights::RETRIES)?)?;
        }
        let progress = finished.progress.clone();
        return conclude(args, &Summary { epochs: progress.epochs, time: progress.time });
    }
    if let Some(checkpoints) = &checkpoints {
        checkpoints.try_place()?;
    }
    let initial = match (&args.training.init_from, &checkpoint) {
        (Some(url), None) => Some(Initial::read(url, &artifact.manifest)?),
        (Some(_), Some(_)) => {
            writeln!(resume_log, "--init-from is not read: the resumed training has its own weights")?;
            None
        }
        (None, _) => None,
    };
    if let Some(initial) = &initial {
        writeln!(resume_log, "{initial}")?;
    }
    let first_step = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.progress.steps());
    let (client, found) = open_devices(args, &artifact, &topology, first_step, initial.as_ref())?;
    let profile = args.output.profile.as_ref();
    let profile =
        profile.map(|url| Profile::new(url, args.output.profile_steps, &client, topology)).transpose()?;
    if let Some(checkpoints) = &shared_checkpoints {
        // By now all ranks of this run have started, so all ranks of earlier runs have ended. Therefore no
        // other run can still complete a checkpoint.
        checkpoints.check_newest(listed.as_deref())?;
    }
    let (m, how) = (&artifact.manifest, &found.how);
    writeln!(
        out,
        "{} ({}): {} on {} of {} {} devices (plugin: {how}), {} images of {}x{} per step; {topology} has {} \
         of the devices",
        artifact.name,
        m.dtype,
        m.model,
        m.devices,
        client.devices(),
        client.platform()?,
        m.global_batch(),
        m.size,
        m.size,
        client.local_devices(),
    )?;
    let waiting = Waiting::default();
    let mut data = args.data_options(&artifact, client.local_devices(), topology, waiting.clone());
    if found.is_gpu() {
        data.memory = Some(Arc::new(DeviceMemory::new(&client)));
    }
    let source = open_source(args, &artifact, &data, out)?;
    out.write_all(&resume_log)?;
    let mut start = checkpoint.as_ref().map(Start::from).unwrap_or_default();
    start.begin(&*source, options.epochs)?;
    let mut network: Box<dyn Network> = match args.dry_step()? {
        Some(step) => {
            writeln!(out, "DRY RUN: nothing is computed; a step takes {:.1} ms", step.as_secs_f64() * 1e3)?;
            let uploader = Uploader::new(&client, &artifact.manifest);
            Box::new(DryRun::new(artifact.manifest.clone(), uploader, client.local_devices(), step))
        }
        None => {
            let mut model = compile(args, &client, &found, &artifact, out)?;
            if let Some(checkpoint) = &checkpoint {
                model.restore(&checkpoint.tensors)?;
            } else if let Some(initial) = initial {
                let mut state = model.state(0)?;
                initial.apply(&mut state);
                model.restore(&state)?;
            }
            Box::new(model)
        }
    };
    let mut saver = checkpoints.map(|checkpoints| Saver::new(checkpoints, args.output.checkpoint_steps));
    // The numbers are of the whole job, so only rank 0 writes the curves.
    let (dir, records) = dir.unzip();
    let events = dir.filter(|_| topology.rank() == 0).map(LogDir::events).transpose()?;
    let shared = spawn::shared_dir().or(args.output.checkpoint.clone());
    let notes = |folder: &str| shared.as_ref().map(|url| format!("{}/{folder}", url.trim_end_matches('/')));
    stop.join(topology, notes("stop"), start.steps())?;
    stop.set_idle(false);
    let settings = watchdog_settings(args, waiting, topology, records);
    let watchdog = Watchdog::start(settings, topology, notes("watch"), start.steps())?;
    let curves = Curves { events: events.as_ref() };
    let context = TrainContext { saver: saver.as_mut(), curves, profile, stop, watchdog: watchdog.clone() };
    let summary = train::train(&mut *network, &options, &*source, start, context, out);
    watchdog.finish();
    if let Some(events) = events {
        warn_about_log(events.finish());
    }
    let summary = summary?;
    let saved = weights.map(|weights| save(&weights, &*network, out)).unwrap_or(Ok(()));
    let concluded = conclude(args, &summary);
    saved.and(concluded)
}

/// Opens the directory of checkpoints, if there is one.
fn open_checkpoints(args: &Args, artifact: &Artifact, options: &TrainOptions) -> Result<Option<Checkpoints>> {
    let Some(url) = &args.output.checkpoint else { return Ok(None) };
    let checkpoints = Checkpoints::new(url, artifact, args.training.seed, options.inputs())?;
    let is_dry = args.processes.dry_run.is_some();
    Ok(Some(checkpoints.keep(args.output.keep).topology(options.topology).dry(is_dry)))
}

/// Writes the weights, with a line in the log.
fn save(weights: &Destination, network: &dyn Network, out: &mut dyn Write) -> Result<()> {
    let saved = weights.write(network.manifest(), &network.state()?, &weights::RETRIES)?;
    writeln!(out, "{saved}")?;
    Ok(())
}

/// The settings of the watchdog. The watchdog writes warnings to the log directory and to the standard error.
/// The watchdog does not write to the log itself, since the thread that hangs may hold the log.
fn watchdog_settings(
    args: &Args,
    waiting: Waiting,
    topology: Topology,
    records: Option<Records>,
) -> WatchdogSettings {
    let WaitLimits { warn_after, end_after } = args.wait_limits();
    let print = move |line: &str| {
        let line = format!("{}{line}\n", log::prefix(&topology));
        // `eprintln!` would panic if the standard error is closed.
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(records) = &records {
            records.write(line.into_bytes());
        }
    };
    let batch_wait = Box::new(move || waiting.cause());
    WatchdogSettings { warn_after, end_after, batch_wait, print: Box::new(print) }
}

/// Writes the summary, and returns an error if the accuracy is below the target.
fn conclude(args: &Args, summary: &Summary) -> Result<()> {
    if let Some(path) = &args.output.summary {
        let json = serde_json::to_vec_pretty(summary).map_err(std::io::Error::from)?;
        std::fs::write(path, json)?;
    }
    match (args.training.target_accuracy, summary.best()) {
        (Some(target), Some((best, _))) if 100.0 * best < target => Err(Error::Target { best, target }),
        _ => Ok(()),
    }
}

/// Opens the devices. Unless this is a dry run, checks that the plugin has joined all processes of the job:
/// the CPU plugin never does, so each process would train alone. Also returns the plugin.
fn open_devices(
    args: &Args,
    artifact: &Artifact,
    topology: &Topology,
    first_step: u64,
    initial: Option<&Initial>,
) -> Result<(Client, FoundPlugin)> {
    let found = plugin::find(args.network.plugin.as_ref())?;
    let (devices, ranks) = (artifact.manifest.devices, topology.world_size());
    if !devices.is_multiple_of(ranks) {
        return Err(Error::Usage(format!(
            "{} is for {devices} devices, which cannot be divided among {ranks} processes",
            artifact.name
        )));
    }
    let weights = initial.map_or("random weights".into(), |initial| format!("weights {}", initial.sha256()));
    let run = format!("{}, from step {first_step}, {weights}, {}", artifact.name, args.identity());
    let client = devices::open(&found, artifact, topology, &args.network.plugin_options, &args.join(), &run)?;
    let (all, local) = (client.devices(), client.local_devices());
    if ranks > 1 && all == local && args.processes.dry_run.is_none() {
        return Err(Error::Usage(format!(
            "{} is for {devices} device(s) of {ranks} processes, and the plugin has not joined the \
             processes: each would train alone, on {local} device(s). The CPU plugin cannot join processes: \
             start one process for all devices, or test reading the data with --dry-run",
            artifact.name
        )));
    }
    if all != local && local * ranks != all {
        // Without this check, several processes would read the same data, and the losses would not show the
        // mistake.
        return Err(Error::Usage(format!(
            "the job has {all} devices, and {local} of them belong to this process, but {topology} is of \
             {ranks} process(es): give each process its --rank and --world-size, or set SHARDSTREAM_RANK and \
             SHARDSTREAM_WORLD_SIZE"
        )));
    }
    Ok((client, found))
}

/// Compiles the programs of the network, or loads them from the cache.
fn compile(
    args: &Args,
    client: &Client,
    found: &FoundPlugin,
    artifact: &Artifact,
    out: &mut dyn Write,
) -> Result<Model> {
    let task = Task::spinner("compiling");
    let cache =
        args.compile_cache().and_then(|dir| Cache::open(dir, client, found, &args.network.plugin_options));
    let mut compiler = Compiler::with_cache(client, cache);
    let model = Model::compile(&mut compiler, artifact, args.training.seed)?;
    // The task is dropped and not marked as done, since the log gets a line with more details.
    drop(task);
    writeln!(out, "{}", compiler.report())?;
    Ok(model)
}

/// Opens the data for training and for validation.
fn open_source(
    args: &Args,
    artifact: &Artifact,
    options: &DataOptions,
    out: &mut dyn Write,
) -> Result<Box<dyn Source>> {
    let source: Box<dyn Source> = match (&args.data.folder, &args.data.val_folder) {
        (Some(train), Some(validation)) => {
            writeln!(
                out,
                "training files    {}\nvalidation files  {}",
                train.display(),
                validation.display()
            )?;
            Box::new(Sets {
                train: Folder::open(train, Split::Train, options)?,
                validation: Folder::open(validation, Split::Validation, options)?,
            })
        }
        _ => {
            let shards = chosen_shards(args, artifact)?;
            let (train, validation) = (SecretUrl::from(&shards.train), SecretUrl::from(&shards.validation));
            writeln!(out, "training shards   {train}\nvalidation shards {validation}")?;
            Box::new(Sets {
                train: ShardData::open(&shards.train, Split::Train, options)?,
                validation: ShardData::open(&shards.validation, Split::Validation, options)?,
            })
        }
    };
    // Reads the first validation batch, so that an error in the validation shards ends the program before the
    // training.
    let first = source.batches(Split::Validation, 0)?.next();
    first.ok_or(Error::Empty("validation"))?.map_err(Error::Data)?;
    Ok(source)
}

/// The shards of the command line, or else the synthetic shards.
fn chosen_shards(args: &Args, artifact: &Artifact) -> Result<Shards> {
    if let (Some(train), Some(validation)) = (&args.data.shards, &args.data.val_shards) {
        return Ok(Shards { train: train.clone(), validation: validation.clone() });
    }
    let (m, classes) = (&artifact.manifest, synthetic::CLASSES.len());
    if (m.size, m.classes) != (synthetic::SIZE, classes) {
        return Err(Error::Usage(format!(
            "the synthetic images are {0}x{0} of {classes} classes, and the program needs {1}x{1} of {2}: \
             give --shards and --val-shards",
            synthetic::SIZE,
            m.size,
            m.classes
        )));
    }
    Ok(synthetic::shards(&args.work_dir()?, Counts::default())?)
}

/// Compiles the programs for TPU topologies, without a TPU.
fn compile_only(args: &Args) -> Result<()> {
    let artifact = args.artifact()?;
    let found = plugin::find_compiler(args.network.plugin.as_ref())?;
    if !plugin::tpu_present("/dev".as_ref()) && std::env::var_os("TPU_SKIP_MDS_QUERY").is_none() {
        // Outside a TPU VM, libtpu would wait minutes for the metadata server of a TPU VM.
        // SAFETY: no other thread runs yet; the plugin, which starts threads, is loaded later.
        unsafe { std::env::set_var("TPU_SKIP_MDS_QUERY", "1") };
    }
    let plugin = found.load()?;
    let options = artifact.manifest.compile_options();
    for topology in &args.network.compile_only {
        for (name, code) in [("step", &artifact.step), ("eval", &artifact.eval)] {
            let start = Instant::now();
            let bytes = plugin.compile_for(topology, code, &options)?;
            writeln!(
                std::io::stdout(),
                "{} of {} for {topology}: {bytes} bytes of code, compiled in {:.1} s",
                name,
                artifact.name,
                start.elapsed().as_secs_f64(),
            )?;
        }
    }
    Ok(())
}
