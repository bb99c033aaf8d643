//! Converts layouts to and from JSON.

use super::{BLOCK, SampleShape, ShapeRun, ShardLayout, padded};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A [`ShardLayout`] in JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::index) struct LayoutDocument {
    /// Omitted from the document if true.
    #[serde(default = "default_seekable", skip_serializing_if = "is_true")]
    pub(in crate::index) seekable: bool,
    /// 512, the block size of tar archives, or 1. Omitted from the document if 512.
    #[serde(default = "tar_block", skip_serializing_if = "is_tar_block")]
    pub(in crate::index) block: u64,
    pub(in crate::index) fields: Vec<Box<str>>,
    /// For each shape: the number of bytes before its first header, and then two numbers for each member: the
    /// number of its field, and the number of bytes before its content.
    pub(in crate::index) shapes: Vec<Vec<u64>>,
    /// For each run: the number of its shape, and its number of samples.
    pub(in crate::index) runs: Vec<u64>,
    pub(in crate::index) sizes: Vec<u64>,
    /// The checksums of all samples in one text, eight hexadecimal digits each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::index) crc32c: Option<Box<str>>,
}

fn default_seekable() -> bool {
    true
}

fn tar_block() -> u64 {
    BLOCK
}

fn is_tar_block(value: &u64) -> bool {
    *value == BLOCK
}

fn is_true(value: &bool) -> bool {
    *value
}

impl From<&ShardLayout> for LayoutDocument {
    fn from(layout: &ShardLayout) -> Self {
        let shape = |shape: &SampleShape| {
            let members = shape.members.iter().flat_map(|&(field, gap)| [field as u64, gap]);
            std::iter::once(shape.lead).chain(members).collect()
        };
        let ends = layout.runs.iter().skip(1).map(|run| run.sample).chain([layout.offsets.len()]);
        let runs = layout.runs.iter().zip(ends);
        LayoutDocument {
            seekable: layout.seekable,
            block: layout.block,
            fields: layout.fields.clone(),
            shapes: layout.shapes.iter().map(shape).collect(),
            runs: runs.flat_map(|(run, end)| [run.shape as u64, (end - run.sample) as u64]).collect(),
            sizes: layout.sizes.clone(),
            crc32c: match &layout.checksums[..] {
                [] => None,
                sums => Some(sums.iter().map(|sum| format!("{sum:08x}")).collect::<String>().into()),
            },
        }
    }
}

impl TryFrom<LayoutDocument> for ShardLayout {
    type Error = &'static str;

    /// Checks the document and computes the offsets. The memory is proportional to the length of the
    /// document, because every sample has at least one field, and the document contains the size of each
    /// field.
    fn try_from(document: LayoutDocument) -> Result<Self, Self::Error> {
        let LayoutDocument { seekable, block, fields, shapes, runs: pairs, sizes, crc32c } = document;
        if ![1, BLOCK].contains(&block) {
            return Err("blocks of another size than 512 or 1");
        }
        let shapes: Vec<SampleShape> =
            shapes.iter().map(|shape| SampleShape::read(shape, fields.len())).collect::<Result<_, _>>()?;
        let (mut runs, mut offsets, mut end) = (Vec::new(), Vec::new(), 0_u64);
        let mut left = sizes.iter();
        let (pairs, []) = pairs.as_chunks::<2>() else { return Err("half a run") };
        for &[shape, count] in pairs {
            let number = usize::try_from(shape).unwrap_or(usize::MAX);
            let shape = shapes.get(number).ok_or("a run of an unknown shape")?;
            runs.push(ShapeRun { shape: number, sample: offsets.len(), size: sizes.len() - left.len() });
            for _ in 0..count {
                let overflow = "an offset beyond what can be addressed";
                let offset = end.checked_add(shape.lead).ok_or(overflow)?;
                end = offset;
                for (_, gap) in &shape.members {
                    let size = *left.next().ok_or("fewer sizes than fields")?;
                    end = end.checked_add(*gap).and_then(|at| padded(at, size, block)).ok_or(overflow)?;
                }
                offsets.push(offset);
            }
        }
        if left.next().is_some() {
            return Err("more sizes than fields");
        }
        let checksums = crc32c.as_deref().map_or(Ok(Vec::new()), read_checksums)?;
        if ![0, offsets.len()].contains(&checksums.len()) {
            return Err("more or fewer checksums than samples");
        }
        Ok(ShardLayout { fields, shapes, runs, sizes, offsets, checksums, end, block, seekable })
    }
}

fn read_checksums(text: &str) -> Result<Vec<u32>, &'static str> {
    let bad = "checksums that are not 8 hexadecimal digits each";
    let (sums, []) = text.as_bytes().as_chunks::<8>() else { return Err(bad) };
    let read = |digits: &[u8; 8]| {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u32::from_str_radix(digits, 16).ok()
    };
    sums.iter().map(|digits| read(digits).ok_or(bad)).collect()
}

impl SampleShape {
    fn read(numbers: &[u64], fields: usize) -> Result<Self, &'static str> {
        let [lead, members @ ..] = numbers else { return Err("an empty shape") };
        let (members, []) = members.as_chunks::<2>() else { return Err("half a member") };
        let mut seen = HashSet::new();
        let member = |&[field, gap]: &[u64; 2]| {
            let field = usize::try_from(field).ok().filter(|field| *field < fields);
            let field = field.ok_or("an unknown field")?;
            if seen.insert(field) { Ok((field, gap)) } else { Err("a sample with a field twice") }
        };
        let members: Vec<_> = members.iter().map(member).collect::<Result<_, _>>()?;
        if members.is_empty() {
            return Err("a sample without fields");
        }
        Ok(SampleShape { lead: *lead, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_or_missing_checksums_are_errors() {
        let read = |crc32c: &str| {
            let document = format!(
                r#"{{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,2],"sizes":[1,1],"crc32c":"{crc32c}"}}"#
            );
            ShardLayout::try_from(serde_json::from_str::<LayoutDocument>(&document).unwrap())
        };
        assert_eq!(read("0000000affffffff").unwrap().checksums, [10, u32::MAX]);
        for bad in [
            "0",
            "0000000a",
            "0000000afffffff",
            "0000000a+fffffff",
            "0000000affffffff00000000",
            "0000000a é1é1é",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
