//! `PackedTokens`: the sequences of a batch, packed into rows of one length.

use super::cell::{Cell, Output};
use super::check::{self, config_error};
use super::column::Column;
use super::field::{Field, sequence_options};
use super::fit::{self, RowFit};
use super::number::Integer;
use super::ragged::{native_bytes, put_all};
use super::tokens::truncated_len;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::array::byte_len;
use crate::sample::{DType, Sample};
use crate::tensor::{Tensor, TensorBuffer, TensorPool};
use std::sync::Arc;

/// A column of sequences of whole numbers, such as tokens. It packs the sequences of a batch into `rows` rows
/// of `length` numbers. Batches have less padding than with [`Tokens`](super::Tokens), and all have the same
/// shape.
///
/// The column makes three tensors of the shape `[rows, length]`. The shape does not depend on the number of
/// samples:
///
/// - the numbers, without a suffix;
/// - `.segments`, `int32`: 1 for numbers of the first sequence in a row, 2 for the second, and so on; 0 for
///   padding. Attention must be limited to numbers of the same segment;
/// - `.positions`, `int32`: the number's position in its sequence, from 0; 0 for padding.
///
/// Sequences are placed in order of decreasing length, each into the first row that has room for the sequence
/// (first fit decreasing). Sequences of the same length are placed in their order in the batch. The result
/// depends on the batch alone, so a resumed job gets the same rows. Padding samples of a batch and empty
/// sequences take no room.
///
/// If the sequences of a batch need more than `rows` rows, the batch is an error
/// ([`ErrorKind::Step`](crate::ErrorKind::Step)) that says how many rows it needs, unless
/// [`drop_rest`](Self::drop_rest) is called. A sequence that is longer than a row is an error of its sample,
/// unless [`truncate`](Self::truncate) is called. Fields have the same forms as for
/// [`Tokens`](super::Tokens).
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, PackedTokens};
///
/// let columns = Columns::new().with("text", PackedTokens::<i32>::new("json", 2, 5));
/// let texts = ["[1, 2]", "[3, 4, 5, 6]", "[7, 8, 9]"];
/// let batch = columns.collate(texts.map(|text| Sample::new("key").with("json", text)))?;
/// assert_eq!(batch["text"].as_slice::<i32>()?, [3, 4, 5, 6, 0, 7, 8, 9, 1, 2]);
/// assert_eq!(batch["text.segments"].as_slice::<i32>()?, [1, 1, 1, 1, 0, 1, 1, 1, 2, 2]);
/// assert_eq!(batch["text.positions"].as_slice::<i32>()?, [0, 1, 2, 3, 0, 0, 1, 2, 0, 1]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PackedTokens<T> {
    field: Field,
    rows: usize,
    length: usize,
    pad: T,
    truncate: bool,
    drop_rest: bool,
    /// The pool for the numbers, and the pool for segments and positions.
    pools: [Arc<TensorPool>; 2],
}

impl<T: Integer> PackedTokens<T> {
    /// Reads `field`, which may be several alternatives separated by semicolons, into batches of `rows` rows.
    #[must_use]
    pub fn new(field: &str, rows: usize, length: usize) -> Self {
        let pool = |dtype: DType| TensorPool::new(dtype.size().saturating_mul(rows).saturating_mul(length));
        PackedTokens {
            field: Field::new(field),
            rows,
            length,
            pad: T::default(),
            truncate: false,
            drop_rest: false,
            pools: [pool(T::DTYPE), pool(DType::I32)],
        }
    }

    sequence_options!();

    /// Sets the number that pads a row after its last sequence. Default: 0.
    #[must_use]
    pub fn pad(mut self, value: T) -> Self {
        self.pad = value;
        self
    }

    /// Truncates sequences that are longer than a row. Default: such sequences are errors.
    #[must_use]
    pub fn truncate(mut self) -> Self {
        self.truncate = true;
        self
    }

    /// Drops sequences that do not fit into the rows. An additional tensor `.dropped`, `int64[1]`, has the
    /// number of dropped sequences.
    #[must_use]
    pub fn drop_rest(mut self) -> Self {
        self.drop_rest = true;
        self
    }

    /// Checks that the rows fit into memory.
    fn check_size<U: Integer>(&self) -> Result<()> {
        let (rows, length) = (self.rows, self.length);
        match byte_len(&[rows, length], U::DTYPE.size()).filter(|size| TensorPool::is_possible(*size)) {
            Some(_) => Ok(()),
            None => Err(config_error(format!(
                "{rows} rows of the length {length} are larger than any memory: take fewer `rows`"
            ))),
        }
    }

    fn tensor<U: Integer>(&self, pool: &Arc<TensorPool>, fill: U) -> Result<Tensor> {
        self.check_size::<U>()?;
        let buffer = TensorBuffer::pooled(pool.take(), pool);
        let mut tensor = Tensor::new(U::DTYPE, vec![self.rows, self.length], buffer)?;
        tensor.as_mut_slice::<U>()?.fill(fill);
        Ok(tensor)
    }
}

impl<T: Integer> Column for PackedTokens<T> {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::ragged(T::DTYPE)]
    }

    fn check(&self) -> Result<()> {
        self.field.check_numbers::<T>()?;
        check::length(self.length)?;
        if self.rows == 0 {
            return Err(config_error("0 rows of tokens: give a batch at least 1 row"));
        }
        self.check_size::<T>()?;
        self.check_size::<i32>()
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let bytes = self.field.with(sample, |numbers| {
            native_bytes::<T>(&numbers, truncated_len(numbers.len()?, self.length, self.truncate)?)
        })?;
        put_all(cells, bytes)
    }

    fn finished(&self) -> Option<Vec<&'static str>> {
        let mut suffixes = vec!["", ".segments", ".positions"];
        if self.drop_rest {
            suffixes.push(".dropped");
        }
        Some(suffixes)
    }

    fn finish(&self, tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        let [numbers, offsets] = &tensors[..] else {
            return Err(
                ErrorKind::Config("a column was called with other tensors than its own".into()).into()
            );
        };
        let numbers = numbers.as_slice::<T>()?;
        let ends = offsets.as_slice::<i64>()?;
        let sequences: Vec<&[T]> = ends
            .windows(2)
            .take(valid)
            .map(|ends| numbers.get(ends[0] as usize..ends[1] as usize).unwrap_or_default())
            .collect();
        let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.len()).collect();
        let (row_of, needed) = fit::fit_decreasing(&lengths, self.length, RowFit::First);
        if needed > self.rows && !self.drop_rest {
            return Err(self.too_few(needed, valid));
        }

        let [pool, int_pool] = &self.pools;
        let mut packed = self.tensor(pool, self.pad)?;
        let mut segments = self.tensor(int_pool, 0i32)?;
        let mut positions = self.tensor(int_pool, 0i32)?;
        let (to, segment_of) = (packed.as_mut_slice::<T>()?, segments.as_mut_slice::<i32>()?);
        let position_of = positions.as_mut_slice::<i32>()?;
        // For each row, the used length and the number of sequences.
        let mut filled = vec![(0usize, 0i32); self.rows.min(needed)];
        let mut dropped = 0i64;
        // The sequences in the order in which `fit_decreasing` placed them.
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(lengths[*at]));
        for at in order {
            let Some(row) = row_of[at] else { continue };
            let Some((used, segment)) = filled.get_mut(row) else {
                dropped += 1;
                continue;
            };
            let begin = row * self.length + *used;
            let range = begin..begin + lengths[at];
            *used += lengths[at];
            *segment += 1;
            to[range.clone()].copy_from_slice(sequences[at]);
            segment_of[range.clone()].fill(*segment);
            position_of[range].iter_mut().zip(0..).for_each(|(position, at)| *position = at);
        }
        let mut made = vec![packed, segments, positions];
        if self.drop_rest {
            let mut count = Tensor::zeros(DType::I64, vec![1])?;
            count.as_mut_slice::<i64>()?.fill(dropped);
            made.push(count);
        }
        Ok(made)
    }
}

impl<T> PackedTokens<T> {
    fn too_few(&self, needed: usize, samples: usize) -> Error {
        let (rows, length) = (self.rows, self.length);
        let what = format!(
            "the {samples} sequences of a batch need {needed} rows of {length}, and there are {rows}: take \
             more rows or fewer samples, or see `drop_rest`"
        );
        Error::step(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Columns;
    use crate::collate::collator::Collator;
    use proptest::prelude::*;

    fn samples(sequences: &[Vec<u16>]) -> Vec<Sample> {
        let raw =
            |tokens: &Vec<u16>| tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>();
        sequences.iter().map(|tokens| Sample::new("k").with("x", raw(tokens))).collect()
    }

    fn column(rows: usize, length: usize) -> PackedTokens<i32> {
        PackedTokens::new("x", rows, length).raw(DType::U16).pad(-1)
    }

    /// Returns the sequences in the rows, after checking segments, positions and padding.
    fn unpacked(batch: &crate::collate::TensorBatch, length: usize) -> Vec<Vec<u16>> {
        let read =
            |name: &str| batch[name].as_slice::<i32>().unwrap().chunks(length.max(1)).map(<[i32]>::to_vec);
        let mut found = Vec::new();
        for ((row, segments), positions) in read("x").zip(read("x.segments")).zip(read("x.positions")) {
            let mut at = 0;
            for segment in 1.. {
                let count = segments[at..].iter().take_while(|s| **s == segment).count();
                if count == 0 {
                    break;
                }
                assert!(positions[at..at + count].iter().copied().eq(0..count as i32));
                found.push(row[at..at + count].iter().map(|token| *token as u16).collect());
                at += count;
            }
            assert!(row[at..].iter().all(|token| *token == -1) && segments[at..].iter().all(|s| *s == 0));
            assert!(positions[at..].iter().all(|p| *p == 0));
        }
        found
    }

    #[test]
    fn sequences_that_do_not_fit_are_an_error_or_dropped() {
        let all = samples(&[vec![1; 3], vec![2; 3], vec![3; 2], vec![], vec![4; 3]]);
        let error = Columns::new().with("x", column(1, 5)).collate(all.clone()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("the 5 sequences of a batch need 3 rows of 5, and there are 1"), "{error}");
        let batch = Columns::new().with("x", column(1, 5).drop_rest()).collate(all.clone()).unwrap();
        assert_eq!(batch["x"].as_slice::<i32>().unwrap(), [1, 1, 1, 3, 3]);
        assert_eq!(batch["x.dropped"].as_slice::<i64>().unwrap(), [2]);
        let long = Columns::new().with("x", column(9, 2)).collate(all.clone()).unwrap_err();
        assert!(format!("{long:#}").contains("the sequence of 3 is longer than 2"), "{long:#}");
        assert!(Columns::new().with("x", column(9, 2).truncate()).collate(all.clone()).is_ok());
        assert!(Columns::new().with("x", column(usize::MAX, 3)).collate(all.clone()).is_err());
        let nothing = Columns::new().with("x", column(1, 0).truncate()).collate(all).unwrap_err();
        assert!(nothing.to_string().contains("the length 0"), "{nothing}");
    }

    #[test]
    fn padding_samples_of_a_batch_are_left_out() {
        let columns = Columns::new().with("x", column(2, 4));
        let collator = Collator::new(columns, 3);
        let mut allocator = collator.slots();
        let rows = samples(&[vec![1, 2], vec![3], vec![3]]);
        let rows = rows.iter().map(|sample| collator.row(sample, 0, allocator.next_row()).unwrap()).collect();
        let batch = collator.batch(rows, 2).unwrap();
        assert_eq!(unpacked(&batch, 4), [vec![1, 2], vec![3]]);
        let nothing = collator.batch(Vec::new(), 0).unwrap();
        assert_eq!(nothing["x"].as_slice::<i32>().unwrap(), [-1; 8]);
    }

    proptest! {
        #[test]
        fn every_sequence_is_in_the_rows_once(
            sequences in prop::collection::vec(prop::collection::vec(any::<u16>(), 0..9), 0..20),
            length in 8usize..20,
        ) {
            let rows = sequences.len().max(1);
            let batch = Columns::new().with("x", column(rows, length)).collate(samples(&sequences)).unwrap();
            let mut found = unpacked(&batch, length);
            found.sort();
            let mut wanted: Vec<_> = sequences.into_iter().filter(|tokens| !tokens.is_empty()).collect();
            wanted.sort();
            prop_assert_eq!(&found, &wanted);
            // With first fit, at most one row is less than half full.
            let used = batch["x.segments"].as_slice::<i32>().unwrap().chunks(length);
            let used = used.map(|row| row.iter().filter(|s| **s > 0).count());
            prop_assert!(used.filter(|n| *n > 0 && 2 * n < length).count() <= 1);
        }
    }
}
