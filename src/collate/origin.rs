//! `Origin`: a column of samples' keys, shards or positions.

use super::cell::{Cell, Output};
use super::check::{self, config_error};
use super::column::Column;
use super::ragged::put_all;
use crate::error::Result;
use crate::sample::{DType, Position, Sample};
use bytes::Bytes;

/// A column of the origin of samples: their keys, the URLs of their shards, or their positions in the
/// dataset.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, Origin};
///
/// let samples = [Sample::new("a/0001").with_position(2, 7), Sample::new("a/0002").with_position(2, 8)];
/// let columns = Columns::new().with("key", Origin::key()).with("at", Origin::position());
/// let batch = columns.collate(samples)?;
/// assert!(batch.strings("key")?.eq(["a/0001", "a/0002"]));
/// assert_eq!(batch["at"].shape(), [2, 4]);
/// assert_eq!(batch["at"].as_slice::<i64>()?, [2, 0, 7, 0, 2, 0, 8, 0]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Origin(OriginPart);

#[derive(Debug, Clone, Copy)]
enum OriginPart {
    Key,
    Shard,
    Position,
}

impl Origin {
    /// The [keys](Sample::key) of the samples: a ragged `uint8` tensor with the bytes of all keys, and
    /// `.offsets`, as for [`Text`](super::Text). [`TensorBatch::strings`](super::TensorBatch::strings)
    /// returns the keys. The key of a sample that a stage made is the key that the stage set.
    #[must_use]
    pub fn key() -> Self {
        Origin(OriginPart::Key)
    }

    /// The URLs of the samples' [shards](Sample::shard), without secrets, in the same form as
    /// [keys](Origin::key). The URL of a sample that no dataset has read is empty. The
    /// [position](Origin::position) has the number of the shard, which takes fewer bytes than the URL.
    #[must_use]
    pub fn shard() -> Self {
        Origin(OriginPart::Shard)
    }

    /// The [positions](Position) of the samples in their dataset: `int64[samples, 4]`. The four numbers of a
    /// sample are its epoch, the number of its shard in the shard list, its number in the shard, and its
    /// number among the outputs of a stage. All four start at 0.
    ///
    /// Positions are the same on every run, rank and thread, and identify a sample in fewer bytes than its
    /// key. The position of a sample that no dataset has read is 0, 0, 0, 0, unless it was
    /// [set](Sample::with_position). A number that does not fit into `int64` is an error,
    /// [`ErrorKind::Config`](crate::ErrorKind::Config); no dataset has such numbers.
    #[must_use]
    pub fn position() -> Self {
        Origin(OriginPart::Position)
    }
}

impl Column for Origin {
    fn outputs(&self) -> Vec<Output> {
        match self.0 {
            OriginPart::Key | OriginPart::Shard => vec![Output::ragged(DType::U8)],
            OriginPart::Position => vec![Output::fixed(DType::I64, [4])],
        }
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        // A slice of the text would keep the sample's whole chunk in memory.
        let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        match self.0 {
            OriginPart::Key => put_all(cells, copy(sample.key())),
            OriginPart::Shard => put_all(cells, copy(sample.shard())),
            OriginPart::Position => put_position(cells, sample.position()),
        }
    }
}

fn put_position(cells: &mut [Cell], position: Position) -> Result<()> {
    let Position { epoch, shard, sample, part, .. } = position;
    let [cell] = cells else { return Err(check::wrong_cells()) };
    let numbers = [("epoch", epoch), ("shard", shard), ("sample", sample), ("part", part)];
    for (to, (what, number)) in cell.numbers::<i64>()?.iter_mut().zip(numbers) {
        *to = i64::try_from(number)
            .map_err(|_| config_error(format!("the {what} {number} of a position does not fit int64")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Columns;
    use crate::error::ErrorKind;

    fn columns() -> Columns {
        let columns = Columns::new().with("key", Origin::key()).with("shard", Origin::shard());
        columns.with("at", Origin::position())
    }

    #[test]
    fn each_row_has_the_key_shard_and_position_of_its_sample() {
        let sample = |key: &'static str, shard: &str, at: [u64; 4]| {
            let [epoch, number, sample, part] = at;
            let position = Position { epoch, shard: number, sample, part, dataset: 0 };
            Sample::from_parts(key.into(), Default::default(), shard.into(), position)
        };
        let samples = [
            sample("été", "gs://a/0.tar", [1, 2, 3, 4]),
            sample("", "", [0; 4]),
            sample("b", "gs://a/10.tar", [5, 6, i64::MAX as u64, 7]),
        ];
        let batch = columns().collate(samples).unwrap();
        assert!(batch.strings("key").unwrap().eq(["été", "", "b"]));
        assert!(batch.strings("shard").unwrap().eq(["gs://a/0.tar", "", "gs://a/10.tar"]));
        assert_eq!(batch["at"].to_string(), "int64[3, 4]");
        let wanted = [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, i64::MAX, 7];
        assert_eq!(batch["at"].as_slice::<i64>().unwrap(), wanted);
    }

    #[test]
    fn a_position_beyond_int64_is_an_error() {
        let sample = Sample::new("k").with_position(0, 1 << 63);
        let error = columns().collate([sample]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("the sample 9223372036854775808") && text.contains("sample k"), "{text}");
    }
}
