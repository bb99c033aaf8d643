//! The values that the streams, the stages, the sequence and the batches pass to each other.

use crate::error::Error;
use crate::plan::Shapes;
use crate::sample::{Position, Sample, SampleLocation};
use crate::state::{Cursor, OpenSlice};

/// An event of a stream: a sample, a failure between two samples, or the end. `I` is the type of the samples.
/// Once the stages on the threads have run, it is the type of their outputs.
#[derive(Debug, Default)]
pub(super) enum StreamEvent<I = StageInput> {
    Input(I),
    Fault(StreamFault),
    /// A failure after which the stream cannot continue.
    Fatal(Error),
    /// The stream has ended. It may start again to fill the last batches with repeated samples.
    #[default]
    End,
}

impl<I> StreamEvent<I> {
    /// Applies `f` to the sample of the event, if it has one.
    pub(super) fn map<O>(self, f: impl FnOnce(I) -> O) -> StreamEvent<O> {
        match self {
            StreamEvent::Input(input) => StreamEvent::Input(f(input)),
            StreamEvent::Fault(fault) => StreamEvent::Fault(fault),
            StreamEvent::Fatal(error) => StreamEvent::Fatal(error),
            StreamEvent::End => StreamEvent::End,
        }
    }
}

/// A failure between two samples of a stream: a sample could not be read, or its selection failed.
#[derive(Debug)]
pub(super) struct StreamFault {
    /// Number of passes that the stream had completed before the failure.
    pub(super) pass: u64,
    /// Whether a sample was read and selected successfully since the last `StreamFault` of the stream. A
    /// sample that the selection dropped counts as a success.
    pub(super) after_success: bool,
    pub(super) error: Error,
}

/// A sample between the shuffle buffer and the stages.
#[derive(Debug)]
pub(super) struct StageInput {
    pub(super) origin: InputOrigin,
    pub(super) sample: Sample,
}

impl StageInput {
    /// Bytes of memory of the input.
    pub(super) fn bytes(&self) -> usize {
        self.sample.size().saturating_add(size_of::<Self>())
    }
}

/// The position of an input in its stream.
#[derive(Debug, Default)]
pub(super) struct InputOrigin {
    /// Number of passes that the stream had completed before this one.
    pub(super) pass: u64,
    pub(super) position: Position,
    /// Number of inputs of the pass that have left the shuffle buffer, including this one.
    pub(super) taken: u64,
    /// Changes of the stream's reading position, which the state records. Most inputs have none.
    pub(super) note: Option<Box<StreamNote>>,
}

/// An event of a source. The source passes its events to the sequence in the order of the stream, and the
/// sequence passes them to the batches.
#[derive(Debug)]
pub(super) enum LoaderEvent<T> {
    /// An item, which takes the next sequence number of its stream.
    Item(Tag, T),
    /// The next sequence number of the stream has no item: its step has a shape, and none of the stream's
    /// waiting items fits into that shape.
    Gap(Tag),
    /// A failure between two items. It takes no sequence number.
    Fault(SampleFault),
    /// A failure after which the run cannot continue.
    Fatal(Error),
    BatchEnd(BatchEnd),
}

/// The point at which the stages of a stream start.
#[derive(Debug, Clone)]
pub(super) struct StreamStart {
    pub(super) cursor: Cursor,
    /// Number of the stream in the job.
    pub(super) stream: usize,
    /// Number of streams of the job.
    pub(super) streams: usize,
    /// Number of items and gaps of the stream before this point. Only meaningful without a mixture.
    pub(super) first_index: u64,
    /// The shape of each step, if batches have several shapes.
    pub(super) shapes: Option<Shapes>,
    /// If `shapes` is `None`, the stages drop all items that do not fit into this bucket.
    pub(super) only_bucket: Option<usize>,
}

/// A pass of a source. A source is one stream of one dataset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SourcePass {
    pub(super) dataset: usize,
    /// Index of the stream among the streams of this rank.
    pub(super) local_stream: usize,
    /// Number of passes that the stream had completed before this one.
    pub(super) pass: u64,
}

#[derive(Debug)]
pub(super) struct SampleFault {
    pub(super) source: SourcePass,
    pub(super) failed: FailedStep,
    /// Whether this step has succeeded since its last failure in this source. Otherwise this failure and the
    /// step's last failure are in a row, even if other steps have succeeded between them.
    pub(super) after_success: bool,
    pub(super) error: Error,
}

/// The step that failed for a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedStep {
    /// Reading or selecting the sample.
    Read,
    /// The stages on the threads. A sample that they filter out is a success too.
    Map,
    /// The stream stage, or a function after it. Each item that they return is a success.
    Stage,
    /// Writing the row of an item that a stream stage returned.
    Row,
}

/// The position of an item in the sequence of the job, and the sample that the item was made from.
#[derive(Debug, Default)]
pub(super) struct Tag {
    /// Number of the item in the sequence of all ranks.
    pub(super) sequence_number: u64,
    pub(super) source: SourcePass,
    /// The position of the sample. `part` is the index of the item among the outputs of its sample. After a
    /// stream stage, `part` counts the items since the last sample that was an input of the stage.
    pub(super) position: Position,
    /// The used size of the item and its capacity, such as the number of tokens in a packed row and the
    /// length of the row. Both are 0 unless a stateful stage counts them.
    pub(super) fill: (u64, u64),
    /// The key and shard of the sample. `None` if neither writing the item's row nor making its batch can
    /// fail.
    pub(super) location: Option<Box<SampleLocation>>,
}

/// Changes of a stream's reading position since the last sample left its shuffle buffer.
#[derive(Debug, Default)]
pub(super) struct StreamNote {
    /// The slices that were opened.
    pub(super) opened: Vec<OpenSlice>,
    /// All samples of the pass before the sample with this number have left the shuffle buffer.
    pub(super) oldest: u64,
    /// Number of samples in the pass, once the pass has ended.
    pub(super) length: Option<u64>,
}

impl StreamNote {
    /// Appends the changes of a later note.
    pub(super) fn append(&mut self, later: StreamNote) {
        if !later.opened.is_empty() {
            self.opened.extend(later.opened);
            self.oldest = later.oldest;
        }
        self.length = later.length.or(self.length);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchEnd {
    /// The sequence number at which the next batch of all ranks starts.
    pub(super) next_number: u64,
    /// Number of items in a full batch.
    pub(super) size: usize,
    /// The bucket (shape) of the batch, if batches have several shapes.
    pub(super) bucket: Option<usize>,
}

/// Work that is divided into pieces. Several threads can do pieces at the same time.
pub(super) trait SharedWork: Send + Sync {
    /// Does one piece that no thread has begun. Returns false if all pieces have been begun.
    fn do_piece(&self) -> bool;
}
