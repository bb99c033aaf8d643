//! Indexes one shard of a format whose table of contents gives the number of samples.

use super::ShardIndex;
use crate::error::{Error, ErrorKind, Result};
use crate::formats::{FormatChoice, FormatParser, ParserStart, ShardParser};
use crate::store::{Body, Store};
use crate::tar::{Limits, Parsed};

/// Returns the index of the shard at `url`. Reads only the shard's table of contents, which gives the number
/// of samples.
///
/// # Errors
/// The first error that reading the table of contents returns.
pub(super) fn scan(store: &Store, url: &str, format: &FormatChoice, limits: Limits) -> Result<ShardIndex> {
    let start = ParserStart { end: 0, ..ParserStart::new(limits) };
    let (mut parser, mut body) = open(store, url, format, start)?;
    loop {
        match parser.next()? {
            Parsed::NeedInput => match body.next() {
                Some(Ok(chunk)) => parser.push(chunk),
                Some(Err(error)) => return Err(parser.broken(error)),
                None => parser.finish(),
            },
            Parsed::Sample(_) => {}
            Parsed::End => break,
        }
    }
    let samples = parser.samples().ok_or_else(|| {
        let what = "its format reads ranges, and does not say the number of samples";
        Error::from(ErrorKind::Format(what.into())).in_shard(url)
    })?;
    let object = body.object().unwrap_or_default();
    let version = object.version.map(Into::into);
    Ok(ShardIndex { url: url.into(), samples, bytes: object.size, version, layout: None, selection: None })
}

/// Opens the shard at `url`, and creates a parser that begins at `start`.
pub(super) fn open(
    store: &Store,
    url: &str,
    format: &FormatChoice,
    mut start: ParserStart,
) -> Result<(FormatParser, Body)> {
    if !format.reads_ranges() {
        return Ok((format.parser(&url.into(), &start), store.open(url)?));
    }
    let object = store.stat(url)?;
    start.size = object.size;
    let parser = format.parser(&url.into(), &start);
    Ok((parser, store.open_ranges(url, &start.ranges, &object)?))
}
