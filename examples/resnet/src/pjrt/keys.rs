//! The key-value store by which a plugin joins the processes of a job.

use super::error::{Code, Error};
use super::sys;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Values that the processes of a job put for each other. Called from any thread of the plugin, and as long
/// as its client lives: communicators are made when a program first runs.
pub trait KeyValues: Send + Sync {
    /// Puts a value.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), KeyValueError>;

    /// Waits until a value is there.
    fn get(&self, key: &[u8], timeout: Duration) -> Result<Vec<u8>, KeyValueError>;

    /// The value, if it is there.
    fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KeyValueError>;
}

/// Why a value could not be put or had.
#[derive(Debug)]
pub struct KeyValueError {
    /// For the plugin.
    pub code: Code,
    /// For whoever opens the devices.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What the callbacks get as their argument.
pub(super) struct Store {
    values: Arc<dyn KeyValues>,
    /// The first error, which is more than the plugin can tell of it.
    failed: Mutex<Option<KeyValueError>>,
}

impl Store {
    pub(super) fn new(values: Arc<dyn KeyValues>) -> Box<Self> {
        Box::new(Self { values, failed: Mutex::default() })
    }

    /// Sets the callbacks.
    ///
    /// # Safety
    ///
    /// The store outlives the client that is made of these arguments.
    pub(super) unsafe fn offer(&self, args: &mut sys::PJRT_Client_Create_Args) {
        let this = ptr::from_ref(self).cast_mut().cast();
        args.kv_get_callback = Some(get);
        args.kv_get_user_arg = this;
        args.kv_try_get_callback = Some(try_get);
        args.kv_try_get_user_arg = this;
        args.kv_put_callback = Some(put);
        args.kv_put_user_arg = this;
    }

    /// Why the plugin could not open its devices, if a value was the reason.
    pub(super) fn explain(&self, error: Error) -> Error {
        match (error, self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()) {
            (Error::Call { call, .. }, Some(KeyValueError { source, .. })) => Error::Join { call, source },
            (error, _) => error,
        }
    }

    /// Runs a callback; the error that it returns to the plugin.
    ///
    /// # Safety
    ///
    /// `user_arg` is that of [`offer`](Self::offer), and `callback_error` null or a function of the plugin.
    unsafe fn answer(
        user_arg: *mut c_void,
        callback_error: *mut sys::PJRT_CallbackError,
        may_fail: bool,
        callback: impl FnOnce(&dyn KeyValues) -> Result<(), KeyValueError>,
    ) -> *mut sys::PJRT_Error {
        // SAFETY: the caller's promise; the store is alive as long as the client is.
        let store = unsafe { &*user_arg.cast::<Self>() };
        // The caller is C++, through which no panic may pass.
        let error = match catch_unwind(AssertUnwindSafe(|| callback(&*store.values))) {
            Ok(Ok(())) => return null_mut(),
            Ok(Err(error)) => error,
            Err(panic) => {
                std::mem::forget(panic);
                KeyValueError { code: Code::INTERNAL, source: "a panic in the key-value store".into() }
            }
        };
        let message = error.source.to_string();
        // SAFETY: null or a function of the plugin, which copies the message.
        let raised = unsafe {
            callback_error.as_ref().copied().flatten().map_or(null_mut(), |raise| {
                raise(sys::PJRT_Error_Code(error.code.0), message.as_ptr().cast(), message.len())
            })
        };
        if !may_fail {
            store.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        raised
    }
}

/// Before the value, its length, since the plugin gives back no more than the pointer.
const HEADER: usize = size_of::<usize>();

fn layout(length: usize) -> Option<Layout> {
    Layout::from_size_align(HEADER.checked_add(length)?, align_of::<usize>()).ok()
}

/// A copy of a value that the plugin deletes with [`delete`].
fn hand_over(value: &[u8]) -> Result<*mut c_char, KeyValueError> {
    let out_of_memory = || KeyValueError { code: Code::RESOURCE_EXHAUSTED, source: "out of memory".into() };
    let layout = layout(value.len()).ok_or_else(out_of_memory)?;
    // SAFETY: the layout has at least the size of the header, which is not 0; both parts are written within
    // it.
    unsafe {
        let memory = alloc(layout);
        if memory.is_null() {
            return Err(out_of_memory());
        }
        memory.cast::<usize>().write(value.len());
        let copy = memory.add(HEADER);
        ptr::copy_nonoverlapping(value.as_ptr(), copy, value.len());
        Ok(copy.cast())
    }
}

/// Frees what [`hand_over`] has given.
///
/// # Safety
///
/// `value` is null or comes from there, and is not used afterwards.
unsafe extern "C" fn delete(value: *mut c_char) {
    if value.is_null() {
        return;
    }
    // SAFETY: the caller's promise: the length is before the value, and the memory has this layout.
    unsafe {
        let memory = value.cast::<u8>().sub(HEADER);
        if let Some(layout) = layout(memory.cast::<usize>().read()) {
            dealloc(memory, layout);
        }
    }
}

/// # Safety
///
/// `start` is null or points to `length` bytes that live during the call.
unsafe fn bytes<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { super::abi::slice(start.cast(), length) }
}

unsafe extern "C" fn put(args: *mut sys::PJRT_KeyValuePutCallback_Args) -> *mut sys::PJRT_Error {
    // SAFETY: the plugin's arguments, of which key and value live during the call.
    unsafe {
        let args = &*args;
        let (key, value) = (bytes(args.key, args.key_size), bytes(args.value, args.value_size));
        Store::answer(args.user_arg, args.callback_error, false, |values| values.put(key, value))
    }
}

unsafe extern "C" fn get(args: *mut sys::PJRT_KeyValueGetCallback_Args) -> *mut sys::PJRT_Error {
    // SAFETY: the plugin's arguments, of which the key lives during the call, and of which this is the only
    // user.
    unsafe {
        let args = &mut *args;
        let key = bytes(args.key, args.key_size);
        let timeout = Duration::from_millis(u64::try_from(args.timeout_in_ms).unwrap_or(0));
        Store::answer(args.user_arg, args.callback_error, false, |values| {
            let value = values.get(key, timeout)?;
            args.value = hand_over(&value)?;
            args.value_size = value.len();
            args.value_deleter_callback = Some(delete);
            Ok(())
        })
    }
}

unsafe extern "C" fn try_get(args: *mut sys::PJRT_KeyValueTryGetCallback_Args) -> *mut sys::PJRT_Error {
    // SAFETY: as for `get`.
    unsafe {
        let args = &mut *args;
        let key = bytes(args.key, args.key_size);
        // That a value is not there is an answer like any other.
        Store::answer(args.user_arg, args.callback_error, true, |values| {
            let value = values.try_get(key)?.ok_or_else(|| not_found(key))?;
            args.value = hand_over(&value)?;
            args.value_size = value.len();
            args.value_deleter_callback = Some(delete);
            Ok(())
        })
    }
}

fn not_found(key: &[u8]) -> KeyValueError {
    let what = format!("the key {:?} is not there", String::from_utf8_lossy(key));
    KeyValueError { code: Code::NOT_FOUND, source: what.into() }
}
