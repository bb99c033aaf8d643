//! What the streams, the stages, the sequence and the batches hand to each other.

use crate::error::Error;
use crate::plan::Shapes;
use crate::sample::{Position, Sample, SampleLocation};
use crate::state::{Cursor, OpenSlice};

/// What a stream gives: samples (or later what the stages on threads made of them), and the events between
/// them.
#[derive(Debug, Default)]
pub(super) enum StreamEvent<I = StageInput> {
    Input(I),
    Fault(StreamFault),
    /// A failure after which the stream cannot continue.
    Fatal(Error),
    /// The stream has ended. It may start again if the last batches are filled up with repeated samples.
    #[default]
    End,
}

impl<I> StreamEvent<I> {
    /// The same event with what `f` makes of a sample.
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
    /// Number of passes that the stream had completed before.
    pub(super) pass: u64,
    /// Whether a sample was read, and selected or not, since the last such failure.
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
    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.sample.size().saturating_add(size_of::<Self>())
    }
}

/// Which input of its stream a sample is.
#[derive(Debug, Default)]
pub(super) struct InputOrigin {
    /// Number of passes that the stream had completed before.
    pub(super) pass: u64,
    pub(super) position: Position,
    /// Number of inputs of the pass that have left the shuffle buffer, including this one.
    pub(super) taken: u64,
    /// News of the stream for the state; seldom present.
    pub(super) note: Option<Box<StreamNote>>,
}

/// What a source gives to the sequence, in the order of its stream, and the sequence to the batches.
#[derive(Debug)]
pub(super) enum LoaderEvent<T> {
    /// An item, which takes the next sequence number of its stream.
    Item(Tag, T),
    /// The next sequence number of the stream has no item: the stream has none of the shape of that step.
    Gap(Tag),
    /// A failure between two items. It takes no sequence number.
    Fault(SampleFault),
    /// A failure after which the run cannot continue.
    Fatal(Error),
    /// The end of a batch.
    BatchEnd(BatchEnd),
}

/// Where the stages of a stream start.
#[derive(Debug, Clone)]
pub(super) struct StreamStart {
    pub(super) cursor: Cursor,
    /// Number of the stream in the job, and the number of all streams.
    pub(super) stream: usize,
    pub(super) streams: usize,
    /// Index of its first item in the stream. Only meaningful without a mixture.
    pub(super) first_index: u64,
    /// The shape of each step, if batches have several.
    pub(super) shapes: Option<Shapes>,
    /// Without `shapes`: drop the items that do not fit into this bucket.
    pub(super) only_bucket: Option<usize>,
}

/// A pass of a source, that is of a stream of one dataset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SourcePass {
    pub(super) dataset: usize,
    /// Index of the stream among those of this rank.
    pub(super) local_stream: usize,
    /// Number of passes that the stream had completed before.
    pub(super) pass: u64,
}

/// A sample that was lost, and why.
#[derive(Debug)]
pub(super) struct SampleFault {
    pub(super) source: SourcePass,
    pub(super) failed: FailedStep,
    /// Whether this step has succeeded since its last failure in this source. Failures without a success
    /// between them are in a row, whatever the stages have given meanwhile.
    pub(super) after_success: bool,
    pub(super) error: Error,
}

/// The step that failed for a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedStep {
    /// Reading it, or selecting it.
    Read,
    /// The stages on the threads. They succeed with a sample that they leave out, too.
    Map,
    /// The stream stage, or a function behind it. It succeeds with every item.
    Stage,
    /// Writing the row of an item of a stream stage.
    Row,
}

/// Where an item is in the sequence of the job.
#[derive(Debug, Default)]
pub(super) struct Tag {
    /// Number of the item in the sequence of all ranks.
    pub(super) sequence_number: u64,
    pub(super) source: SourcePass,
    /// Its `part` is the index of the item among the outputs of its input or, behind a stream stage, among
    /// the items since the last sample with an input of the stage.
    pub(super) position: Position,
    /// How much of the item is used, and how much fits into it, if a stateful stage counts that.
    pub(super) fill: (u64, u64),
    /// The sample that it was made of, if its row or its batch may fail.
    pub(super) location: Option<Box<SampleLocation>>,
}

/// What has happened in a stream since its last sample left the shuffle buffer.
#[derive(Debug, Default)]
pub(super) struct StreamNote {
    /// The slices that were opened.
    pub(super) opened: Vec<OpenSlice>,
    /// All samples of the stream with a lower number have left the shuffle buffer.
    pub(super) oldest: u64,
    /// Number of samples in the pass, once it has ended.
    pub(super) length: Option<u64>,
}

impl StreamNote {
    /// Appends what happened later.
    pub(super) fn append(&mut self, later: StreamNote) {
        if !later.opened.is_empty() {
            self.opened.extend(later.opened);
            self.oldest = later.oldest;
        }
        self.length = later.length.or(self.length);
    }
}

/// The end of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchEnd {
    /// The sequence number at which the next batch of all ranks starts.
    pub(super) next_number: u64,
    /// Number of items in a full batch.
    pub(super) size: usize,
    /// The bucket, that is the shape, of the batch, if there are several.
    pub(super) bucket: Option<usize>,
}

/// Work in pieces that several threads share.
pub(super) trait SharedWork: Send + Sync {
    /// Does a piece that no thread has begun. Returns false if there is none.
    fn do_piece(&self) -> bool;
}
