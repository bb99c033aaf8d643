//! Tests of pinned batches with a fake driver. It records which memory is pinned, and refuses the calls that
//! the real driver refuses.
#![allow(unsafe_code, reason = "calls the fake driver")]

#[path = "../../../pjrt/tests/made_up/build.rs"]
mod build;
mod report;

use libloading::Library;
use report::Report;
use shardstream::collate::{Columns, Scalar, TensorBatch};
use shardstream::prelude::*;
use shardstream::tensor::BatchMemory;
use shardstream_cuda::{CudaDevice, CudaError, InFlight, PinnedMemory};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;
use tempfile::TempDir;

static BUILT: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("libmade_up.so");
    build::build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/made_up/driver.rs"), &path);
    (home, path)
});

fn open_with(library: impl AsRef<Path>, ordinal: usize) -> Result<CudaDevice, CudaError> {
    // SAFETY: the library is the fake driver, or a library that is refused before any of its functions is
    // called.
    unsafe { CudaDevice::open_with(library, ordinal) }
}

/// A copy of the fake driver's library for one test: each copy has its own state.
struct FakeDriver {
    path: PathBuf,
    driver: Library,
    _home: TempDir,
}

impl FakeDriver {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("libcuda.so.1");
        std::fs::copy(&BUILT.1, &path).unwrap();
        // SAFETY: the library is the fake driver.
        let driver = unsafe { Library::new(&path) }.unwrap();
        FakeDriver { path, driver, _home: home }
    }

    fn open(&self) -> CudaDevice {
        open_with(&self.path, 0).unwrap()
    }

    fn report(&self) -> Report {
        let mut report = Report::default();
        // SAFETY: the function has this type.
        let read = unsafe { self.driver.get::<unsafe extern "C" fn(*mut Report)>(b"made_up_report\0") };
        // SAFETY: as above.
        unsafe { read.unwrap()(&mut report) };
        assert_eq!((report.misuses, report.depth), (0, 0), "{report:?}");
        report
    }

    /// Makes all calls of a function fail with `code`, or succeed again if `code` is 0.
    fn fail(&self, call: &str, code: c_int) {
        let call = CString::new(call).unwrap();
        // SAFETY: the function has this type.
        let fail =
            unsafe { self.driver.get::<unsafe extern "C" fn(*const c_char, c_int)>(b"made_up_fail\0") };
        // SAFETY: as above.
        unsafe { fail.unwrap()(call.as_ptr(), code) };
    }

    fn is_pinned(&self, bytes: &[u8]) -> bool {
        type IsPinned = unsafe extern "C" fn(*const c_void, usize) -> c_int;
        // SAFETY: the function has this type.
        let is_pinned = unsafe { self.driver.get::<IsPinned>(b"made_up_is_pinned\0") };
        // SAFETY: as above.
        unsafe { is_pinned.unwrap()(bytes.as_ptr().cast(), bytes.len()) != 0 }
    }

    /// Sets whether the work of all streams has ended.
    fn set_work_done(&self, is_done: bool) {
        // SAFETY: the function has this type.
        let work = unsafe { self.driver.get::<unsafe extern "C" fn(c_int)>(b"made_up_work\0") };
        // SAFETY: as above.
        unsafe { work.unwrap()(c_int::from(is_done)) };
    }
}

fn columns(memory: &PinnedMemory) -> Columns {
    Columns::new().with("label", Scalar::<i32>::new("cls")).memory(Arc::new(memory.clone()))
}

fn batch(columns: &Columns) -> shardstream::Result<TensorBatch> {
    columns.collate((0..100).map(|number| Sample::new(format!("{number}")).with("cls", number)))
}

fn in_flight<T>(device: &CudaDevice, value: T) -> Result<InFlight<T>, CudaError> {
    // SAFETY: null is the default stream.
    unsafe { device.in_flight(null_mut(), value) }
}

#[test]
fn a_batch_is_pinned_until_its_last_view_is_dropped_on_any_thread() {
    let driver = FakeDriver::new();
    let memory = PinnedMemory::new(&driver.open());
    let mut batch = batch(&columns(&memory)).unwrap();
    assert!(driver.is_pinned(batch["label"].as_bytes()));
    assert_eq!((driver.report().registered, memory.bytes()), (1, 64 << 10));
    let bytes = batch.take("label").unwrap().into_bytes();
    let view = bytes.slice(40..80);
    drop((batch, bytes));
    assert!(driver.is_pinned(&view));
    thread::spawn(move || drop(view)).join().unwrap();
    assert_eq!((driver.report().registered, memory.bytes()), (0, 0));
    // Only the last clone releases the context.
    assert_eq!(driver.report().contexts, 1);
    drop(memory);
    assert_eq!(driver.report().contexts, 0);
}

#[test]
fn a_batch_keeps_the_context_after_the_device_is_dropped() {
    let driver = FakeDriver::new();
    let batch = batch(&columns(&PinnedMemory::new(&driver.open()))).unwrap();
    assert_eq!((driver.report().registered, driver.report().contexts), (1, 1));
    drop(batch);
    assert_eq!((driver.report().registered, driver.report().contexts), (0, 0));
}

fn shards(directory: &TempDir) -> String {
    let pattern = format!("{}/%06d.tar", directory.path().display());
    let mut writer = ShardWriter::builder(pattern).max_count(50).build().unwrap();
    for number in 0..400 {
        writer.write(&Sample::new(format!("{number:06}")).with("cls", i64::from(number))).unwrap();
    }
    writer.finish().unwrap();
    format!("{}/*.tar", directory.path().display())
}

fn labels(pattern: &str, memory: Option<PinnedMemory>, threads: usize) -> shardstream::Result<Vec<i32>> {
    let dataset = Dataset::builder(pattern).streams(2).build()?;
    let columns = Columns::new().with("label", Scalar::<i32>::new("cls"));
    let columns = match memory {
        Some(memory) => columns.memory(Arc::new(memory)),
        None => columns,
    };
    let loader = Loader::builder(dataset).threads(threads).batch(20).collate(columns).build()?;
    let batches = loader.epochs(0).take(60).collect::<shardstream::Result<Vec<TensorBatch>>>()?;
    Ok(batches.iter().flat_map(|batch| batch["label"].as_slice::<i32>().unwrap().to_vec()).collect())
}

#[test]
fn a_loader_gives_the_same_batches_in_pinned_memory_and_unpins_all_of_it() {
    let (driver, directory) = (FakeDriver::new(), tempfile::tempdir().unwrap());
    let pattern = shards(&directory);
    let device = driver.open();
    for threads in [0, 3] {
        let memory = PinnedMemory::new(&device);
        let pinned = labels(&pattern, Some(memory.clone()), threads).unwrap();
        assert_eq!(pinned, labels(&pattern, None, threads).unwrap());
        // The loader's threads may hold memory of a batch for a moment after the loader is dropped.
        while memory.bytes() > 0 {
            thread::yield_now();
        }
        assert_eq!(driver.report().registered, 0);
    }
    // `labels` holds 60 batches at a time, so none of these batches could reuse the memory of another batch.
    assert!(driver.report().registrations > 60);
}

#[test]
fn later_batches_reuse_pinned_memory() {
    let (driver, directory) = (FakeDriver::new(), tempfile::tempdir().unwrap());
    let memory = PinnedMemory::new(&driver.open());
    let dataset = Dataset::builder(shards(&directory)).build().unwrap();
    let loader = Loader::builder(dataset).threads(0).batch(20).collate(columns(&memory)).build().unwrap();
    for batch in loader.epochs(0).take(100) {
        assert!(driver.is_pinned(batch.unwrap()["label"].as_bytes()));
    }
    assert!(driver.report().registrations < 20, "{:?}", driver.report());
}

#[test]
fn memory_that_cannot_be_pinned_is_an_error_that_says_what_to_do() {
    let (driver, directory) = (FakeDriver::new(), tempfile::tempdir().unwrap());
    let device = driver.open();
    driver.fail("cuMemHostRegister", 2);
    for threads in [0, 3] {
        let error = labels(&shards(&directory), Some(PinnedMemory::new(&device)), threads).unwrap_err();
        let error = error.to_string();
        for part in ["65536 bytes", "CUDA_ERROR_OUT_OF_MEMORY", "ulimit -l", "PinnedMemory::optional"] {
            assert!(error.contains(part), "{error}");
        }
    }
    let pin = |memory: PinnedMemory| memory.pin(&[0; 1000]).err().unwrap();
    let error = pin(PinnedMemory::new(&device));
    let locked = error.downcast_ref().unwrap();
    assert!(matches!(locked, CudaError::LockedMemory { bytes: 1000, pinned: 0, .. }), "{locked}");
    driver.fail("cuMemHostRegister", 700);
    let error = pin(PinnedMemory::new(&device)).to_string();
    let expected = "cuMemHostRegister: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)";
    assert_eq!(error, expected);
    assert_eq!(driver.report().registrations, 0);
}

#[test]
fn optional_memory_is_ordinary_if_pinning_fails() {
    let (driver, directory) = (FakeDriver::new(), tempfile::tempdir().unwrap());
    let memory = PinnedMemory::new(&driver.open()).optional();
    driver.fail("cuMemHostRegister", 2);
    let pattern = shards(&directory);
    assert_eq!(labels(&pattern, Some(memory.clone()), 2).unwrap(), labels(&pattern, None, 2).unwrap());
    assert_eq!(memory.bytes(), 0);
}

#[test]
fn a_missing_driver_or_device_is_a_typed_error() {
    let error = open_with("no/such/libcuda.so.1", 0).unwrap_err();
    assert!(matches!(error, CudaError::NoDriver { .. }), "{error}");
    #[cfg(target_os = "linux")]
    {
        let error = open_with("libc.so.6", 0).unwrap_err();
        assert!(matches!(error, CudaError::NotADriver { function: "cuInit", .. }), "{error}");
    }
    let driver = FakeDriver::new();
    for ordinal in [2, usize::MAX] {
        let error = open_with(&driver.path, ordinal).unwrap_err();
        assert!(matches!(error, CudaError::NoDevice { present: 2, .. }), "{error}");
    }
    driver.fail("cuInit", 100);
    let error = open_with(&driver.path, 0).unwrap_err();
    assert!(matches!(error, CudaError::NoDevice { present: 0, .. }), "{error}");
    driver.fail("cuInit", 3);
    let error = open_with(&driver.path, 0).unwrap_err();
    assert_eq!(error.to_string(), "cuInit: the driver has no text (error 3)");
    assert_eq!(driver.report().contexts, 0);
}

/// Adds 1 to the number when this value is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_value_in_flight_is_kept_until_the_work_of_the_stream_has_ended() {
    let (driver, dropped) = (FakeDriver::new(), Arc::new(AtomicUsize::new(0)));
    let device = driver.open();
    driver.set_work_done(false);
    let held = in_flight(&device, Counted(dropped.clone())).unwrap();
    assert!(!held.is_done().unwrap());
    let (begun, has_begun) = mpsc::channel();
    let other = thread::spawn(move || {
        begun.send(()).unwrap();
        drop(held);
    });
    has_begun.recv().unwrap();
    assert_eq!(dropped.load(SeqCst), 0);
    driver.set_work_done(true);
    other.join().unwrap();
    assert_eq!(dropped.load(SeqCst), 1);
    let held = in_flight(&device, Counted(dropped.clone())).unwrap();
    assert!(held.is_done().unwrap());
    drop(held.wait().unwrap());
    assert_eq!((dropped.load(SeqCst), driver.report().events), (2, 0));
}

#[test]
fn a_value_that_the_device_may_still_read_is_never_dropped() {
    let (driver, dropped) = (FakeDriver::new(), Arc::new(AtomicUsize::new(0)));
    let device = driver.open();
    // If no event can be recorded, `in_flight` waits for the whole stream, and then drops the value.
    driver.fail("cuEventRecord", 700);
    assert!(in_flight(&device, Counted(dropped.clone())).is_err());
    assert_eq!(dropped.load(SeqCst), 1);
    driver.fail("cuStreamSynchronize", 700);
    assert!(in_flight(&device, Counted(dropped.clone())).is_err());
    driver.fail("cuEventRecord", 0);
    driver.fail("cuEventSynchronize", 700);
    assert!(in_flight(&device, Counted(dropped.clone())).unwrap().wait().is_err());
    drop(in_flight(&device, Counted(dropped.clone())).unwrap());
    assert_eq!((dropped.load(SeqCst), driver.report().events), (1, 0));
}
