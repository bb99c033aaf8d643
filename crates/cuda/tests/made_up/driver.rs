//! A fake CUDA driver with two devices, built by the tests. It records which memory is registered, and
//! refuses the calls that the real driver refuses. The work of streams ends when a test calls `made_up_work`.
#![allow(unsafe_code, non_snake_case, clippy::missing_safety_doc)]

mod report;

use report::Report;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Condvar, Mutex, MutexGuard};

const INVALID_VALUE: c_int = 1;
const NOT_INITIALIZED: c_int = 3;
const INVALID_CONTEXT: c_int = 201;
const INVALID_HANDLE: c_int = 400;
const NOT_READY: c_int = 600;
const ALREADY_REGISTERED: c_int = 712;
const NOT_REGISTERED: c_int = 713;

struct Driver {
    initialised: bool,
    report: Report,
    /// Address and length of each pinned range.
    pinned: BTreeMap<usize, usize>,
    /// Whether the work of all streams has ended.
    is_done: bool,
    /// Error codes by function name: each of these functions fails with its code.
    failures: BTreeMap<String, c_int>,
}

static DRIVER: Mutex<Driver> = Mutex::new(Driver {
    initialised: false,
    report: Report { registered: 0, registrations: 0, contexts: 0, events: 0, depth: 0, misuses: 0 },
    pinned: BTreeMap::new(),
    is_done: true,
    failures: BTreeMap::new(),
});
static DONE: Condvar = Condvar::new();

thread_local! {
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn lock() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap()
}

fn misused(driver: &mut Driver, code: c_int) -> c_int {
    driver.report.misuses += 1;
    code
}

/// Begins a call that needs a context. Fails with the error code that a test has set for the call, if any.
fn begin(call: &str) -> Result<MutexGuard<'static, Driver>, c_int> {
    let mut driver = lock();
    if !driver.initialised {
        return Err(misused(&mut driver, NOT_INITIALIZED));
    }
    if CURRENT.with_borrow(Vec::is_empty) {
        return Err(misused(&mut driver, INVALID_CONTEXT));
    }
    match driver.failures.get(call) {
        Some(code) => Err(*code),
        None => Ok(driver),
    }
}

fn end(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|code| code)
}

/// Makes all calls of a function fail with `code`, or succeed again if `code` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn made_up_fail(call: *const c_char, code: c_int) {
    let call = unsafe { CStr::from_ptr(call) }.to_str().unwrap().to_owned();
    if code == 0 { lock().failures.remove(&call) } else { lock().failures.insert(call, code) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn made_up_report(report: *mut Report) {
    let driver = lock();
    let depth = CURRENT.with_borrow(Vec::len);
    unsafe { *report = Report { registered: driver.pinned.len(), depth, ..driver.report } };
}

/// Whether the bytes are pinned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn made_up_is_pinned(begin: *const c_void, bytes: usize) -> c_int {
    let begin = begin.addr();
    let driver = lock();
    let range = driver.pinned.range(..=begin).next_back();
    c_int::from(range.is_some_and(|(first, length)| begin + bytes <= first + length))
}

/// Sets whether the work of all streams has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn made_up_work(is_done: c_int) {
    lock().is_done = is_done != 0;
    DONE.notify_all();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(_: c_uint) -> c_int {
    let mut driver = lock();
    if let Some(code) = driver.failures.get("cuInit") {
        return *code;
    }
    driver.initialised = true;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int {
    let name = match code {
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        100 => c"CUDA_ERROR_NO_DEVICE",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        _ => return INVALID_VALUE,
    };
    unsafe { *text = name.as_ptr() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    if code != 700 {
        return INVALID_VALUE;
    }
    unsafe { *text = c"an illegal memory access was encountered".as_ptr() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    unsafe { *count = 2 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    unsafe { *device = ordinal };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int {
    unsafe { *context = std::ptr::without_provenance_mut(0x1000 + device as usize) };
    lock().report.contexts += 1;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> c_int {
    lock().report.contexts -= 1;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> c_int {
    let mut driver = lock();
    if driver.report.contexts < 1 || !(0x1000..0x1002).contains(&context.addr()) {
        return misused(&mut driver, INVALID_CONTEXT);
    }
    CURRENT.with_borrow_mut(|current| current.push(context.addr()));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(_: *mut *mut c_void) -> c_int {
    match CURRENT.with_borrow_mut(Vec::pop) {
        Some(_) => 0,
        None => misused(&mut lock(), INVALID_CONTEXT),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(memory: *mut c_void, bytes: usize, _: c_uint) -> c_int {
    end(begin("cuMemHostRegister").map(|mut driver| {
        let (first, next) = (memory.addr(), memory.addr() + bytes);
        if bytes == 0 {
            return misused(&mut driver, INVALID_VALUE);
        }
        if driver.pinned.iter().any(|(begin, length)| *begin < next && first < begin + length) {
            return misused(&mut driver, ALREADY_REGISTERED);
        }
        driver.report.registrations += 1;
        driver.pinned.insert(first, bytes);
        0
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(memory: *mut c_void) -> c_int {
    end(begin("cuMemHostUnregister").map(|mut driver| match driver.pinned.remove(&memory.addr()) {
        Some(_) => 0,
        None => misused(&mut driver, NOT_REGISTERED),
    }))
}

/// Waits until the work of all streams has ended.
fn wait(driver: MutexGuard<'static, Driver>) -> c_int {
    drop(DONE.wait_while(driver, |driver| !driver.is_done).unwrap());
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(_: *mut c_void) -> c_int {
    end(begin("cuStreamSynchronize").map(wait))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _: c_uint) -> c_int {
    end(begin("cuEventCreate").map(|mut driver| {
        driver.report.events += 1;
        unsafe { *event = std::ptr::without_provenance_mut(0x2000) };
        0
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, _: *mut c_void) -> c_int {
    end(begin("cuEventRecord").map(|mut driver| match event.addr() {
        0x2000 => 0,
        _ => misused(&mut driver, INVALID_HANDLE),
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(_: *mut c_void) -> c_int {
    end(begin("cuEventQuery").map(|driver| if driver.is_done { 0 } else { NOT_READY }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(_: *mut c_void) -> c_int {
    end(begin("cuEventSynchronize").map(wait))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(_: *mut c_void) -> c_int {
    end(begin("cuEventDestroy").map(|mut driver| {
        driver.report.events -= 1;
        0
    }))
}
