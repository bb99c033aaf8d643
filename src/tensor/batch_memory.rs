//! Pins the memory of batches, so that devices can copy from this memory directly.

use crate::error::{ErrorKind, Result};
use crate::panic::{catch, drop_caught};
use crate::telemetry::log;
use bytes::BytesMut;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Pinned memory begins and ends at multiples of this many bytes, the largest page size of usual Linux
/// builds.
const PAGE: usize = 64 << 10;

/// Pins the memory of batches with a driver function such as `cudaHostRegister` or `PJRT_Client_DmaMap`.
/// Devices copy from pinned memory directly, without a staging copy in the driver.
///
/// Pass an implementation to [`Columns::memory`](crate::collate::Columns::memory). [`pin`](BatchMemory::pin)
/// is called once for each slab. A slab is the memory of one tensor of one batch, and later batches reuse the
/// slab. Only tensors of a fixed shape are in slabs. Ragged tensors, and tensors whose memory is allocated by
/// a column, are not pinned.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, Scalar};
/// use shardstream::tensor::BatchMemory;
/// use std::any::Any;
/// use std::error::Error;
/// use std::sync::Arc;
///
/// struct Driver;
///
/// /// Unpins when it is dropped.
/// struct Registered(usize);
///
/// impl Drop for Registered {
///     fn drop(&mut self) {
///         println!("unpin {:#x}", self.0); // cudaHostUnregister
///     }
/// }
///
/// impl BatchMemory for Driver {
///     fn pin(&self, memory: &[u8]) -> Result<Box<dyn Any + Send + Sync>, Box<dyn Error + Send + Sync>> {
///         println!("pin {} bytes at {:p}", memory.len(), memory.as_ptr()); // cudaHostRegister
///         Ok(Box::new(Registered(memory.as_ptr().addr())))
///     }
/// }
///
/// let columns = Columns::new().with("label", Scalar::<i32>::new("cls")).memory(Arc::new(Driver));
/// let batch = columns.collate([Sample::new("0001").with("cls", 7)])?;
/// assert_eq!(batch["label"].as_slice::<i32>()?, [7]);
/// # Ok::<(), shardstream::Error>(())
/// ```
pub trait BatchMemory: Send + Sync {
    /// Pins `memory`, which consists of whole pages. Returns a guard that unpins the memory when it is
    /// dropped. Until the guard is dropped, the memory stays allocated at this address, and threads of this
    /// process may write to it. The guard is dropped when the tensor, and all bytes and rows that were made
    /// from the tensor, are no longer in use.
    ///
    /// Only this library calls this function. Any other caller must keep the memory allocated at its address
    /// until the guard is dropped: otherwise a device could read pages that have been freed.
    ///
    /// # Errors
    /// Any error of the driver. After the first error, the pool of this tensor pins no more memory, even if
    /// memory becomes available later; a new loader tries again. The error is logged as a warning; if pinning
    /// [is required](BatchMemory::is_required), it is returned for every batch instead. A panic of this
    /// function is treated as an error of the driver. A panic of the guard is logged.
    fn pin(
        &self,
        memory: &[u8],
    ) -> std::result::Result<Box<dyn Any + Send + Sync>, Box<dyn std::error::Error + Send + Sync>>;

    /// Whether batches must be pinned. If true, a batch whose memory cannot be pinned is an error of the kind
    /// [`Config`](ErrorKind::Config), which no policy skips. If false, such a batch is in ordinary memory.
    /// Default: false.
    fn is_required(&self) -> bool {
        false
    }
}

/// A value that unpins memory when it is dropped.
type Pinned = Box<dyn Any + Send + Sync>;

/// The pinned slabs of a pool.
pub(super) struct Slabs {
    memory: Arc<dyn BatchMemory>,
    /// The slabs by the address of their first byte.
    slabs: Mutex<HashMap<usize, Slab>>,
    /// The first error of pinning. After this error, no more memory is pinned.
    failed: OnceLock<PinFailure>,
}

struct PinFailure {
    error: String,
    /// Whether the error is returned for every batch.
    is_fatal: bool,
}

/// Unpins a slab when it is dropped. A panic of the driver is logged.
pub(super) struct PinGuard(Option<Pinned>);

impl Drop for PinGuard {
    fn drop(&mut self) {
        if let Err(panic) = drop_caught(self.0.take()) {
            log!(WARN, "the memory of a batch could not be unpinned", error = panic);
        }
    }
}

/// A pinned slab, idle or in use.
struct Slab {
    // This is the first field, so that the memory is unpinned before it is freed.
    pinned: PinGuard,
    /// An unused part of the slab's allocation, which keeps the allocation alive.
    end: BytesMut,
}

impl Slab {
    /// Whether no part of the slab is in use.
    fn is_abandoned(&mut self) -> bool {
        // Reclaiming succeeds only if no other handle of the allocation exists.
        self.end.try_reclaim(self.end.capacity() + 1)
    }
}

impl Slabs {
    pub(super) fn new(memory: Arc<dyn BatchMemory>) -> Self {
        Slabs { memory, slabs: Mutex::default(), failed: OnceLock::new() }
    }

    /// The number of bytes that a slab of `size` bytes takes: whole pages, and one additional page to align
    /// the beginning.
    pub(super) fn bytes_of(size: usize) -> usize {
        size.next_multiple_of(PAGE) + PAGE
    }

    /// Whether a slab begins at the address of `buffer`.
    pub(super) fn contain(&self, buffer: &BytesMut) -> bool {
        self.slabs().contains_key(&buffer.as_ptr().addr())
    }

    fn slabs(&self) -> MutexGuard<'_, HashMap<usize, Slab>> {
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a slab of `size` zeros. Returns `None` if the memory cannot be pinned.
    pub(super) fn make(&self, size: usize) -> Option<BytesMut> {
        // First free the slabs of batches that were never completed. The slabs are dropped after the lock is
        // released, because dropping a slab calls the driver to unpin it.
        let abandoned: Vec<Slab> =
            self.slabs().extract_if(|_, slab| slab.is_abandoned()).map(|(_, slab)| slab).collect();
        drop(abandoned);
        if size == 0 || self.failed.get().is_some() {
            return None;
        }
        let pages = size.next_multiple_of(PAGE);
        let mut slab = BytesMut::zeroed(Slabs::bytes_of(size));
        let offset = slab.as_ptr().addr().wrapping_neg() % PAGE;
        drop(slab.split_to(offset));
        // Formatting the driver's error calls the driver's code too, so the error is formatted inside
        // `catch`.
        let pinned = catch(|| self.memory.pin(&slab[..pages]).map_err(|error| error.to_string()));
        match pinned.unwrap_or_else(|panic| Err(panic.to_string())) {
            Ok(pinned) => {
                slab.truncate(size);
                self.register(&mut slab, PinGuard(Some(pinned)));
                Some(slab)
            }
            Err(error) => {
                let is_fatal = catch(|| self.memory.is_required()).unwrap_or(true);
                let failure = PinFailure { error, is_fatal };
                // Other threads may have failed at the same time: only the first error is reported.
                if let Ok(()) = self.failed.set(failure)
                    && let Some(PinFailure { error, is_fatal: false }) = self.failed.get()
                {
                    log!(WARN, "the memory of batches cannot be pinned", error = error);
                }
                None
            }
        }
    }

    /// Fails if pinning is required and has failed.
    pub(super) fn check(&self) -> Result<()> {
        match self.failed.get() {
            Some(PinFailure { error, is_fatal: true }) => {
                Err(ErrorKind::Config(format!("the memory of batches cannot be pinned: {error}")).into())
            }
            _ => Ok(()),
        }
    }

    /// Registers a slab. The length of `slab` is the length of the used part, and its capacity is that of the
    /// whole slab.
    pub(super) fn register(&self, slab: &mut BytesMut, pinned: PinGuard) {
        let begin = slab.as_ptr().addr();
        let end = slab.split_off(slab.len());
        self.slabs().insert(begin, Slab { pinned, end });
    }

    /// Unregisters the slab at the address of `buffer`, and returns the guard that unpins it.
    pub(super) fn release(&self, buffer: &BytesMut) -> Option<PinGuard> {
        self.slabs().remove(&buffer.as_ptr().addr()).map(|slab| slab.pinned)
    }
}

impl fmt::Debug for dyn BatchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BatchMemory")
    }
}

impl fmt::Debug for Slabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slabs").field("known", &self.slabs().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::{TensorBuffer, TensorPool};
    use super::*;
    use proptest::prelude::*;
    use std::ops::Range;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    type PinResult = std::result::Result<Pinned, Box<dyn std::error::Error + Send + Sync>>;

    /// The address ranges that are pinned now, and the number of ranges that have been pinned in all.
    #[derive(Default, Clone)]
    struct Recorded(Arc<Mutex<(Vec<Range<usize>>, usize)>>);

    struct Guard(Recorded, usize);

    impl Drop for Guard {
        fn drop(&mut self) {
            let mut recorded = self.0.0.lock().unwrap();
            let at = recorded.0.iter().position(|range| range.start == self.1).unwrap();
            recorded.0.swap_remove(at);
        }
    }

    impl BatchMemory for Recorded {
        fn pin(&self, memory: &[u8]) -> PinResult {
            let range = memory.as_ptr_range();
            let range = range.start.addr()..range.end.addr();
            assert!(range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE));
            let mut recorded = self.0.lock().unwrap();
            let overlaps = |other: &Range<usize>| other.start < range.end && range.start < other.end;
            assert!(!recorded.0.iter().any(overlaps), "{range:?}");
            recorded.0.push(range.clone());
            recorded.1 += 1;
            Ok(Box::new(Guard(self.clone(), range.start)))
        }
    }

    impl Recorded {
        fn holds(&self, bytes: &[u8]) -> bool {
            let range = bytes.as_ptr_range();
            let (start, end) = (range.start.addr(), range.end.addr());
            self.0.lock().unwrap().0.iter().any(|pinned| pinned.start <= start && end <= pinned.end)
        }

        fn now(&self) -> usize {
            self.0.lock().unwrap().0.len()
        }

        fn ever(&self) -> usize {
            self.0.lock().unwrap().1
        }
    }

    fn pool(size: usize) -> (Arc<TensorPool>, Recorded) {
        let recorded = Recorded::default();
        (TensorPool::pinned(size, Arc::new(recorded.clone())), recorded)
    }

    #[test]
    fn memory_is_pinned_once_and_reused() {
        let (pool, recorded) = pool(1000);
        for round in 0..100 {
            let batches: Vec<TensorBuffer> =
                (0..3).map(|_| TensorBuffer::pooled(pool.take(), &pool)).collect();
            assert!(batches.iter().all(|batch| recorded.holds(batch.as_ref())), "{round}");
            assert_eq!(batches[0].as_ref().len(), 1000);
        }
        assert_eq!((recorded.now(), recorded.ever()), (3, 3));
        drop(pool);
        assert_eq!(recorded.now(), 0);
    }

    #[test]
    fn bytes_that_outlive_the_pool_stay_pinned_until_they_are_dropped() {
        let (pool, recorded) = pool(100_000);
        let bytes = bytes::Bytes::from_owner(TensorBuffer::pooled(pool.take(), &pool));
        let part = bytes.slice(70_000..70_010);
        drop((pool, bytes));
        assert!(recorded.holds(&part));
        drop(part);
        assert_eq!(recorded.now(), 0);
    }

    #[test]
    fn slabs_of_incomplete_batches_are_freed() {
        let (pool, recorded) = pool(1000);
        for _ in 0..50 {
            let mut slots = pool.take();
            // The first sample fails, so the rest of the batch does not begin at the address of the slab.
            drop(slots.split_to(256));
            let rest = TensorBuffer::pooled(slots, &pool);
            assert!(recorded.holds(rest.as_ref()));
        }
        assert!(recorded.now() <= 2, "{}", recorded.now());
    }

    #[test]
    fn the_whole_slab_of_a_short_batch_is_reused() {
        let (pool, recorded) = pool(1000);
        for _ in 0..20 {
            let mut slab = pool.take();
            let rest = slab.split_off(600);
            drop(rest);
            drop(TensorBuffer::pooled(slab, &pool));
        }
        assert_eq!((recorded.now(), recorded.ever()), (1, 1));
    }

    /// A driver that pins no memory.
    struct Refuses {
        was_called: AtomicBool,
        is_required: bool,
    }

    impl BatchMemory for Refuses {
        fn pin(&self, _: &[u8]) -> PinResult {
            assert!(!self.was_called.swap(true, Relaxed), "a second call after an error");
            Err("no device".into())
        }

        fn is_required(&self) -> bool {
            self.is_required
        }
    }

    fn refuses(is_required: bool) -> Arc<Refuses> {
        Arc::new(Refuses { was_called: AtomicBool::new(false), is_required })
    }

    #[test]
    fn batches_are_in_ordinary_memory_if_it_cannot_be_pinned() {
        let pool = TensorPool::pinned(1000, refuses(false));
        let [first, second] = [pool.take(), pool.take()];
        assert_eq!((first.len(), second.len()), (1000, 1000));
        pool.check_pinned().unwrap();
        drop(TensorBuffer::pooled(first, &pool));
    }

    #[test]
    fn a_batch_in_memory_that_cannot_be_pinned_is_an_error_if_pinning_is_required() {
        use crate::Sample;
        use crate::collate::{Columns, Scalar};

        let columns = Columns::new().with("label", Scalar::<i32>::new("cls")).memory(refuses(true));
        let error = columns.collate([Sample::new("a").with("cls", 7)]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
        assert!(error.to_string().contains("cannot be pinned: no device"), "{error}");
    }

    #[test]
    fn pinned_batches_have_the_same_content() {
        use crate::Sample;
        use crate::collate::{Columns, Scalar};

        let recorded = Recorded::default();
        let plain = Columns::new().with("label", Scalar::<i32>::new("cls"));
        let pinned = plain.clone().memory(Arc::new(recorded.clone()));
        let samples = || (0..100).map(|i| Sample::new(format!("{i}")).with("cls", i));
        let [plain, pinned] = [plain, pinned].map(|columns| columns.collate(samples()).unwrap());
        let numbers = pinned["label"].as_slice::<i32>().unwrap();
        assert_eq!(numbers, plain["label"].as_slice::<i32>().unwrap());
        assert!(recorded.holds(bytemuck::cast_slice(numbers)));
        drop(pinned);
        assert_eq!(recorded.now(), 0);
    }

    proptest! {
        /// Memory is taken, split, dropped and returned in random order.
        #[test]
        fn memory_in_use_is_pinned_and_finally_all_is_unpinned(
            size in 1_usize..200_000,
            steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>(), 0.0_f64..1.0), 1..60),
        ) {
            let (pool, recorded) = pool(size);
            let (mut parts, mut batches): (Vec<BytesMut>, Vec<TensorBuffer>) = Default::default();
            for (what, which, share) in steps {
                match what {
                    0 => parts.push(pool.take()),
                    1 if !parts.is_empty() => {
                        let at = which.index(parts.len());
                        let cut = (parts[at].len() as f64 * share) as usize;
                        let other = parts[at].split_off(cut);
                        parts.push(other);
                    }
                    2 if !parts.is_empty() => {
                        let mut part = parts.swap_remove(which.index(parts.len()));
                        part.fill(7);
                        batches.push(TensorBuffer::pooled(part, &pool));
                    }
                    3 if !batches.is_empty() => drop(batches.swap_remove(which.index(batches.len()))),
                    _ => {}
                }
                for bytes in parts.iter().map(|part| &part[..]).chain(batches.iter().map(AsRef::as_ref)) {
                    prop_assert!(bytes.is_empty() || recorded.holds(bytes));
                }
            }
            drop((parts, batches));
            drop(pool);
            prop_assert_eq!(recorded.now(), 0);
        }
    }
}
