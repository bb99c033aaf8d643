//! A parser for shards of any format. It sets the positions of samples, and adds the shard's name to errors.

use super::json_lines::JsonLines;
use super::shard_format::{ParserStart, ShardFormat};
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Position;
use crate::secret_url::SecretUrl;
use crate::store::{ObjectUrl, is_json_lines_name};
use crate::tar::{Limits, Parsed, SampleParser, SamplePlace, ShardParser};
use bytes::Bytes;
use std::sync::Arc;

/// The format of a dataset's shards: the format that the caller set, or otherwise the format that follows
/// from each shard's name.
#[derive(Debug, Clone, Default)]
pub(crate) struct FormatChoice(Option<Arc<dyn ShardFormat>>);

impl FormatChoice {
    pub(crate) fn given(format: impl ShardFormat + 'static) -> Self {
        FormatChoice(Some(Arc::new(format)))
    }

    /// The `Debug` text of the format that the caller set. It is part of the names of saved indexes, because
    /// a shard has different samples if it is read in a different format.
    pub(crate) fn text(&self) -> Option<String> {
        self.0.as_ref().map(|format| format!("format {format:?}"))
    }

    /// Whether the shard at `url` is a tar archive.
    pub(crate) fn is_tar(&self, url: &str) -> bool {
        self.0.is_none() && !is_json_lines_name(&ObjectUrl::parse(url).file_name())
    }

    /// Whether parsers choose the ranges that they read.
    pub(crate) fn reads_ranges(&self) -> bool {
        self.0.as_ref().is_some_and(|format| format.reads_ranges())
    }

    /// A parser of the shard at `url`.
    pub(crate) fn parser(&self, url: &SecretUrl, start: &ParserStart) -> FormatParser {
        match &self.0 {
            None if self.is_tar(url.expose_secret()) => FormatParser::tar(SampleParser::new(url), start),
            None => FormatParser::other(&JsonLines::new(), url, start),
            Some(format) => FormatParser::other(&**format, url, start),
        }
    }
}

/// The parser of one shard. The shard's name determines the format, or the caller gives a format. Use the
/// parser with [`read`](super::read) to read a shard without a dataset.
///
/// ```
/// use shardstream::formats::{FormatParser, read};
/// use shardstream::tar::Limits;
///
/// let chunks = [Ok("{\"text\": \"one\"}\n{\"text\":".into()), Ok(" \"two\"}\n".into())].into_iter();
/// let samples = read(chunks, FormatParser::by_name("texts.jsonl", Limits::default()));
/// assert_eq!(samples.map(|sample| sample.unwrap().key().to_owned()).collect::<Vec<_>>(), [
///     "000000000", "000000001"
/// ]);
/// ```
#[derive(Debug)]
pub struct FormatParser(ParserKind);

/// The parser of a tar archive is a variant of its own, to avoid a virtual call for each sample.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all parsers are of tar archives, and a parser is not moved while it parses"
)]
enum ParserKind {
    Tar(SampleParser),
    Other(OtherParser),
}

/// A parser of any format except tar. The caller may have implemented the format.
#[derive(Debug)]
struct OtherParser {
    parser: Box<dyn ShardParser>,
    shard: Arc<str>,
    /// The position of the next sample.
    position: Position,
    /// Whether the input has ended.
    is_finished: bool,
    has_ended: bool,
    /// Whether the parser asked for input after the end of the input.
    is_stuck: bool,
}

impl FormatParser {
    /// A parser at the beginning of a shard. The shard's name determines the format. Samples and errors
    /// contain the shard's URL or name without [secrets](SecretUrl).
    #[must_use]
    pub fn by_name(shard: impl Into<SecretUrl>, limits: Limits) -> Self {
        FormatChoice::default().parser(&shard.into(), &ParserStart::new(limits))
    }

    /// A parser at the beginning of a shard of this format.
    #[must_use]
    pub fn of(format: &dyn ShardFormat, shard: impl Into<SecretUrl>, limits: Limits) -> Self {
        Self::other(format, &shard.into(), &ParserStart::new(limits))
    }

    pub(super) fn tar(parser: SampleParser, start: &ParserStart) -> Self {
        let Position { epoch, shard, dataset, .. } = start.position;
        let parser = parser.at(epoch, shard).of_dataset(dataset).with_limits(start.limits);
        let parser = start.reach.into_iter().fold(parser, SampleParser::reaching);
        let parser = match start.offset {
            0 => parser,
            offset => parser.starting(start.sample, offset),
        };
        FormatParser(ParserKind::Tar(if start.is_cut { parser.cut() } else { parser }))
    }

    pub(super) fn other(format: &dyn ShardFormat, url: &SecretUrl, start: &ParserStart) -> Self {
        FormatParser(ParserKind::Other(OtherParser {
            parser: format.parser(start),
            shard: url.clone().shown(),
            position: Position { sample: start.sample, ..start.position },
            is_finished: false,
            has_ended: false,
            is_stuck: false,
        }))
    }
}

impl ShardParser for FormatParser {
    fn push(&mut self, chunk: Bytes) {
        match &mut self.0 {
            ParserKind::Tar(parser) => parser.push(chunk),
            ParserKind::Other(other) => other.parser.push(chunk),
        }
    }

    fn finish(&mut self) {
        match &mut self.0 {
            ParserKind::Tar(parser) => parser.finish(),
            ParserKind::Other(other) => {
                other.is_finished = true;
                other.parser.finish();
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Result<Parsed> {
        match &mut self.0 {
            ParserKind::Tar(parser) => parser.next(),
            ParserKind::Other(other) => other.next(),
        }
    }

    fn place(&self) -> Option<SamplePlace> {
        match &self.0 {
            ParserKind::Tar(parser) => parser.place(),
            ParserKind::Other(other) => other.parser.place(),
        }
    }

    fn samples(&self) -> Option<u64> {
        match &self.0 {
            ParserKind::Tar(parser) => parser.samples(),
            ParserKind::Other(other) => other.parser.samples(),
        }
    }

    fn is_complete(&self) -> bool {
        match &self.0 {
            ParserKind::Tar(parser) => ShardParser::is_complete(parser),
            ParserKind::Other(other) => other.has_ended && !other.is_stuck && other.parser.is_complete(),
        }
    }

    fn broken(&mut self, error: Error) -> Error {
        match &mut self.0 {
            ParserKind::Tar(parser) => ShardParser::broken(parser, error),
            ParserKind::Other(other) => other.parser.broken(error).in_shard(&*other.shard),
        }
    }
}

impl OtherParser {
    fn next(&mut self) -> Result<Parsed> {
        if self.has_ended {
            return Ok(Parsed::End);
        }
        match self.parser.next() {
            Ok(Parsed::Sample(sample)) => {
                let position = self.position;
                self.position.sample += 1;
                Ok(Parsed::Sample(sample.in_shard(Arc::clone(&self.shard), position)))
            }
            Ok(Parsed::NeedInput) if self.is_finished => {
                (self.has_ended, self.is_stuck) = (true, true);
                let what = "the parser of its format asks for more bytes, and the shard has ended";
                Err(Error::from(ErrorKind::Format(what.into())).in_shard(&*self.shard))
            }
            Ok(Parsed::NeedInput) => Ok(Parsed::NeedInput),
            Ok(Parsed::End) => {
                self.has_ended = true;
                Ok(Parsed::End)
            }
            Err(error) => {
                self.position.sample += 1;
                Err(error.in_shard(&*self.shard))
            }
        }
    }
}
