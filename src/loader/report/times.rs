//! `Times`: what the threads of a run spent their time on.

use crate::activity::Activity;
use serde::Serialize;
use std::time::Duration;

/// What the threads of a run have spent their time on so far.
///
/// Times are sampled: each thread is looked at a hundred times a second. They are estimates, accurate to a
/// few percent once a run has taken some seconds. Times of concurrent threads are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// Current number of worker threads, which read and map,
    /// [fixed or tuned](crate::loader::LoaderBuilder::threads): 0 if the trainer's own thread does both in
    /// `next`.
    pub threads: usize,
    /// The workers read local files. Slow files are read ahead on other threads, and waiting for those counts
    /// as `await_bytes`.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub read_files: Duration,
    /// The workers parsed shards: decompression, tar, checks.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub parse: Duration,
    /// The workers ran the functions before the shuffle buffer.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub filter: Duration,
    /// The workers put samples into shuffle buffers.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub shuffle: Duration,
    /// The workers ran the stages (decode, map, filter, …) and wrote rows of tensors.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub map: Duration,
    /// The workers were idle because no bytes had come from the network or from slow files.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_bytes: Duration,
    /// The workers were idle because others read all streams: a stream is read by one thread at a time.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_stream: Duration,
    /// The workers were idle because enough was ready.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_room: Duration,
    /// The collecting thread ran a [stage](crate::loader::LoaderBuilder::stage) that sees one item after the
    /// other, or a function behind one.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub stage: Duration,
    /// The collecting thread put items into batches.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub collect: Duration,
    /// The collecting thread waited for items of the workers.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_items: Duration,
    /// The collecting thread was idle because as many batches were ready as may be.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_trainer: Duration,
}

impl Times {
    /// All times by name: those of the workers, then those of the collecting thread.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Duration)> + use<> {
        [
            ("read files", self.read_files),
            ("parse", self.parse),
            ("filter", self.filter),
            ("shuffle", self.shuffle),
            ("map", self.map),
            ("await bytes", self.await_bytes),
            ("await a stream", self.await_stream),
            ("await room", self.await_room),
            ("stage", self.stage),
            ("collect", self.collect),
            ("await items", self.await_items),
            ("await the trainer", self.await_trainer),
        ]
        .into_iter()
    }

    /// The time spent on an activity; none if it is not reported.
    pub(in crate::loader) fn of(&mut self, activity: Activity) -> Option<&mut Duration> {
        Some(match activity {
            Activity::ReadFile => &mut self.read_files,
            Activity::Parse => &mut self.parse,
            Activity::Filter => &mut self.filter,
            Activity::Shuffle => &mut self.shuffle,
            Activity::Map => &mut self.map,
            Activity::AwaitBytes => &mut self.await_bytes,
            Activity::AwaitStream => &mut self.await_stream,
            Activity::AwaitRoom => &mut self.await_room,
            Activity::Stage => &mut self.stage,
            Activity::Collect => &mut self.collect,
            Activity::AwaitItems => &mut self.await_items,
            Activity::AwaitTrainer => &mut self.await_trainer,
            _ => return None,
        })
    }

    /// The difference to `earlier`.
    pub(super) fn since(mut self, earlier: &Times) -> Times {
        let mut before = *earlier;
        for activity in Activity::ALL {
            if let (Some(now), Some(before)) = (self.of(activity), before.of(activity)) {
                *now = now.saturating_sub(*before);
            }
        }
        self
    }

    /// The kind of work on which the workers spent most time, and that time.
    pub(super) fn largest_work(&self) -> (WorkKind, Duration) {
        let all = [
            (WorkKind::ReadFiles, self.read_files),
            (WorkKind::Parse, self.parse),
            (WorkKind::Filter, self.filter),
            (WorkKind::Shuffle, self.shuffle),
            (WorkKind::Map, self.map),
        ];
        all.into_iter().max_by_key(|(_, time)| *time).unwrap_or((WorkKind::Map, Duration::ZERO))
    }

    /// The time that the workers were busy.
    pub(in crate::loader) fn work(&self) -> Duration {
        self.read_files + self.parse + self.filter + self.shuffle + self.map
    }
}

/// The kinds of work of the worker threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind {
    ReadFiles,
    Parse,
    Filter,
    Shuffle,
    Map,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_activity_but_two_is_reported() {
        let unreported = Activity::ALL.into_iter().filter(|one| Times::default().of(*one).is_none());
        assert_eq!(unreported.collect::<Vec<_>>(), [Activity::Other, Activity::Idle]);
    }
}
