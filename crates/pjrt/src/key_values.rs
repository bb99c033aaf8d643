//! The key-value store through which the plugins of a job's processes exchange addresses.

use super::error::{Code, PjrtError};
use super::sys;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A key-value store that the processes of a job share. The plugin may call the store from any thread at any
/// time while the client lives, because it creates communicators only when a program first runs.
pub trait KeyValues: Send + Sync {
    /// Stores a value.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), KeyValueError>;

    /// Waits until the key has a value, and returns it. After `timeout`, returns an error.
    fn get(&self, key: &[u8], timeout: Duration) -> Result<Vec<u8>, KeyValueError>;

    /// The value of the key, if it has one now.
    fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KeyValueError>;
}

/// Why a value could not be stored or read.
#[derive(Debug)]
pub struct KeyValueError {
    /// The code that the plugin gets.
    pub code: Code,
    /// The error that [`Plugin::client_of_job`](crate::Plugin::client_of_job) returns.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The user argument of the callbacks.
pub(super) struct CallbackStore {
    values: Arc<dyn KeyValues>,
    /// The first error of the store. The plugin's own error has fewer details.
    failed: Mutex<Option<KeyValueError>>,
}

impl CallbackStore {
    pub(super) fn new(values: Arc<dyn KeyValues>) -> Box<Self> {
        Box::new(Self { values, failed: Mutex::default() })
    }

    /// Sets the callbacks in the arguments.
    ///
    /// # Safety
    ///
    /// The store outlives the client that is created with these arguments.
    pub(super) unsafe fn set_callbacks(&self, args: &mut sys::PJRT_Client_Create_Args) {
        let this = ptr::from_ref(self).cast_mut().cast();
        args.kv_get_callback = Some(get);
        args.kv_get_user_arg = this;
        args.kv_try_get_callback = Some(try_get);
        args.kv_try_get_user_arg = this;
        args.kv_put_callback = Some(put);
        args.kv_put_user_arg = this;
    }

    /// Returns the store's error if there is one, since it caused the plugin's `error`.
    pub(super) fn explain(&self, error: PjrtError) -> PjrtError {
        match (error, self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()) {
            (PjrtError::Call { call, .. }, Some(KeyValueError { source, .. })) => {
                PjrtError::Join { call, source }
            }
            (error, _) => error,
        }
    }

    /// Runs a callback, and returns its error to the plugin.
    ///
    /// # Safety
    ///
    /// `user_arg` is the argument that [`set_callbacks`](Self::set_callbacks) has set, and `callback_error`
    /// is null or a function of the plugin.
    unsafe fn answer(
        user_arg: *mut c_void,
        callback_error: *mut sys::PJRT_CallbackError,
        may_fail: bool,
        callback: impl FnOnce(&dyn KeyValues) -> Result<(), KeyValueError>,
    ) -> *mut sys::PJRT_Error {
        // SAFETY: `user_arg` points to a `CallbackStore`, as the caller promises. The store is alive as long
        // as the client is.
        let store = unsafe { &*user_arg.cast::<Self>() };
        // A panic must not unwind into the caller, which is C++.
        let error = match catch_unwind(AssertUnwindSafe(|| callback(&*store.values))) {
            Ok(Ok(())) => return null_mut(),
            Ok(Err(error)) => error,
            Err(panic) => {
                std::mem::forget(panic);
                KeyValueError { code: Code::INTERNAL, source: "a panic in the key-value store".into() }
            }
        };
        let message = error.source.to_string();
        // SAFETY: `callback_error` is null or points to a function of the plugin. That function copies the
        // message.
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

/// Size of the header before each value. The header holds the length of the value, since the plugin passes
/// only the pointer to [`delete`].
const HEADER: usize = size_of::<usize>();

fn layout(length: usize) -> Option<Layout> {
    Layout::from_size_align(HEADER.checked_add(length)?, align_of::<usize>()).ok()
}

/// Copies a value into memory that the plugin frees with [`delete`].
fn hand_over(value: &[u8]) -> Result<*mut c_char, KeyValueError> {
    let out_of_memory = || KeyValueError { code: Code::RESOURCE_EXHAUSTED, source: "out of memory".into() };
    let layout = layout(value.len()).ok_or_else(out_of_memory)?;
    // SAFETY: the size of the layout is not 0, since it includes the header. The header and the value fit
    // into the allocated memory.
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

/// Frees a copy that [`hand_over`] made.
///
/// # Safety
///
/// `value` is null or was returned by [`hand_over`], and is not used afterwards.
unsafe extern "C" fn delete(value: *mut c_char) {
    if value.is_null() {
        return;
    }
    // SAFETY: `hand_over` made `value`, as the caller promises. The header with the length precedes the
    // value.
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
    // SAFETY: the caller promises what `slice` requires.
    unsafe { super::abi::slice(start.cast(), length) }
}

unsafe extern "C" fn put(args: *mut sys::PJRT_KeyValuePutCallback_Args) -> *mut sys::PJRT_Error {
    // SAFETY: `args` are the plugin's arguments; their key and value live during the call.
    unsafe {
        let args = &*args;
        let (key, value) = (bytes(args.key, args.key_size), bytes(args.value, args.value_size));
        CallbackStore::answer(args.user_arg, args.callback_error, false, |values| values.put(key, value))
    }
}

unsafe extern "C" fn get(args: *mut sys::PJRT_KeyValueGetCallback_Args) -> *mut sys::PJRT_Error {
    // SAFETY: `args` are the plugin's arguments, which nobody else uses during the call; their key lives
    // during the call.
    unsafe {
        let args = &mut *args;
        let key = bytes(args.key, args.key_size);
        let timeout = Duration::from_millis(u64::try_from(args.timeout_in_ms).unwrap_or(0));
        CallbackStore::answer(args.user_arg, args.callback_error, false, |values| {
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
        // A missing value is not a failure of the store.
        CallbackStore::answer(args.user_arg, args.callback_error, true, |values| {
            let value = values.try_get(key)?.ok_or_else(|| not_found(key))?;
            args.value = hand_over(&value)?;
            args.value_size = value.len();
            args.value_deleter_callback = Some(delete);
            Ok(())
        })
    }
}

fn not_found(key: &[u8]) -> KeyValueError {
    let what = format!("the key {:?} has no value", String::from_utf8_lossy(key));
    KeyValueError { code: Code::NOT_FOUND, source: what.into() }
}
