//! What the threads of a run did, and for how long.

use crate::activity::Activity;
use serde::Serialize;
use std::time::Duration;

/// What the threads of a run did so far, and for how long.
///
/// Times are found out by looking at every thread a hundred times a second: they are estimates, good to a few
/// percent once a run has taken some seconds. Times of threads that work side by side are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// Number of threads that read and map, [fixed or tuned](crate::loader::LoaderBuilder::threads), at the
    /// moment: 0 where the trainer's own thread does it, inside `next`.
    pub threads: usize,
    /// These threads read local files. Files that turned out to be slow are read ahead on other threads, and
    /// waited for as `await_bytes`.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub read_files: Duration,
    /// They turned bytes into samples: decompression, tar, checks.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub parse: Duration,
    /// They ran the functions of `select`.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub select: Duration,
    /// They put samples into shuffle buffers.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub shuffle: Duration,
    /// They ran the stages (decode, map, filter, …) and wrote rows of tensors.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub map: Duration,
    /// They had nothing to do, because no bytes had come: from the network, or from slow files.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_bytes: Duration,
    /// They had nothing to do, because each stream is read by one thread at a time, and other threads read
    /// all streams.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_stream: Duration,
    /// They had nothing to do, because enough was ready.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_room: Duration,
    /// The thread that collects put items into batches.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub collect: Duration,
    /// The thread that collects waited for items of the other threads.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_items: Duration,
    /// The thread that collects had as many batches ready as it may.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub await_trainer: Duration,
}

impl Times {
    /// All times by name: first those of the threads that read and map, then those of the thread that
    /// collects.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Duration)> + use<> {
        [
            ("read files", self.read_files),
            ("parse", self.parse),
            ("select", self.select),
            ("shuffle", self.shuffle),
            ("map", self.map),
            ("await bytes", self.await_bytes),
            ("await a stream", self.await_stream),
            ("await room", self.await_room),
            ("collect", self.collect),
            ("await items", self.await_items),
            ("await the trainer", self.await_trainer),
        ]
        .into_iter()
    }

    /// The time that goes with an activity.
    pub(in crate::loader) fn of(&mut self, activity: Activity) -> Option<&mut Duration> {
        Some(match activity {
            Activity::Other | Activity::Idle => return None,
            Activity::ReadFile => &mut self.read_files,
            Activity::Parse => &mut self.parse,
            Activity::Select => &mut self.select,
            Activity::Shuffle => &mut self.shuffle,
            Activity::Map => &mut self.map,
            Activity::AwaitBytes => &mut self.await_bytes,
            Activity::AwaitStream => &mut self.await_stream,
            Activity::AwaitRoom => &mut self.await_room,
            Activity::Collect => &mut self.collect,
            Activity::AwaitItems => &mut self.await_items,
            Activity::AwaitTrainer => &mut self.await_trainer,
        })
    }

    pub(super) fn since(mut self, earlier: &Times) -> Times {
        let mut before = *earlier;
        for activity in Activity::ALL {
            if let (Some(now), Some(before)) = (self.of(activity), before.of(activity)) {
                *now = now.saturating_sub(*before);
            }
        }
        self
    }

    /// The largest share of the work of the threads that read and map, with its name.
    pub(super) fn largest_work(&self) -> (WorkKind, Duration) {
        let all = [
            (WorkKind::ReadFiles, self.read_files),
            (WorkKind::Parse, self.parse),
            (WorkKind::Select, self.select),
            (WorkKind::Shuffle, self.shuffle),
            (WorkKind::Map, self.map),
        ];
        all.into_iter().max_by_key(|(_, time)| *time).unwrap_or((WorkKind::Map, Duration::ZERO))
    }

    /// The time that the threads worked that read and map.
    pub(in crate::loader) fn work(&self) -> Duration {
        self.read_files + self.parse + self.select + self.shuffle + self.map
    }
}

/// What the threads that read and map work at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind {
    ReadFiles,
    Parse,
    Select,
    Shuffle,
    Map,
}
