//! `Limit`: the bottleneck of a run, and what to change.

use super::Report;
use super::times::WorkKind;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The bottleneck of a run: what limits its rate. [`Report::limit`] computes it from a report.
///
/// `Display` names the limit and what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Not known yet, because the run is too short.
    Unknown,
    /// The trainer: batches were ready when it requested them.
    Trainer,
    /// The network.
    Network,
    /// Local files: the disk, or a network file system.
    Files,
    /// Parsing shards: decompression, tar and checks.
    Parse,
    /// The functions that run before the shuffle buffer: `filter` and `before_shuffle`.
    Filter,
    /// Shuffle buffers.
    Shuffle,
    /// The stages of the loader: decoding, maps, augmentation, rows of tensors.
    Map,
    /// A stateful stage, or a function after it. Both run on the single thread that collects batches.
    Stage,
    /// The single thread that collects items into batches.
    Collect,
    /// The number of streams: there are fewer streams than threads.
    Streams,
    /// The sequence waits for one stream that is slower than the other streams.
    SlowestStream,
}

/// If the trainer waits less than this share of the time, the trainer is the limit.
const TRAINER_LIMITED: f64 = 0.03;
/// From this number of batches on, the wait for the first batch is excluded.
const MIN_BATCHES: u64 = 3;
/// Minimum duration of a run before its limit is determined.
const MIN_TIME: Duration = Duration::from_millis(200);

impl Limit {
    pub(super) fn of(report: &Report) -> Limit {
        // At the start of a run, the bottleneck is known only if the trainer has waited long for the first
        // batches.
        let is_starting = report.batches < MIN_BATCHES;
        if report.elapsed < MIN_TIME || is_starting && report.waited < MIN_TIME {
            return Limit::Unknown;
        }
        // From `MIN_BATCHES` batches on, the wait for the first batch is excluded. It still counts if the
        // rest of the run is shorter than `MIN_TIME`.
        let rest = report.elapsed.saturating_sub(report.first + report.rested);
        let first = if is_starting || rest < MIN_TIME { Duration::ZERO } else { report.first };
        let waited = report.waited.saturating_sub(first).as_secs_f64();
        let elapsed = report.elapsed.saturating_sub(first + report.rested).as_secs_f64();
        if waited < TRAINER_LIMITED * elapsed {
            return Limit::Trainer;
        }
        let times = &report.times;
        // The collecting thread is the limit if it is busy most of the time. (Without other threads, the
        // collecting thread also reads and maps; the code below handles that case.)
        let busy = times.collect + times.stage;
        let collector = if times.stage > times.collect { Limit::Stage } else { Limit::Collect };
        if times.threads > 1 && busy > times.await_items && busy > times.await_trainer {
            return collector;
        }
        let (largest, _) = times.largest_work();
        let work = times.work();
        let waits = [
            (source_of_bytes(report), times.await_bytes),
            (Limit::Streams, times.await_stream),
            (Limit::SlowestStream, times.await_room),
        ];
        let (wait, time) = waits.into_iter().max_by_key(|(_, time)| *time).unwrap_or((Limit::Unknown, work));
        match largest {
            _ if times.threads <= 1 && busy > work.max(time) => collector,
            _ if work.is_zero() && time.is_zero() => Limit::Unknown,
            _ if time > work => wait,
            WorkKind::ReadFiles => Limit::Files,
            WorkKind::Parse => Limit::Parse,
            WorkKind::Filter => Limit::Filter,
            WorkKind::Shuffle => Limit::Shuffle,
            WorkKind::Map => Limit::Map,
        }
    }

    /// What to change, as a phrase for a log.
    ///
    /// ```
    /// use shardstream::loader::Limit;
    ///
    /// assert!(Limit::Streams.advice().starts_with("more `streams`"));
    /// ```
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Limit::Unknown => "let it run for some seconds",
            Limit::Trainer => "nothing to change: the step itself takes the time",
            Limit::Network => {
                "compare the rate with the limits of the link and the store; a cache (`StoreBuilder::cache`) \
                 avoids reading shards again; a larger `Budget` allows more concurrent requests over long \
                 distances; smaller fields or stronger compression need fewer bytes"
            }
            Limit::Files => {
                "more streams read more files concurrently; use a faster disk, or fewer bytes for each sample"
            }
            Limit::Parse => {
                "more cores, or more `threads` if their number is fixed; shards without compression, or with \
                 fewer and larger samples"
            }
            Limit::Filter => {
                "more cores, or more `threads` if their number is fixed; store the selection with an index \
                 (`AutoIndex::select`)"
            }
            Limit::Shuffle => "a smaller shuffle buffer, or `shuffle_shards` with more streams instead of it",
            Limit::Map => {
                if cfg!(feature = "turbojpeg") {
                    "more cores, or more `threads` if their number is fixed; a cheaper map: smaller images \
                     in the shards, or part of the work done once and stored"
                } else {
                    "more cores, or more `threads` if their number is fixed; a cheaper map: smaller images \
                     in the shards, the feature `turbojpeg`, or part of the work done once and stored"
                }
            }
            Limit::Stage => {
                "move work on single items into a `map` before the stage, which runs on all threads; make \
                 the stage and the functions after it cheaper"
            }
            Limit::Collect => {
                "larger batches; a cheaper `map_batch`, and a cheaper `finish` of the columns; if batches \
                 are lists, use `collate`: other threads write the rows of tensors"
            }
            Limit::Streams => "more `streams`, at least as many as `threads`; or fewer threads",
            Limit::SlowestStream => {
                "streams whose samples take about the same time, more `prefetch`, or more memory in the \
                 `Budget`"
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Limit::Unknown => "not known yet",
            Limit::Trainer => "the trainer",
            Limit::Network => "the network",
            Limit::Files => "local files",
            Limit::Parse => "parsing shards",
            Limit::Filter => "`filter`",
            Limit::Shuffle => "the shuffle buffers",
            Limit::Map => "the stages of the loader (decode, map, …)",
            Limit::Stage => "a stage on the thread that collects batches",
            Limit::Collect => "the thread that collects batches",
            Limit::Streams => "the number of streams",
            Limit::SlowestStream => "the slowest stream",
        }
    }
}

impl Report {
    /// The bottleneck of the run.
    #[must_use]
    pub fn limit(&self) -> Limit {
        Limit::of(self)
    }
}

/// Whether the bytes that threads wait for come from the network or from slow files.
fn source_of_bytes(report: &Report) -> Limit {
    let network = report.store.total();
    if network.requests > 0 && network.waited >= report.store.files.reading {
        Limit::Network
    } else {
        Limit::Files
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit: {}; {}", self.name(), self.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::report::Times;

    fn report(waited: u64, times: Times) -> Report {
        let seconds = Duration::from_secs;
        Report { batches: 100, waited: seconds(waited), elapsed: seconds(10), times, ..Report::default() }
    }

    #[test]
    fn the_limit_is_the_activity_on_which_the_threads_spend_most_time() {
        let seconds = Duration::from_secs;
        let times = Times { threads: 2, await_items: seconds(8), ..Times::default() };
        for (expected, times) in [
            (Limit::Map, Times { map: seconds(15), parse: seconds(3), ..times }),
            (Limit::Parse, Times { map: seconds(3), parse: seconds(15), ..times }),
            (
                Limit::Shuffle,
                Times { shuffle: seconds(9), parse: seconds(8), await_bytes: seconds(3), ..times },
            ),
            (Limit::Streams, Times { parse: seconds(9), await_stream: seconds(11), ..times }),
            (Limit::SlowestStream, Times { map: seconds(9), await_room: seconds(11), ..times }),
            (Limit::Files, Times { map: seconds(9), await_bytes: seconds(11), ..times }),
            (
                Limit::Collect,
                Times { map: seconds(15), collect: seconds(9), await_items: seconds(1), ..times },
            ),
            (Limit::Stage, Times { map: seconds(15), stage: seconds(9), await_items: seconds(1), ..times }),
            (Limit::Unknown, Times { threads: 2, ..Times::default() }),
        ] {
            assert_eq!(report(5, times).limit(), expected, "{times:?}");
            assert_eq!(report(0, times).limit(), Limit::Trainer, "the trainer does not wait");
            let first = Report { first: Duration::from_secs(5), ..report(5, times) };
            assert_eq!(first.limit(), Limit::Trainer, "the trainer waited for the first batch only");
            let short = Report { elapsed: Duration::from_secs(5), ..first.clone() };
            assert_eq!(short.limit(), expected, "the wait for the first batch was most of the run");
            let rested = Report {
                elapsed: Duration::from_secs(600),
                rested: Duration::from_secs(590),
                ..report(5, times)
            };
            assert_eq!(rested.limit(), expected, "rests are excluded");
        }
    }

    #[test]
    fn a_short_run_has_no_known_limit() {
        let times = Times { threads: 1, map: MIN_TIME, ..Times::default() };
        let begun =
            Report { batches: 1, elapsed: MIN_TIME * 9, waited: MIN_TIME / 2, times, ..Report::default() };
        assert_eq!(begun.limit(), Limit::Unknown);
        // If the trainer has waited long for the first batches, the bottleneck is known.
        assert_eq!(Report { waited: MIN_TIME * 8, ..begun }.limit(), Limit::Map);
    }
}
