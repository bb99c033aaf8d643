//! Indexes one shard of a format other than tar. The shard is read whole.

use super::scan::{LostSamples, Wanted};
use super::scan_table;
use super::selection::SelectionBuilder;
use super::{LayoutBuilder, ShardIndex, checksum_of};
use crate::error::{ErrorKind, Result};
use crate::formats::{FormatChoice, ParserStart, SamplePlace, ShardParser};
use crate::sample::Sample;
use crate::store::{Compression, Store};
use crate::tar::{Limits, Parsed};

/// Indexes the shard at `url`. Calls `keys` with the key of each sample.
///
/// # Errors
/// The first error that reading the shard would return, an error or panic of the filter, and, if checksums
/// are wanted, a value that is not bytes.
pub(super) fn scan(
    store: &Store,
    url: &str,
    format: &FormatChoice,
    limits: Limits,
    wanted: Wanted<'_>,
    mut keys: Option<&mut dyn FnMut(&str)>,
) -> Result<ShardIndex> {
    let (mut parser, mut body) = scan_table::open(store, url, format, ParserStart::new(limits))?;
    let mut layout = LayoutBuilder::unpadded();
    let mut selection = wanted.filter.map(|filter| SelectionBuilder::new(filter.name().clone()));
    let mut lost = LostSamples::new(wanted);
    let (mut bytes, mut end, mut has_places, mut has_fields) = (0, 0, true, true);
    loop {
        let sample = match parser.next() {
            Ok(Parsed::Sample(sample)) => sample,
            Ok(Parsed::NeedInput) => {
                match body.next() {
                    Some(Ok(chunk)) => {
                        bytes += chunk.len() as u64;
                        parser.push(chunk);
                    }
                    None => parser.finish(),
                    Some(Err(error)) => {
                        let error = parser.broken(error);
                        if !wanted.leaves_out(&error) {
                            return Err(error);
                        }
                        lost.any = true;
                        break;
                    }
                }
                continue;
            }
            Ok(Parsed::End) => break,
            Err(error) if wanted.leaves_out(&error) => {
                lost.any = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        lost.before(sample.position().sample, &mut layout);
        let place = parser.place().filter(|place| fits(place, &sample, end));
        has_places &= place.is_some();
        end = push(&mut layout, &sample, place, end);
        has_fields &= !sample.is_empty();
        let is_selected = wanted.filter.map_or(Ok(true), |filter| filter.selects(&sample))?;
        if let Some(selection) = &mut selection {
            selection.push(is_selected);
        }
        if let Some(keys) = keys.as_deref_mut().filter(|_| is_selected) {
            keys(sample.key());
        }
        if wanted.checksums {
            check_bytes(&sample)?;
            layout.push_checksum(checksum_of(&sample));
        }
    }
    lost.at_end(&mut layout);
    let selection = selection.or(lost.selection.filter(|_| lost.any));
    let is_compressed = Compression::of(url).is_some();
    let object = body.object().unwrap_or_default();
    // If the source did not report the size, the object's size is the number of bytes that were read: the
    // whole object was read.
    let bytes = object.size.or((!is_compressed).then_some(bytes));
    let layout = layout.finish(has_places && !is_compressed);
    let shard = ShardIndex::new(url, bytes, object.version.as_deref(), layout);
    let shard = match selection {
        Some(selection) => shard.with_selection(selection.finish()),
        None => shard,
    };
    // A layout cannot have a sample without fields, so only the number of samples is kept.
    Ok(if has_fields { shard } else { shard.counts() })
}

/// Refuses a sample with values that are not bytes, because a checksum would not cover these values. Also
/// refuses a sample without fields: its shard then has no layout, and checksums are saved in the layout.
fn check_bytes(sample: &Sample) -> Result<()> {
    if sample.is_empty() {
        let what = "a sample without fields has no checksum: index without checksums";
        return Err(sample.locate(ErrorKind::Unsupported(what.into()).into()));
    }
    let Some((name, _)) = sample.fields().find(|(_, value)| value.as_bytes().is_none()) else {
        return Ok(());
    };
    let what = format!(
        "checksums are of bytes, and the field `{name}` of this format has another value: index without \
         checksums"
    );
    Err(sample.locate(ErrorKind::Unsupported(what).into()))
}

/// Whether `place` fits the sample. `place` must begin at or after `end`, where the previous sample ends. It
/// must have one range for each field of the sample. The ranges must be in the order of the fields, and each
/// must have the size of its field.
fn fits(place: &SamplePlace, sample: &Sample, end: u64) -> bool {
    let mut at = place.offset;
    let mut is_in_order = place.offset >= end && place.fields.len() == sample.len();
    for ((_, value), field) in sample.fields().zip(&place.fields) {
        let is_of_size = field.end.checked_sub(field.start) == Some(value.size() as u64);
        is_in_order &= is_of_size && field.start >= at;
        at = field.end;
    }
    is_in_order
}

/// Adds a sample to the layout, and returns the offset at which it ends. If `place` is `None`, the layout
/// gets the sizes of the sample's fields, but its offsets are meaningless.
fn push(layout: &mut LayoutBuilder, sample: &Sample, place: Option<SamplePlace>, end: u64) -> u64 {
    let names = sample.fields().map(|(name, value)| (name, value.size() as u64));
    let Some(SamplePlace { offset, fields, .. }) = place else {
        let mut at = end;
        let members: Vec<_> = names
            .map(|(name, size)| {
                let member = (name, at, size);
                at = at.saturating_add(size);
                member
            })
            .collect();
        layout.push(end, members);
        return at;
    };
    let end = fields.last().map_or(offset, |field| field.end);
    layout.push(offset, names.zip(&fields).map(|((name, size), field)| (name, field.start, size)));
    end
}
