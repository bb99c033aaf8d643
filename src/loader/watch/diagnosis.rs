//! `Diagnosis`: the activity of each thread, stream and request of a run, and the cause of a wait.

use super::status::{Role, StreamId, StreamProgress, ThreadSnapshot};
use crate::SecretUrl;
use crate::activity::Activity;
use crate::loader::report::{DEBUG_BUILD, is_debug_build};
use crate::store::{ObjectUrl, RequestReport};
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// The current activity of each thread, stream and request of a run, and the cause of the trainer's wait.
/// [`Batches::diagnose`](crate::loader::Batches::diagnose) or a [`Reporter`](super::Reporter) returns it,
/// even while the run hangs.
///
/// The first line of `Display` says how long the trainer has waited and why, such as
/// `no batch for 30.0 s: …`. Each thread, stream and request has a line below it. The `Serialize`
/// implementation writes all fields, including the private fields `threads` and `streams`.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The time that the trainer has waited for the next batch; `None` if it does not wait.
    #[serde(serialize_with = "seconds")]
    pub waited: Option<Duration>,
    /// Number of batches returned so far.
    pub batches: u64,
    /// The cause of the wait, as a sentence.
    pub cause: String,
    pub(in crate::loader) threads: Vec<ThreadStatus>,
    /// The streams of the run, ordered by dataset and stream.
    streams: Vec<StreamStatus>,
    /// The open requests of the run's stores, the oldest first. Some may belong to other runs that use these
    /// stores.
    pub requests: Vec<RequestReport>,
    /// Whether this is a debug build in which the library itself is not optimised.
    pub debug_build: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(in crate::loader) struct ThreadStatus {
    pub(in crate::loader) name: String,
    activity: Activity,
    /// The duration of the activity so far, accurate to about ten milliseconds.
    #[serde(serialize_with = "crate::seconds::serialize")]
    time: Duration,
    /// The number of the dataset that the thread works on or waits for.
    dataset: Option<usize>,
    /// The number of the stream in that dataset.
    stream: Option<usize>,
    /// While the thread maps a sample, the number of the sample's shard.
    shard: Option<u64>,
    /// While the thread maps a sample, the number of the sample in the shard.
    sample: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
struct StreamStatus {
    /// The number of the dataset, from 0.
    dataset: usize,
    /// The number of the stream in the dataset.
    stream: usize,
    status: StreamActivity,
    /// The shard that is being read. Its URL is shown without secrets.
    #[serde(serialize_with = "shown")]
    shard: Option<SecretUrl>,
    /// Number of items that wait for their batch.
    items: usize,
}

fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

fn shown<S: Serializer>(url: &Option<SecretUrl>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_ref().map(ToString::to_string).serialize(serializer)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum StreamActivity {
    /// The stream is read when the trainer requests a batch, because there are no threads.
    OnDemand,
    /// A thread reads the stream.
    Read,
    /// The stream can be read, but no thread reads it.
    Readable,
    /// The stream waits for bytes.
    AwaitsBytes,
    /// The stream was read to its end.
    Ended,
}

impl fmt::Display for StreamActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamActivity::OnDemand => "read when the trainer asks",
            StreamActivity::Read => "being read",
            StreamActivity::Readable => "ready to be read",
            StreamActivity::AwaitsBytes => "waiting for bytes",
            StreamActivity::Ended => "at its end",
        })
    }
}

/// Makes a diagnosis. `progress` is the progress of each of `streams`, if threads read the streams.
pub(super) fn diagnose(
    waited: Option<Duration>,
    batches: u64,
    snapshots: &[ThreadSnapshot],
    streams: &[StreamId],
    progress: Option<Vec<StreamProgress>>,
    mut requests: Vec<RequestReport>,
) -> Diagnosis {
    let id = |number: usize| streams.get(number).map(|id| (id.dataset, id.stream));
    let threads: Vec<ThreadStatus> = snapshots
        .iter()
        .map(|thread| {
            let stream = thread.mark.stream().filter(|_| has_stream(thread.activity)).and_then(id);
            let sample =
                matches!(thread.activity, Activity::Map | Activity::Stage).then(|| thread.mark.sample());
            ThreadStatus {
                name: thread.mark.name().to_owned(),
                activity: thread.activity,
                time: thread.time,
                dataset: stream.map(|(dataset, _)| dataset),
                stream: stream.map(|(_, stream)| stream),
                shard: sample.map(|(shard, _)| shard),
                sample: sample.map(|(_, sample)| sample),
            }
        })
        .collect();
    let streams: Vec<StreamStatus> = streams
        .iter()
        .enumerate()
        .map(|(number, id)| {
            let progress = progress.as_ref().and_then(|all| all.get(number)).copied();
            let status = match progress {
                None => StreamActivity::OnDemand,
                Some(progress) if progress.has_ended => StreamActivity::Ended,
                Some(progress) if progress.is_being_read => StreamActivity::Read,
                Some(progress) if progress.is_readable => StreamActivity::Readable,
                Some(_) => StreamActivity::AwaitsBytes,
            };
            let items = progress.map_or(0, |progress| progress.items);
            StreamStatus { dataset: id.dataset, stream: id.stream, status, shard: id.shard.get(), items }
        })
        .collect();
    requests.sort_by_key(|request| std::cmp::Reverse(request.elapsed));
    let debug_build = is_debug_build();
    let cause = String::new();
    let mut diagnosis = Diagnosis { waited, batches, cause, threads, streams, requests, debug_build };
    diagnosis.cause = describe_cause(&diagnosis, snapshots);
    diagnosis
}

/// Whether a thread with this activity works on or waits for one stream.
fn has_stream(activity: Activity) -> bool {
    !matches!(
        activity,
        Activity::Other
            | Activity::Collect
            | Activity::Idle
            | Activity::AwaitTrainer
            | Activity::AwaitRoom
            | Activity::AwaitBytes
            | Activity::AwaitStream
    )
}

fn describe_cause(diagnosis: &Diagnosis, snapshots: &[ThreadSnapshot]) -> String {
    if diagnosis.waited.is_none() {
        return "the trainer does not wait".into();
    }
    if let Some(trainer) = snapshots.iter().find(|thread| thread.role == Role::Trainer) {
        return describe_thread(diagnosis, trainer, trainer.mark.stream());
    }
    let Some(collector) = snapshots.iter().find(|thread| thread.role == Role::Collector) else {
        return "the threads have not begun".into();
    };
    // The collecting thread runs a stage, or it is the only thread and reads or maps.
    if collector.activity != Activity::AwaitItems && has_stream(collector.activity) {
        return describe_thread(diagnosis, collector, collector.mark.stream());
    }
    if !matches!(collector.activity, Activity::AwaitItems | Activity::AwaitBytes) {
        let time = collector.time.as_secs_f64();
        return format!("{} is {} since {time:.1} s", collector.mark.name(), collector.activity);
    }
    let awaited = collector.mark.stream();
    // The thread that reads or maps the awaited stream.
    let worker = snapshots.iter().find(|thread| {
        thread.role == Role::Worker && has_stream(thread.activity) && thread.mark.stream() == awaited
    });
    match worker {
        Some(worker) => describe_thread(diagnosis, worker, awaited),
        None => format!("{} waits for {}", collector.mark.name(), describe_stream(diagnosis, awaited)),
    }
}

/// Describes a thread, and the stream that it works on.
fn describe_thread(diagnosis: &Diagnosis, thread: &ThreadSnapshot, stream: Option<usize>) -> String {
    let (name, phrase, time) = (thread.mark.name(), thread.activity, thread.time.as_secs_f64());
    match thread.activity {
        Activity::Map | Activity::Stage => {
            let (shard, sample) = thread.mark.sample();
            let of = describe_stream(diagnosis, stream);
            format!("{name} is {phrase} since {time:.1} s: sample {sample} of shard {shard}; {of}")
        }
        _ => format!("{name} is {phrase} since {time:.1} s: {}", describe_stream(diagnosis, stream)),
    }
}

/// Describes a stream, its shard and its request.
fn describe_stream(diagnosis: &Diagnosis, number: Option<usize>) -> String {
    let Some(stream) = number.and_then(|number| diagnosis.streams.get(number)) else {
        return "an unknown stream".into();
    };
    let name = match diagnosis.streams.iter().any(|other| other.dataset > 0) {
        true => format!("stream {} of dataset {}", stream.stream, stream.dataset),
        false => format!("stream {}", stream.stream),
    };
    let Some(shard) = &stream.shard else { return format!("{name}, which has opened no shard") };
    let mut text = format!("{name}, shard {shard}");
    if ObjectUrl::from(shard).is_local() {
        return text;
    }
    match diagnosis.requests.iter().find(|request| request.url == *shard) {
        Some(request) => text.push_str(&format!("; request {request}")),
        None if stream.status == StreamActivity::AwaitsBytes => {
            text.push_str("; it has no open request: it waits for a free request slot, or for a cache");
        }
        None => {}
    }
    text
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(waited) = self.waited {
            write!(f, "no batch for {:.1} s: ", waited.as_secs_f64())?;
        }
        f.write_str(&self.cause)?;
        if self.debug_build {
            write!(f, "\n  {DEBUG_BUILD}")?;
        }
        if self.waited.is_some() {
            write!(f, "\n  {} batches were returned before", self.batches)?;
        }
        for thread in &self.threads {
            write!(f, "\n  {}: {} since {:.1} s", thread.name, thread.activity, thread.time.as_secs_f64())?;
            if let (Some(dataset), Some(stream)) = (thread.dataset, thread.stream) {
                write!(f, ", dataset {dataset}, stream {stream}")?;
            }
            if let (Some(shard), Some(sample)) = (thread.shard, thread.sample) {
                write!(f, ", sample {sample} of shard {shard}")?;
            }
        }
        for stream in &self.streams {
            write!(f, "\n  dataset {}, stream {}: {}", stream.dataset, stream.stream, stream.status)?;
            if let Some(shard) = &stream.shard {
                write!(f, ", shard {shard}")?;
            }
            if stream.items > 0 {
                write!(f, ", {} items ready", stream.items)?;
            }
        }
        for request in &self.requests {
            write!(f, "\n  request {request}")?;
        }
        Ok(())
    }
}
