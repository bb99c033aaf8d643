//! The plugin's profiler, which records the work of the devices.
//!
//! The C structs are from `xla/pjrt/c/pjrt_c_api_profiler_extension.h` (version 1) and
//! `xla/backends/profiler/plugin/profiler_c_api.h`.

#[cfg(test)]
mod tests;

use super::abi::{non_null, slice, text};
use super::error::{Code, PjrtError};
use super::plugin::Plugin;
use super::protobuf::Message;
use super::sys;
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::{NonNull, null, null_mut};
use std::time::SystemTime;

/// The profiler extension of the plugin's table.
#[repr(C)]
struct ProfilerExtension {
    base: sys::PJRT_Extension_Base,
    api: *const ProfilerApi,
}

/// `PLUGIN_Profiler_Api`.
#[repr(C)]
struct ProfilerApi {
    struct_size: usize,
    private: *mut c_void,
    error_destroy: Option<unsafe extern "C" fn(*mut ErrorDestroyArgs)>,
    error_message: Option<unsafe extern "C" fn(*mut ErrorMessageArgs)>,
    error_get_code: Option<unsafe extern "C" fn(*mut ErrorGetCodeArgs) -> *mut c_void>,
    create: Option<ProfilerFunction<CreateArgs>>,
    destroy: Option<ProfilerFunction<ProfilerArgs>>,
    start: Option<ProfilerFunction<ProfilerArgs>>,
    stop: Option<ProfilerFunction<ProfilerArgs>>,
    collect_data: Option<ProfilerFunction<CollectDataArgs>>,
}

/// Returns null or an error.
type ProfilerFunction<T> = unsafe extern "C" fn(*mut T) -> *mut c_void;

#[repr(C)]
struct ErrorDestroyArgs {
    struct_size: usize,
    private: *mut c_void,
    error: *mut c_void,
}

#[repr(C)]
struct ErrorMessageArgs {
    struct_size: usize,
    private: *mut c_void,
    error: *const c_void,
    message: *const c_char,
    message_size: usize,
}

#[repr(C)]
struct ErrorGetCodeArgs {
    struct_size: usize,
    private: *mut c_void,
    error: *const c_void,
    code: c_int,
}

#[repr(C)]
struct CreateArgs {
    struct_size: usize,
    options: *const c_char,
    options_size: usize,
    profiler: *mut c_void,
}

/// The arguments of `start`, `stop` and `destroy`.
#[repr(C)]
struct ProfilerArgs {
    struct_size: usize,
    profiler: *mut c_void,
}

#[repr(C)]
struct CollectDataArgs {
    struct_size: usize,
    profiler: *mut c_void,
    buffer: *mut u8,
    buffer_size: usize,
}

/// A running recording of the work of a plugin's devices. [`Plugin::start_profiler`] starts it, and
/// [`stop`](Self::stop) ends it.
///
/// Dropping a profiler discards its recording.
#[derive(Debug)]
pub struct Profiler {
    api: &'static ProfilerApi,
    profiler: NonNull<c_void>,
    is_running: bool,
}

// SAFETY: the plugin's profiler may be used from any thread, and two threads never use it at the same time:
// the type is not `Sync`.
unsafe impl Send for Profiler {}

impl Plugin {
    /// Whether the plugin has a profiler, so that [`start_profiler`](Self::start_profiler) can succeed.
    pub fn has_profiler(&self) -> bool {
        self.profiler_api().is_some()
    }

    fn profiler_api(&self) -> Option<&'static ProfilerApi> {
        let wanted = sys::PJRT_Extension_Type::PJRT_Extension_Type_Profiler;
        let extension = self.extension(wanted)?;
        // SAFETY: an extension of this type has these fields, and it lives as long as the process.
        let api = unsafe { (*extension.cast::<ProfilerExtension>().as_ptr()).api.as_ref() }?;
        if api.struct_size < size_of::<ProfilerApi>() {
            return None;
        }
        Some(api)
    }

    /// Starts to record programs on the devices, transfers, and the plugin's work on the host. The recording
    /// covers all clients of the plugin. A plugin makes one recording at a time.
    ///
    /// # Errors
    ///
    /// [`PjrtError::Missing`] if the plugin has no profiler.
    pub fn start_profiler(&self) -> Result<Profiler, PjrtError> {
        let api = self.profiler_api().ok_or(PjrtError::Missing { call: "PJRT_Profiler_Extension" })?;
        let options = options();
        let mut create = CreateArgs {
            struct_size: size_of::<CreateArgs>(),
            options: options.as_ptr().cast(),
            options_size: options.len(),
            profiler: null_mut(),
        };
        // SAFETY: the options are read during the call.
        unsafe { api.call("PLUGIN_Profiler_Create", api.create, &mut create) }?;
        let profiler = non_null(create.profiler, "PLUGIN_Profiler_Create")?;
        let mut profiler = Profiler { api, profiler, is_running: false };
        profiler.call("PLUGIN_Profiler_Start", api.start)?;
        profiler.is_running = true;
        Ok(profiler)
    }
}

impl Profiler {
    /// Ends the recording and returns it: an `XSpace` of `tsl/profiler/protobuf/xplane.proto`, which XProf
    /// and TensorBoard read from a file `NAME.xplane.pb`.
    pub fn stop(mut self) -> Result<Vec<u8>, PjrtError> {
        self.is_running = false;
        self.call("PLUGIN_Profiler_Stop", self.api.stop)?;
        let mut data = CollectDataArgs {
            struct_size: size_of::<CollectDataArgs>(),
            profiler: self.profiler.as_ptr(),
            buffer: null_mut(),
            buffer_size: 0,
        };
        // SAFETY: the profiler was stopped; since the buffer is null, the plugin sets the size.
        unsafe { self.api.call("PLUGIN_Profiler_CollectData", self.api.collect_data, &mut data) }?;
        let recording = if data.buffer.is_null() && data.buffer_size > 0 {
            let mut bytes = vec![0; data.buffer_size];
            data.buffer = bytes.as_mut_ptr();
            // SAFETY: the buffer has the size that the plugin has set.
            unsafe { self.api.call("PLUGIN_Profiler_CollectData", self.api.collect_data, &mut data) }?;
            bytes
        } else {
            // XLA sets `buffer` to a buffer of its own, and never writes into the caller's buffer. SAFETY:
            // the buffer lives as long as the profiler.
            unsafe { slice(data.buffer, data.buffer_size) }.to_vec()
        };
        Ok(without_padding(recording))
    }

    fn call(
        &self,
        name: &'static str,
        function: Option<ProfilerFunction<ProfilerArgs>>,
    ) -> Result<(), PjrtError> {
        let mut args =
            ProfilerArgs { struct_size: size_of::<ProfilerArgs>(), profiler: self.profiler.as_ptr() };
        // SAFETY: the profiler is alive.
        unsafe { self.api.call(name, function, &mut args) }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if self.is_running {
            let _ = self.call("PLUGIN_Profiler_Stop", self.api.stop);
        }
        let _ = self.call("PLUGIN_Profiler_Destroy", self.api.destroy);
    }
}

impl std::fmt::Debug for ProfilerApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfilerApi").finish_non_exhaustive()
    }
}

impl ProfilerApi {
    /// Calls a function of this table.
    ///
    /// # Safety
    ///
    /// The pointers in `args` meet the function's contract in the header.
    unsafe fn call<T>(
        &self,
        call: &'static str,
        function: Option<ProfilerFunction<T>>,
        args: &mut T,
    ) -> Result<(), PjrtError> {
        let function = function.ok_or(PjrtError::Missing { call })?;
        // SAFETY: the pointers in `args` meet the function's contract, as the caller promises.
        match NonNull::new(unsafe { function(args) }) {
            None => Ok(()),
            Some(error) => Err(self.take_error(call, error)),
        }
    }

    /// Converts an error of the profiler to a [`PjrtError`] and destroys it.
    fn take_error(&self, call: &'static str, error: NonNull<c_void>) -> PjrtError {
        let error = error.as_ptr();
        let mut code = ErrorGetCodeArgs {
            // The C header defines this size without the padding after the last field.
            struct_size: offset_of!(ErrorGetCodeArgs, code) + size_of::<c_int>(),
            private: null_mut(),
            error,
            code: Code::INTERNAL.0 as c_int,
        };
        let mut message = ErrorMessageArgs {
            struct_size: size_of::<ErrorMessageArgs>(),
            private: null_mut(),
            error,
            message: null(),
            message_size: 0,
        };
        let mut destroy =
            ErrorDestroyArgs { struct_size: size_of::<ErrorDestroyArgs>(), private: null_mut(), error };
        // SAFETY: the message is copied before the error is destroyed.
        unsafe {
            if let Some(get_code) = self.error_get_code {
                get_code(&mut code);
            }
            if let Some(get_message) = self.error_message {
                get_message(&mut message);
            }
            let message = text(message.message, message.message_size);
            if let Some(free) = self.error_destroy {
                free(&mut destroy);
            }
            PjrtError::Call { call, code: Code(code.code.unsigned_abs()), message }
        }
    }
}

/// Encodes `tensorflow.ProfileOptions` of `tsl/profiler/protobuf/profiler_options.proto`.
fn options() -> Vec<u8> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut options = Message::default();
    options.int(2, 2); // host_tracer_level
    options.int(3, 1); // device_tracer_level
    options.int(5, 1); // version
    options.int(7, 1); // enable_hlo_proto
    options.int(8, now.as_nanos() as i64); // start_timestamp_ns
    options.into_bytes()
}

/// Removes the zero byte after the message in XLA's buffer, since strict readers of protocol buffers refuse
/// it. The fields of an `XSpace` are all length-delimited: skipping from field to field finds the end of the
/// message. Bytes that are not such a message are returned unchanged.
fn without_padding(mut bytes: Vec<u8>) -> Vec<u8> {
    fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.get(*at)?;
            *at += 1;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }
    fn end(bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && bytes[at] != 0 {
            let is_bytes = varint(bytes, &mut at)? & 7 == 2;
            let length = usize::try_from(varint(bytes, &mut at)?).ok()?;
            at = at.checked_add(length).filter(|at| is_bytes && *at <= bytes.len())?;
        }
        Some(at)
    }
    if let Some(end) = end(&bytes).filter(|end| end + 1 == bytes.len()) {
        bytes.truncate(end);
    }
    bytes
}
