//! `Buckets`: the few shapes that batches may have.

use crate::{Error, Result};
use smallvec::SmallVec;
use std::fmt;

/// Default of [`Buckets::look_ahead`].
const LOOK_AHEAD: usize = 256;

/// Extra share of items that [`Buckets::count`] gives to larger shapes, so that no queue of items for a large
/// shape builds up.
const MARGIN: f64 = 0.03;

/// The error if batches have several shapes and the last batch is dropped.
pub(crate) const NOT_DROPPED: &str = "`LastBatch::Drop` with `buckets`: the last slots of an epoch may be \
                                      empty on some ranks only; take the same number of steps on all ranks \
                                      from `epochs`";

/// The sum of the shares that [`Buckets::count`] sets.
const COUNTED_SUM: u32 = 64;

/// The few shapes that batches may have: lengths of sequences, or heights and widths of pictures. A compiler
/// for fixed shapes, such as XLA, then compiles a program only once for each shape.
///
/// An item belongs to the smallest shape that it fits into in each dimension, and is padded to that shape.
/// [`LoaderBuilder::buckets`](crate::loader::LoaderBuilder::buckets) and
/// [`Pipeline::buckets`](super::Pipeline::buckets) give each batch one shape.
///
/// ```
/// use shardstream::adapters::Buckets;
///
/// let lengths = [30, 90, 100, 120, 300, 400, 1000];
/// let buckets = Buckets::lengths([128, 512, 2048]).count(lengths.map(|length| [length]));
/// assert_eq!(buckets.bucket_of([100])?, 0);
/// assert_eq!(buckets.bucket_of([129])?, 1);
/// assert!(buckets.bucket_of([5000]).is_err());
/// assert_eq!(buckets.shape(1), [512]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "shapes do nothing until they are passed to a loader or pipeline"]
pub struct Buckets<const N: usize> {
    shapes: Vec<[usize; N]>,
    shares: Option<Vec<u32>>,
    batches: Option<Vec<usize>>,
    look_ahead: usize,
}

impl Buckets<1> {
    /// Shapes for sequences of up to these lengths.
    ///
    /// ```
    /// use shardstream::adapters::Buckets;
    ///
    /// assert_eq!(Buckets::lengths([128, 512]).bucket_of([200])?, 1);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn lengths(lengths: impl IntoIterator<Item = usize>) -> Self {
        Buckets::shapes(lengths.into_iter().map(|length| [length]))
    }
}

impl<const N: usize> Buckets<N> {
    /// Shapes of any number of dimensions, such as `[height, width]`.
    ///
    /// ```
    /// use shardstream::adapters::Buckets;
    ///
    /// let buckets = Buckets::shapes([[224, 320], [320, 224]]);
    /// assert_eq!((buckets.bucket_of([300, 200])?, buckets.len()), (1, 2));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn shapes(shapes: impl IntoIterator<Item = [usize; N]>) -> Self {
        let shapes = shapes.into_iter().collect();
        Buckets { shapes, shares: None, batches: None, look_ahead: LOOK_AHEAD }
    }

    /// Sets the relative number of steps of each shape. The shares should match the data, with somewhat
    /// larger shares for large shapes: small items fit into larger shapes, but large items do not fit into
    /// smaller shapes. [`count`](Buckets::count) computes the shares from sizes of items. Default: all equal.
    ///
    /// ```
    /// use shardstream::adapters::Buckets;
    ///
    /// let buckets = Buckets::lengths([128, 512]).shares([3, 1]); // one step in four is of length 512
    /// assert_eq!(buckets.len(), 2);
    /// ```
    pub fn shares(self, shares: impl IntoIterator<Item = u32>) -> Self {
        Buckets { shares: Some(shares.into_iter().collect()), ..self }
    }

    /// Sets the [shares](Buckets::shares) from the sizes of some items, such as the first ten thousand: each
    /// shape gets the number of steps that its items fill, and large shapes 3 % more. Set the sizes of
    /// batches first. Items larger than every shape are not counted.
    pub fn count(self, sizes: impl IntoIterator<Item = [usize; N]>) -> Self {
        let mut counts = vec![0.0f64; self.shapes.len()];
        for size in sizes {
            if let Ok(bucket) = self.bucket_of(size) {
                counts[bucket] += 1.0;
            }
        }
        // Each shape A, from the largest shape to the smallest, takes a margin from the count of another
        // shape B. Of the other shapes that fit into A, B is the largest.
        let mut order: Vec<usize> = (0..self.shapes.len()).collect();
        order.sort_by_key(|bucket| std::cmp::Reverse(self.volume(*bucket)));
        for at in 0..order.len() {
            let more = MARGIN * counts[order[at]];
            let Some(smaller) = order[at + 1..].iter().find(|other| self.fits(**other, order[at])) else {
                continue;
            };
            let more = more.min(counts[*smaller]);
            counts[order[at]] += more;
            counts[*smaller] -= more;
        }
        let steps: Vec<f64> = (0..counts.len())
            .map(|bucket| {
                let batch = self.batches.as_ref().and_then(|sizes| sizes.get(bucket)).copied().unwrap_or(1);
                counts[bucket] / batch.max(1) as f64
            })
            .collect();
        let sum: f64 = steps.iter().sum();
        let share = |steps: &f64| {
            ((f64::from(COUNTED_SUM) * steps / sum.max(f64::MIN_POSITIVE)).round() as u32).max(1)
        };
        let shares = steps.iter().map(share).collect();
        Buckets { shares: Some(shares), ..self }
    }

    /// Sets the number of items in a batch of each shape, on each rank. Give small shapes more items if all
    /// batches should have about the same number of tokens or pixels. Default: the loader's batch size for
    /// all shapes.
    ///
    /// ```
    /// use shardstream::adapters::Buckets;
    ///
    /// let by_hand = Buckets::lengths([128, 512]).batches([32, 8]);
    /// assert_eq!(by_hand, Buckets::lengths([128, 512]).budget(4096));
    /// ```
    pub fn batches(self, sizes: impl IntoIterator<Item = usize>) -> Self {
        Buckets { batches: Some(sizes.into_iter().collect()), ..self }
    }

    /// Sets the [size of the batches](Buckets::batches) of each shape: the number of items of this shape that
    /// fit into `budget` tokens or pixels, but at least 1.
    pub fn budget(self, budget: usize) -> Self {
        let sizes = (0..self.shapes.len()).map(|bucket| {
            let volume = usize::try_from(self.volume(bucket)).unwrap_or(usize::MAX);
            (budget / volume.max(1)).max(1)
        });
        Buckets { batches: Some(sizes.collect()), ..self }
    }

    /// Sets how many items of each stream may wait for a batch of their shape. If this number of items wait
    /// and none of them has the shape of the current step, a smaller item is padded to that shape. If no
    /// smaller item waits, the batch has a gap, and therefore one item less. Default: 256. Waiting items are
    /// held in memory, in each stream of the rank, and no memory budget includes them: set a smaller number
    /// for large items.
    pub fn look_ahead(self, items: usize) -> Self {
        Buckets { look_ahead: items, ..self }
    }

    /// The number of the smallest shape that an item of this size fits into.
    ///
    /// # Errors
    /// [`ErrorKind::Step`](crate::ErrorKind::Step) if the item fits into no shape.
    pub fn bucket_of(&self, size: [usize; N]) -> Result<usize> {
        let fits = |bucket: &usize| size.iter().zip(self.shapes[*bucket]).all(|(size, room)| *size <= room);
        let smallest = (0..self.shapes.len()).filter(fits).min_by_key(|bucket| self.volume(*bucket));
        smallest.ok_or_else(|| {
            let what = format!("an item of the size {size:?} is larger than every bucket: {:?}", self.shapes);
            Error::step(what)
        })
    }

    /// The bucket of an item of this size, and the number of tokens or pixels of the item.
    pub(crate) fn measure(&self, size: [usize; N]) -> Result<(usize, u64)> {
        let used = size.iter().fold(1, |all: u64, size| all.saturating_mul(*size as u64));
        Ok((self.bucket_of(size)?, used))
    }

    /// The shape with this number.
    ///
    /// # Panics
    /// If no shape has this number.
    #[must_use]
    pub fn shape(&self, bucket: usize) -> [usize; N] {
        self.shapes[bucket]
    }

    /// Number of shapes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "buckets without shapes are an error")]
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Number of tokens or pixels of a shape.
    fn volume(&self, bucket: usize) -> u64 {
        self.shapes[bucket].iter().fold(1, |all: u64, size| all.saturating_mul(*size as u64))
    }

    /// Whether all items of the shape `item` fit into the shape `room`.
    fn fits(&self, item: usize, room: usize) -> bool {
        self.shapes[item].iter().zip(self.shapes[room]).all(|(size, room)| *size <= room)
    }

    /// Checks the options, and resolves them for a loader. `batch` is the size of batches if the shapes do
    /// not set their own.
    pub(crate) fn plan(&self, batch: Option<usize>) -> Result<BucketPlan, String> {
        let count = self.shapes.len();
        let bad = |what: String| Err(format!("buckets: {what}"));
        let shares = self.shares.clone().unwrap_or_else(|| vec![1; count]);
        let sizes = match (&self.batches, batch) {
            (Some(sizes), _) => sizes.clone(),
            (None, Some(batch)) => vec![batch; count],
            (None, None) => return bad("no batch size: call `batch`, or give each shape its own".into()),
        };
        if count == 0 || self.shapes.iter().flatten().any(|size| *size == 0) {
            return bad("give at least one shape, and none with a size of 0".into());
        }
        if shares.len() != count || sizes.len() != count {
            let (shares, sizes) = (shares.len(), sizes.len());
            return bad(format!(
                "{count} shapes have {shares} shares and {sizes} batch sizes: give each one"
            ));
        }
        if sizes.contains(&0) || self.look_ahead == 0 {
            return bad("batches of 0 items, or a look-ahead of 0: both must be at least 1".into());
        }
        if (1..count).any(|bucket| self.shapes[..bucket].contains(&self.shapes[bucket])) {
            return bad("a shape is given twice".into());
        }
        let smaller = |room: usize| {
            let mut fits: SmallVec<[usize; 4]> =
                (0..count).filter(|item| *item != room && self.fits(*item, room)).collect();
            fits.sort_by_key(|item| std::cmp::Reverse(self.volume(*item)));
            fits
        };
        Ok(BucketPlan {
            name: format!("{:?}", self.shapes),
            volumes: (0..count).map(|bucket| self.volume(bucket)).collect(),
            smaller: (0..count).map(smaller).collect(),
            shares,
            sizes,
            look_ahead: self.look_ahead,
        })
    }
}

/// Checked and resolved buckets. Shapes are identified by their numbers; their dimensions are no longer
/// needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketPlan {
    name: String,
    /// Number of tokens or pixels of each shape.
    pub(crate) volumes: Vec<u64>,
    /// For each shape, the other shapes whose items fit into it, the largest first.
    pub(crate) smaller: Vec<SmallVec<[usize; 4]>>,
    pub(crate) shares: Vec<u32>,
    /// Number of items in a batch of each shape, on each rank.
    pub(crate) sizes: Vec<usize>,
    pub(crate) look_ahead: usize,
}

impl fmt::Display for BucketPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buckets({}, shares {:?}, look-ahead {})", self.name, self.shares, self.look_ahead)
    }
}
