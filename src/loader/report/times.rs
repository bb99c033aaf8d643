//! `Times`: the time that the threads of a run spent on each activity.

use crate::activity::Activity;
use serde::Serialize;
use std::time::Duration;

/// The time that the threads of a run have spent on each activity so far.
///
/// The activity of each thread is sampled a hundred times a second. The times are estimates, accurate to a
/// few percent after some seconds. Times of concurrent threads are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// Current number of worker threads, which read and map;
    /// [fixed or tuned](crate::loader::LoaderBuilder::threads). 0 if the trainer's thread reads and maps in
    /// `next`.
    pub threads: usize,
    /// Time that the workers spent on reading local files. (Other threads read slow files ahead. The wait for
    /// slow files counts as `await_bytes`.)
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub read_files: Duration,
    /// Time that the workers spent on parsing shards: decompression, tar, checks.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub parse: Duration,
    /// Time that the workers spent in the functions that run before the shuffle buffer: `filter` and
    /// `before_shuffle`.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub filter: Duration,
    /// Time that the workers spent on putting samples into shuffle buffers.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub shuffle: Duration,
    /// Time that the workers spent in the stages (decode, map, filter, …) and on writing rows of tensors.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub map: Duration,
    /// Time that the workers waited for bytes from the network or from slow files.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_bytes: Duration,
    /// Time that the workers were idle because other workers were reading all streams. (Only one thread can
    /// read a stream at a time.)
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_stream: Duration,
    /// Time that the workers were idle because enough items were ready.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_room: Duration,
    /// Time that the collecting thread spent in a stateful [stage](crate::loader::LoaderBuilder::stage), or
    /// in functions that follow this stage.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub stage: Duration,
    /// Time that the collecting thread spent on putting items into batches.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub collect: Duration,
    /// Time that the collecting thread waited for items from the workers.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_items: Duration,
    /// Time that the collecting thread was idle because the maximum number of batches was ready.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_trainer: Duration,
}

impl Times {
    /// The names and times of all activities: first the activities of the workers, then the activities of the
    /// collecting thread.
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

    /// The time spent on an activity; `None` if the activity is not reported.
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

    /// The difference between these times and `earlier`.
    pub(super) fn since(mut self, earlier: &Times) -> Times {
        let mut before = *earlier;
        for activity in Activity::ALL {
            if let (Some(now), Some(before)) = (self.of(activity), before.of(activity)) {
                *now = now.saturating_sub(*before);
            }
        }
        self
    }

    /// The kind of work on which the workers spent most time, with that time.
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
    fn all_activities_but_other_and_idle_are_reported() {
        let unreported = Activity::ALL.into_iter().filter(|one| Times::default().of(*one).is_none());
        assert_eq!(unreported.collect::<Vec<_>>(), [Activity::Other, Activity::Idle]);
    }
}
