//! The plugin's profiler: what the devices do, recorded by the plugin.
//!
//! The structs are those of `xla/pjrt/c/pjrt_c_api_profiler_extension.h` (version 1) and
//! `xla/backends/profiler/plugin/profiler_c_api.h`.

use super::abi::{given, slice, text};
use super::error::{Code, Error, Result};
use super::plugin::Plugin;
use super::sys;
use crate::protobuf::Message;
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::{NonNull, null, null_mut};
use std::time::SystemTime;

/// The extension of the plugin's table.
#[repr(C)]
struct Extension {
    base: sys::PJRT_Extension_Base,
    api: *const Api,
}

/// `PLUGIN_Profiler_Api`.
#[repr(C)]
struct Api {
    struct_size: usize,
    private: *mut c_void,
    error_destroy: Option<unsafe extern "C" fn(*mut ErrorDestroy)>,
    error_message: Option<unsafe extern "C" fn(*mut ErrorMessage)>,
    error_get_code: Option<unsafe extern "C" fn(*mut ErrorGetCode) -> *mut c_void>,
    create: Option<Function<Create>>,
    destroy: Option<Function<OfProfiler>>,
    start: Option<Function<OfProfiler>>,
    stop: Option<Function<OfProfiler>>,
    collect_data: Option<Function<CollectData>>,
}

/// Returns null or an error.
type Function<T> = unsafe extern "C" fn(*mut T) -> *mut c_void;

#[repr(C)]
struct ErrorDestroy {
    struct_size: usize,
    private: *mut c_void,
    error: *mut c_void,
}

#[repr(C)]
struct ErrorMessage {
    struct_size: usize,
    private: *mut c_void,
    error: *const c_void,
    message: *const c_char,
    message_size: usize,
}

#[repr(C)]
struct ErrorGetCode {
    struct_size: usize,
    private: *mut c_void,
    error: *const c_void,
    code: c_int,
}

#[repr(C)]
struct Create {
    struct_size: usize,
    options: *const c_char,
    options_size: usize,
    profiler: *mut c_void,
}

/// The arguments of `start`, `stop` and `destroy`.
#[repr(C)]
struct OfProfiler {
    struct_size: usize,
    profiler: *mut c_void,
}

#[repr(C)]
struct CollectData {
    struct_size: usize,
    profiler: *mut c_void,
    buffer: *mut u8,
    buffer_size: usize,
}

/// A recording of what the devices of a plugin do, from [`Plugin::start_profiler`] to [`stop`](Self::stop).
///
/// Dropping it discards the recording.
#[derive(Debug)]
pub struct Profiler {
    api: &'static Api,
    profiler: NonNull<c_void>,
    is_running: bool,
}

// SAFETY: the plugin's profiler belongs to no thread, and is used through a unique reference alone.
unsafe impl Send for Profiler {}

impl Plugin {
    /// Whether the plugin has a profiler, so that [`start_profiler`](Self::start_profiler) can succeed.
    pub fn has_profiler(&self) -> bool {
        self.profiler_api().is_some()
    }

    fn profiler_api(&self) -> Option<&'static Api> {
        let wanted = sys::PJRT_Extension_Type::PJRT_Extension_Type_Profiler;
        let extension = self.extension(wanted)?;
        // SAFETY: an extension of this type has these fields, and it lives as long as the process.
        let api = unsafe { (*extension.cast::<Extension>().as_ptr()).api.as_ref() }?;
        (api.struct_size >= size_of::<Api>()).then_some(api)
    }

    /// Starts to record: the programs that run on the devices, transfers, and what the plugin does on the
    /// host. It records for all clients of the plugin, and makes one recording at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] for a plugin without a profiler.
    pub fn start_profiler(&self) -> Result<Profiler> {
        let api = self.profiler_api().ok_or(Error::Missing { call: "PJRT_Profiler_Extension" })?;
        let options = options();
        let mut create = Create {
            struct_size: size_of::<Create>(),
            options: options.as_ptr().cast(),
            options_size: options.len(),
            profiler: null_mut(),
        };
        // SAFETY: the options are read during the call.
        unsafe { api.call("PLUGIN_Profiler_Create", api.create, &mut create) }?;
        let profiler = given(create.profiler, "PLUGIN_Profiler_Create")?;
        let mut profiler = Profiler { api, profiler, is_running: false };
        profiler.call("PLUGIN_Profiler_Start", api.start)?;
        profiler.is_running = true;
        Ok(profiler)
    }
}

impl Profiler {
    /// Ends the recording and returns it: an `XSpace` of `tsl/profiler/protobuf/xplane.proto`, which XProf
    /// and TensorBoard read from a file `NAME.xplane.pb`.
    pub fn stop(mut self) -> Result<Vec<u8>> {
        self.is_running = false;
        self.call("PLUGIN_Profiler_Stop", self.api.stop)?;
        let mut data = CollectData {
            struct_size: size_of::<CollectData>(),
            profiler: self.profiler.as_ptr(),
            buffer: null_mut(),
            buffer_size: 0,
        };
        // SAFETY: a profiler that was stopped; without a buffer the plugin sets the size.
        unsafe { self.api.call("PLUGIN_Profiler_CollectData", self.api.collect_data, &mut data) }?;
        let recording = if data.buffer.is_null() && data.buffer_size > 0 {
            let mut bytes = vec![0; data.buffer_size];
            data.buffer = bytes.as_mut_ptr();
            // SAFETY: the buffer has the size that the plugin has set.
            unsafe { self.api.call("PLUGIN_Profiler_CollectData", self.api.collect_data, &mut data) }?;
            bytes
        } else {
            // XLA has a buffer of its own, and does not write into one of the caller.
            // SAFETY: the buffer lives as long as the profiler.
            unsafe { slice(data.buffer, data.buffer_size) }.to_vec()
        };
        Ok(without_padding(recording))
    }

    fn call(&self, name: &'static str, function: Option<Function<OfProfiler>>) -> Result<()> {
        let mut args = OfProfiler { struct_size: size_of::<OfProfiler>(), profiler: self.profiler.as_ptr() };
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

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// Calls a function of this table.
    ///
    /// # Safety
    ///
    /// What `args` points to is as the function's contract says.
    unsafe fn call<T>(&self, call: &'static str, function: Option<Function<T>>, args: &mut T) -> Result<()> {
        let function = function.ok_or(Error::Missing { call })?;
        // SAFETY: the caller's promise.
        match NonNull::new(unsafe { function(args) }) {
            None => Ok(()),
            Some(error) => Err(self.take_error(call, error)),
        }
    }

    /// Turns an error of the profiler, which is ours, into one of this layer, and destroys it.
    fn take_error(&self, call: &'static str, error: NonNull<c_void>) -> Error {
        let error = error.as_ptr();
        let mut code = ErrorGetCode {
            // The size of C, without the padding behind the last field.
            struct_size: offset_of!(ErrorGetCode, code) + size_of::<c_int>(),
            private: null_mut(),
            error,
            code: Code::INTERNAL.0 as c_int,
        };
        let mut message = ErrorMessage {
            struct_size: size_of::<ErrorMessage>(),
            private: null_mut(),
            error,
            message: null(),
            message_size: 0,
        };
        let mut destroy = ErrorDestroy { struct_size: size_of::<ErrorDestroy>(), private: null_mut(), error };
        // SAFETY: the error is alive until it is destroyed, and the message is copied before.
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
            Error::Call { call, code: Code(code.code.unsigned_abs()), message }
        }
    }
}

/// `tensorflow.ProfileOptions` of `tsl/profiler/protobuf/profiler_options.proto`.
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

/// XLA's buffer is one zero byte longer than the message, which strict readers of protocol buffers refuse.
/// All fields of an `XSpace` are of bytes, so that a walk over them finds where the message ends.
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
    // What is not understood is left as the plugin gave it.
    if let Some(end) = end(&bytes).filter(|end| end + 1 == bytes.len()) {
        bytes.truncate(end);
    }
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::plugin::tests::made_up;
    use super::super::tests::second_process;
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        /// What was called on this thread, in order; and which call fails.
        static CALLS: RefCell<(Vec<&'static str>, &'static str)> = const { RefCell::new((vec![], "")) };
    }

    /// Notes a call; what it returns.
    fn note(name: &'static str) -> *mut c_void {
        CALLS.with_borrow_mut(|(calls, failing)| {
            calls.push(name);
            if *failing == name { NonNull::<u64>::dangling().as_ptr().cast() } else { null_mut() }
        })
    }

    unsafe extern "C" fn create(args: *mut Create) -> *mut c_void {
        // SAFETY: the caller's arguments.
        let args = unsafe { &mut *args };
        assert!(args.options_size > 8, "the options have a time");
        args.profiler = NonNull::<u64>::dangling().as_ptr().cast();
        note("create")
    }
    unsafe extern "C" fn start(_: *mut OfProfiler) -> *mut c_void {
        note("start")
    }
    unsafe extern "C" fn stop(_: *mut OfProfiler) -> *mut c_void {
        note("stop")
    }
    unsafe extern "C" fn destroy(_: *mut OfProfiler) -> *mut c_void {
        note("destroy")
    }
    /// As XLA does it: the profiler's own buffer, with a zero behind the message.
    unsafe extern "C" fn collect(args: *mut CollectData) -> *mut c_void {
        static PADDED: [u8; 6] = [10, 3, b'a', b'b', b'c', 0];
        // SAFETY: the caller's arguments.
        let args = unsafe { &mut *args };
        assert!(args.buffer.is_null());
        (args.buffer, args.buffer_size) = (PADDED.as_ptr().cast_mut(), PADDED.len());
        note("collect")
    }
    /// As the header has it: the size first, then the bytes into the caller's buffer.
    unsafe extern "C" fn collect_in_two(args: *mut CollectData) -> *mut c_void {
        // SAFETY: the caller's arguments, with a buffer of the size that the first call has set.
        unsafe {
            if (*args).buffer.is_null() {
                (*args).buffer_size = 4;
            } else {
                (*args).buffer.copy_from([10, 2, 0, 0].as_ptr(), 4);
            }
        }
        note("collect")
    }
    unsafe extern "C" fn error_message(args: *mut ErrorMessage) {
        const TEXT: &str = "no trace hardware";
        // SAFETY: the caller's arguments.
        unsafe { ((*args).message, (*args).message_size) = (TEXT.as_ptr().cast(), TEXT.len()) };
    }
    unsafe extern "C" fn error_code(args: *mut ErrorGetCode) -> *mut c_void {
        // SAFETY: the caller's arguments.
        unsafe { (*args).code = 12 };
        null_mut()
    }
    unsafe extern "C" fn error_destroy(_: *mut ErrorDestroy) {
        note("error_destroy");
    }

    /// A client of a plugin with a profiler, behind another extension.
    pub(crate) fn client(in_two: bool) -> crate::pjrt::Client {
        CALLS.take();
        let api = Box::leak(Box::new(Api {
            struct_size: size_of::<Api>(),
            private: null_mut(),
            error_destroy: Some(error_destroy),
            error_message: Some(error_message),
            error_get_code: Some(error_code),
            create: Some(create),
            destroy: Some(destroy),
            start: Some(start),
            stop: Some(stop),
            collect_data: Some(if in_two { collect_in_two } else { collect }),
        }));
        let base = |type_, next| sys::PJRT_Extension_Base { struct_size: 0, type_, next };
        let profiler = sys::PJRT_Extension_Type::PJRT_Extension_Type_Profiler;
        let extension = Box::leak(Box::new(Extension { base: base(profiler, null_mut()), api }));
        let other = sys::PJRT_Extension_Type::PJRT_Extension_Type_Stream;
        let first = Box::leak(Box::new(base(other, std::ptr::from_mut(extension).cast())));
        let plugin = made_up(|api| {
            second_process(api);
            api.extension_start = first;
        });
        plugin.client(&[]).unwrap()
    }

    pub(crate) fn calls() -> Vec<&'static str> {
        CALLS.with_borrow(|(calls, _)| calls.clone())
    }

    #[test]
    fn a_recording_is_collected_without_padding_and_its_profiler_destroyed() {
        let plugin = client(false).plugin();
        assert!(plugin.has_profiler());
        let recording = plugin.start_profiler().unwrap().stop().unwrap();
        assert_eq!(recording, [10, 3, b'a', b'b', b'c']);
        assert_eq!(calls(), ["create", "start", "stop", "collect", "destroy"]);
    }

    #[test]
    fn a_plugin_that_fills_the_callers_buffer_is_called_twice() {
        let recording = client(true).plugin().start_profiler().unwrap().stop().unwrap();
        assert_eq!(recording, [10, 2, 0, 0], "zeros within the message stay");
        assert_eq!(calls(), ["create", "start", "stop", "collect", "collect", "destroy"]);
    }

    #[test]
    fn a_dropped_recording_is_stopped_and_destroyed() {
        drop(client(false).plugin().start_profiler().unwrap());
        assert_eq!(calls(), ["create", "start", "stop", "destroy"]);
    }

    #[test]
    fn a_refusal_has_the_plugins_words_and_destroys_the_profiler() {
        let plugin = client(false).plugin();
        CALLS.with_borrow_mut(|(_, failing)| *failing = "start");
        let e = plugin.start_profiler().unwrap_err();
        assert_eq!(e.to_string(), "PLUGIN_Profiler_Start: no trace hardware (unimplemented)");
        assert_eq!(calls(), ["create", "start", "error_destroy", "destroy"]);
    }

    #[test]
    fn a_plugin_without_a_profiler_says_so() {
        let plugin = made_up(second_process);
        assert!(!plugin.has_profiler());
        let e = plugin.start_profiler().unwrap_err();
        assert!(matches!(e, Error::Missing { call: "PJRT_Profiler_Extension" }), "{e}");
    }

    #[test]
    fn only_one_zero_behind_the_last_field_is_padding() {
        let cases: [(&[u8], &[u8]); 7] = [
            (&[], &[]),
            (&[0], &[]),
            (&[0, 0], &[0, 0]),
            (&[10, 1, 0], &[10, 1, 0]),
            (&[10, 1, 0, 0], &[10, 1, 0]),
            (&[10, 9, 0], &[10, 9, 0]),
            (&[8, 1, 0], &[8, 1, 0]),
        ];
        for (given, kept) in cases {
            assert_eq!(without_padding(given.to_vec()), kept, "{given:?}");
        }
    }
}
