//! Tests of recordings, with a fake plugin.

use super::super::plugin::tests::fake_plugin;
use super::super::tests::second_process;
use super::*;
use std::cell::RefCell;

thread_local! {
    /// The calls on this thread, in order, and the name of the call that is to fail.
    static CALLS: RefCell<(Vec<&'static str>, &'static str)> = const { RefCell::new((vec![], "")) };
}

/// Records a call. Returns an error if the call is to fail.
fn note(name: &'static str) -> *mut c_void {
    CALLS.with_borrow_mut(|(calls, failing)| {
        calls.push(name);
        if *failing == name { NonNull::<u64>::dangling().as_ptr().cast() } else { null_mut() }
    })
}

unsafe extern "C" fn create(args: *mut CreateArgs) -> *mut c_void {
    // SAFETY: the caller passes a valid pointer to a struct that nobody else uses during the call.
    let args = unsafe { &mut *args };
    assert!(args.options_size > 8, "the options have a time");
    args.profiler = NonNull::<u64>::dangling().as_ptr().cast();
    note("create")
}
unsafe extern "C" fn start(_: *mut ProfilerArgs) -> *mut c_void {
    note("start")
}
unsafe extern "C" fn stop(_: *mut ProfilerArgs) -> *mut c_void {
    note("stop")
}
unsafe extern "C" fn destroy(_: *mut ProfilerArgs) -> *mut c_void {
    note("destroy")
}
/// Returns the profiler's own buffer, with a zero after the message, as XLA does.
unsafe extern "C" fn collect(args: *mut CollectDataArgs) -> *mut c_void {
    static PADDED: [u8; 6] = [10, 3, b'a', b'b', b'c', 0];
    // SAFETY: the caller passes a valid pointer to a struct that nobody else uses during the call.
    let args = unsafe { &mut *args };
    assert!(args.buffer.is_null());
    (args.buffer, args.buffer_size) = (PADDED.as_ptr().cast_mut(), PADDED.len());
    note("collect")
}
/// Sets the size in the first call, and writes into the caller's buffer in the second, as the header says.
unsafe extern "C" fn collect_in_two(args: *mut CollectDataArgs) -> *mut c_void {
    // SAFETY: in the second call, the buffer has the size that the first call has set.
    unsafe {
        if (*args).buffer.is_null() {
            (*args).buffer_size = 4;
        } else {
            (*args).buffer.copy_from([10, 2, 0, 0].as_ptr(), 4);
        }
    }
    note("collect")
}
unsafe extern "C" fn error_message(args: *mut ErrorMessageArgs) {
    const TEXT: &str = "no trace hardware";
    // SAFETY: the caller passes a valid pointer.
    unsafe { ((*args).message, (*args).message_size) = (TEXT.as_ptr().cast(), TEXT.len()) };
}
unsafe extern "C" fn error_code(args: *mut ErrorGetCodeArgs) -> *mut c_void {
    // SAFETY: the caller passes a valid pointer.
    unsafe { (*args).code = 12 };
    null_mut()
}
unsafe extern "C" fn error_destroy(_: *mut ErrorDestroyArgs) {
    note("error_destroy");
}

/// A client of a plugin whose list of extensions has another extension before the profiler.
fn client(in_two: bool) -> super::super::Client {
    CALLS.take();
    let api = Box::leak(Box::new(ProfilerApi {
        struct_size: size_of::<ProfilerApi>(),
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
    let extension = Box::leak(Box::new(ProfilerExtension { base: base(profiler, null_mut()), api }));
    let other = sys::PJRT_Extension_Type::PJRT_Extension_Type_Stream;
    let first = Box::leak(Box::new(base(other, std::ptr::from_mut(extension).cast())));
    let plugin = fake_plugin(|api| {
        second_process(api);
        api.extension_start = first;
    });
    plugin.client(&[]).unwrap()
}

fn calls() -> Vec<&'static str> {
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
fn a_plugin_that_writes_into_the_callers_buffer_is_called_twice() {
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
fn a_failed_start_returns_the_plugins_message_and_destroys_the_profiler() {
    let plugin = client(false).plugin();
    CALLS.with_borrow_mut(|(_, failing)| *failing = "start");
    let e = plugin.start_profiler().unwrap_err();
    assert_eq!(e.to_string(), "PLUGIN_Profiler_Start: no trace hardware (unimplemented)");
    assert_eq!(calls(), ["create", "start", "error_destroy", "destroy"]);
}

#[test]
fn a_plugin_without_a_profiler_is_an_error() {
    let plugin = fake_plugin(second_process);
    assert!(!plugin.has_profiler());
    let e = plugin.start_profiler().unwrap_err();
    assert!(matches!(e, PjrtError::Missing { call: "PJRT_Profiler_Extension" }), "{e}");
}

#[test]
fn only_a_single_zero_after_the_last_field_is_removed() {
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
