//! Tests with a fake plugin for cases that a real plugin on one machine cannot show: two processes with two
//! devices each, and failing transfers.

use super::event::Event;
use super::plugin::tests::fake_plugin;
use super::{Buffer, Client, CompileOptions, PjrtError, Plugin, Signature, Spec, sys};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::ThreadId;

type ErrorPtr = *mut sys::PJRT_Error;

/// Id and process of each device, not sorted by id.
static DEVICES: [(i32, i32); 4] = [(3, 1), (1, 0), (0, 0), (2, 1)];
/// Code and options of each compilation. The code is a name that a test gives.
static COMPILED: Mutex<Vec<(Vec<u8>, Vec<u8>)>> = Mutex::new(Vec::new());

/// Pointers to the elements of `DEVICES` at these indices.
fn list(indices: &[usize]) -> &'static [*mut sys::PJRT_Device] {
    let device = |index: &usize| std::ptr::from_ref(&DEVICES[*index]).cast_mut().cast();
    Box::leak(indices.iter().map(device).collect())
}

unsafe extern "C" fn succeed<T>(_: *mut T) -> ErrorPtr {
    null_mut()
}

/// `function!(Struct, |args| { ... })` makes a function for the plugin's table. The function runs the block,
/// and reports success.
macro_rules! function {
    ($name:ident, |$args:ident| $body:block) => {{
        unsafe extern "C" fn function(arguments: *mut sys::$name) -> ErrorPtr {
            // SAFETY: the caller passes a valid pointer to a struct that nobody else uses during the call.
            let $args = unsafe { &mut *arguments };
            $body
            null_mut()
        }
        Some(function)
    }};
}

/// Fills the table of a plugin that runs in the second of two processes.
pub(super) fn second_process(api: &mut sys::PJRT_Api) {
    api.PJRT_Client_Create = function!(PJRT_Client_Create_Args, |args| {
        args.client = NonNull::dangling().as_ptr();
    });
    api.PJRT_Client_Destroy = Some(succeed);
    api.PJRT_Client_ProcessIndex = function!(PJRT_Client_ProcessIndex_Args, |args| {
        args.process_index = 1;
    });
    api.PJRT_Client_Devices = function!(PJRT_Client_Devices_Args, |args| {
        let all = list(&[0, 1, 2, 3]);
        (args.devices, args.num_devices) = (all.as_ptr(), all.len());
    });
    api.PJRT_Client_AddressableDevices = function!(PJRT_Client_AddressableDevices_Args, |args| {
        let local = list(&[0, 3]);
        (args.addressable_devices, args.num_addressable_devices) = (local.as_ptr(), local.len());
    });
    api.PJRT_Device_GetDescription = function!(PJRT_Device_GetDescription_Args, |args| {
        args.device_description = args.device.cast();
    });
    api.PJRT_DeviceDescription_Id = function!(PJRT_DeviceDescription_Id_Args, |args| {
        // SAFETY: the description points to one of `DEVICES`.
        args.id = unsafe { (*args.device_description.cast::<(i32, i32)>()).0 };
    });
    api.PJRT_DeviceDescription_ProcessIndex = function!(PJRT_DeviceDescription_ProcessIndex_Args, |args| {
        // SAFETY: the description points to one of `DEVICES`.
        args.process_index = unsafe { (*args.device_description.cast::<(i32, i32)>()).1 };
    });
    api.PJRT_Client_Compile = function!(PJRT_Client_Compile_Args, |args| {
        // SAFETY: the caller passes valid pointers to the program, its code and the options, with the right
        // lengths.
        let (code, options) = unsafe {
            let program = &*args.program;
            let code = std::slice::from_raw_parts(program.code.cast::<u8>(), program.code_size);
            (code, std::slice::from_raw_parts(args.compile_options.cast::<u8>(), args.compile_options_size))
        };
        COMPILED.lock().unwrap().push((code.into(), options.into()));
        args.executable = NonNull::dangling().as_ptr();
    });
    api.PJRT_LoadedExecutable_Destroy = Some(succeed);
    api.PJRT_LoadedExecutable_AddressableDevices =
        function!(PJRT_LoadedExecutable_AddressableDevices_Args, |args| {
            // The devices are in the order of their ids, 2 and 3.
            let here = list(&[3, 0]);
            (args.addressable_devices, args.num_addressable_devices) = (here.as_ptr(), here.len());
        });
    api.PJRT_LoadedExecutable_GetExecutable = function!(PJRT_LoadedExecutable_GetExecutable_Args, |args| {
        args.executable = NonNull::dangling().as_ptr();
    });
    api.PJRT_Executable_NumOutputs = function!(PJRT_Executable_NumOutputs_Args, |args| {
        args.num_outputs = 1;
    });
    api.PJRT_Executable_Destroy = Some(succeed);
    api.PJRT_LoadedExecutable_Execute = function!(PJRT_LoadedExecutable_Execute_Args, |args| {
        for device in 0..args.num_devices {
            // SAFETY: the caller passes, for each device, a list of arguments and a list for the results.
            // Each list has at least one element. The first argument is returned as the result.
            unsafe { **args.output_lists.add(device) = **args.argument_lists.add(device) };
        }
    });
    api.PJRT_Client_BufferFromHostBuffer = function!(PJRT_Client_BufferFromHostBuffer_Args, |args| {
        // The buffer's pointer is equal to its device's pointer, so that a test can check the device.
        args.buffer = args.device.cast();
        args.done_with_host_buffer = NonNull::dangling().as_ptr();
    });
    api.PJRT_Buffer_Destroy = Some(succeed);
    api.PJRT_Buffer_ElementType = function!(PJRT_Buffer_ElementType_Args, |args| {
        args.type_ = sys::PJRT_Buffer_Type::PJRT_Buffer_Type_U8;
    });
    api.PJRT_Buffer_Dimensions = Some(succeed);
    api.PJRT_Event_Await = Some(succeed);
    api.PJRT_Event_Destroy = Some(succeed);
    api.PJRT_Event_OnReady = function!(PJRT_Event_OnReady_Args, |args| {
        // SAFETY: `user_arg` has the type that the callback expects.
        unsafe { args.callback.unwrap()(null_mut(), args.user_arg) };
    });
}

fn open(more: impl FnOnce(&mut sys::PJRT_Api)) -> Client {
    let plugin = fake_plugin(|api| {
        second_process(api);
        more(api);
    });
    plugin.client(&[]).unwrap()
}

#[test]
fn a_process_runs_its_part_of_a_program_that_spans_two_processes() {
    let client = open(|_| {});
    assert_eq!((client.devices(), client.local_devices()), (4, 2));
    assert_eq!((client.processes(), client.process_index().unwrap()), (2, 1));

    let takes_byte = || Signature { state: vec![], inputs: vec![Spec::of::<u8>(&[])] };
    let whole = CompileOptions { replicas: 1, partitions: 4 };
    let program = client.compile(b"whole", takes_byte(), &whole).unwrap();
    let alone = CompileOptions { replicas: 2, partitions: 1 };
    client.compile_local(b"alone", takes_byte(), &alone).unwrap();
    let compiled = COMPILED.lock().unwrap().clone();
    let options = |code: &[u8]| &compiled.iter().find(|(c, _)| c == code).unwrap().1;
    assert_eq!(options(b"whole"), &whole.encode(&[0, 1, 2, 3]), "all devices of the job, by id");
    assert_eq!(options(b"alone"), &alone.encode(&[2, 3]), "the devices of this process");

    assert_eq!(program.local_devices(), 2);
    let bytes: Vec<Buffer> = (0..2).map(|device| client.upload(&[7u8], &[], device).unwrap()).collect();
    let pointers: Vec<_> = bytes.iter().map(Buffer::as_ptr).collect();
    assert_eq!(pointers, [list(&[3])[0].cast(), list(&[0])[0].cast()], "ids 2 and 3");
    let inputs: Vec<_> = bytes.iter().map(|b| vec![b]).collect();
    let results = program.run(vec![vec![], vec![]], &inputs).unwrap();
    let devices: Vec<_> = results.iter().map(|list| (list[0].device(), list[0].as_ptr())).collect();
    assert_eq!(devices, [(0, pointers[0]), (1, pointers[1])]);
    assert!(matches!(client.upload(&[7u8], &[], 2), Err(PjrtError::Mismatch { .. })), "there is no device 2");
    for replicas in [0, 5] {
        let options = CompileOptions { replicas, partitions: 1 };
        assert!(matches!(client.compile(b"", takes_byte(), &options), Err(PjrtError::Mismatch { .. })));
    }
}

#[test]
fn a_zero_follows_the_code_of_a_program() {
    let client = open(|api| {
        api.PJRT_Client_Compile = function!(PJRT_Client_Compile_Args, |args| {
            // SAFETY: the program has `code_size` bytes, and a zero byte follows them. MLIR's parser reads
            // the zero byte as well.
            let text = unsafe {
                let program = &*args.program;
                std::slice::from_raw_parts(program.code.cast::<u8>(), program.code_size + 1)
            };
            assert_eq!(text, b"func\0");
            args.executable = NonNull::dangling().as_ptr();
        });
    });
    let options = CompileOptions { replicas: 1, partitions: 4 };
    // The byte after the code in the caller's memory is not zero.
    client.compile(&b"function"[..4], Signature::default(), &options).unwrap();
}

#[test]
fn an_executable_whose_devices_are_in_another_order_is_refused() {
    let client = open(|api| {
        api.PJRT_LoadedExecutable_AddressableDevices =
            function!(PJRT_LoadedExecutable_AddressableDevices_Args, |args| {
                let here = list(&[0, 3]);
                (args.addressable_devices, args.num_addressable_devices) = (here.as_ptr(), here.len());
            });
    });
    let options = CompileOptions { replicas: 1, partitions: 4 };
    let e = client.compile(b"order", Signature::default(), &options).unwrap_err();
    assert!(matches!(e, PjrtError::Mismatch { .. }), "{e}");
}

/// A value that sends a message when it is dropped. If `panics` is true, dropping it then panics.
struct DropReporter {
    dropped: Sender<()>,
    panics: bool,
}

impl Drop for DropReporter {
    fn drop(&mut self) {
        self.dropped.send(()).unwrap();
        assert!(!self.panics, "expected in this test");
    }
}

impl AsRef<[u8]> for DropReporter {
    fn as_ref(&self) -> &[u8] {
        &[1, 2]
    }
}

/// Keeps a value until an event of this plugin has happened. Also returns whether the value was dropped
/// before `keep` returned.
fn keep(plugin: Plugin, panics: bool) -> (Result<(), PjrtError>, bool) {
    let (dropped, receiver) = channel();
    // SAFETY: nobody else has the event, and the fake functions do not read it.
    let event = unsafe { Event::from_raw(plugin, NonNull::dangling().as_ptr()) }.unwrap();
    let result = event.keep(DropReporter { dropped, panics });
    (result, receiver.try_recv().is_ok())
}

#[test]
fn a_kept_value_is_dropped_also_when_the_transfer_fails() {
    static ERRORS: AtomicUsize = AtomicUsize::new(0);
    let (kept, dropped) = keep(fake_plugin(second_process), false);
    assert!(kept.is_ok() && dropped);
    let fails = |api: &mut sys::PJRT_Api| {
        second_process(api);
        api.PJRT_Event_OnReady = function!(PJRT_Event_OnReady_Args, |args| {
            // SAFETY: `user_arg` has the type that the callback expects.
            unsafe { args.callback.unwrap()(NonNull::dangling().as_ptr(), args.user_arg) };
        });
        unsafe extern "C" fn destroy(_: *mut sys::PJRT_Error_Destroy_Args) {
            ERRORS.fetch_add(1, Ordering::SeqCst);
        }
        api.PJRT_Error_Destroy = Some(destroy);
    };
    let (kept, dropped) = keep(fake_plugin(fails), false);
    assert!(kept.is_ok() && dropped);
    assert_eq!(ERRORS.load(Ordering::SeqCst), 1, "the error is freed");
    let (kept, dropped) = keep(fake_plugin(second_process), true);
    assert!(kept.is_ok() && dropped, "a panic does not unwind into the plugin");
}

#[test]
fn without_callbacks_keeping_a_value_waits_for_the_event() {
    static WAITED: AtomicBool = AtomicBool::new(false);
    let (kept, dropped) = keep(
        fake_plugin(|api| {
            second_process(api);
            api.PJRT_Event_OnReady = None;
            api.PJRT_Event_Await = function!(PJRT_Event_Await_Args, |_args| {
                WAITED.store(true, Ordering::SeqCst);
            });
        }),
        false,
    );
    assert!(matches!(kept, Err(PjrtError::Missing { call: "PJRT_Event_OnReady" })));
    assert!(dropped && WAITED.load(Ordering::SeqCst));
    // If waiting fails too, the value is leaked.
    let (kept, dropped) = keep(
        fake_plugin(|api| {
            second_process(api);
            api.PJRT_Event_OnReady = None;
            api.PJRT_Event_Await = None;
        }),
        false,
    );
    assert!(kept.is_err() && !dropped);
}

#[test]
fn the_memory_of_a_transfer_without_an_event_is_leaked() {
    let (dropped, receiver) = channel();
    let client = open(|api| {
        api.PJRT_Client_BufferFromHostBuffer = function!(PJRT_Client_BufferFromHostBuffer_Args, |args| {
            args.buffer = args.device.cast();
        });
    });
    let memory = bytes::Bytes::from_owner(DropReporter { dropped, panics: false });
    let result = client.upload_bytes(memory, &[2], 0);
    assert!(matches!(result, Err(PjrtError::Nothing { call: "PJRT_Client_BufferFromHostBuffer" })));
    assert!(receiver.try_recv().is_err());
}

type Callback = unsafe extern "C" fn(ErrorPtr, *mut c_void);
/// The callbacks that the plugin has not called yet, with their arguments.
static LATE: Mutex<Vec<(Callback, usize)>> = Mutex::new(Vec::new());
/// Gets the id of the thread on which a client was closed.
static CLOSED: Mutex<Option<Sender<ThreadId>>> = Mutex::new(None);

#[test]
fn a_client_is_closed_after_its_transfers_on_a_thread_that_is_not_the_plugin_s() {
    let client = open(|api| {
        api.PJRT_Event_OnReady = function!(PJRT_Event_OnReady_Args, |args| {
            LATE.lock().unwrap().push((args.callback.unwrap(), args.user_arg.expose_provenance()));
        });
        api.PJRT_Buffer_ReadyEvent = function!(PJRT_Buffer_ReadyEvent_Args, |args| {
            args.event = NonNull::dangling().as_ptr();
        });
        api.PJRT_Client_Destroy = function!(PJRT_Client_Destroy_Args, |_args| {
            let closed = CLOSED.lock().unwrap().take().unwrap();
            closed.send(std::thread::current().id()).unwrap();
        });
    });
    let (sender, closed) = channel();
    *CLOSED.lock().unwrap() = Some(sender);

    let array = client.upload_bytes(bytes::Bytes::from_static(&[1, 2]), &[2], 0).unwrap();
    drop((array, client));
    assert!(closed.try_recv().is_err(), "the transfer is under way");
    let late = std::mem::take(&mut *LATE.lock().unwrap());
    assert_eq!(late.len(), 2, "one for the memory and one for the array");
    for (callback, kept) in late {
        assert!(closed.try_recv().is_err(), "the transfer is under way");
        // SAFETY: the callback gets its own argument, and is called once.
        unsafe { callback(null_mut(), std::ptr::with_exposed_provenance_mut(kept)) };
    }
    assert_ne!(closed.recv().unwrap(), std::thread::current().id());
}

/// Address and length of each mapping.
static MAPPED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[test]
fn memory_is_mapped_until_the_mapping_is_dropped() {
    let client = open(|api| {
        api.PJRT_Client_DmaMap = function!(PJRT_Client_DmaMap_Args, |args| {
            MAPPED.lock().unwrap().push((args.data.addr(), args.size));
        });
        api.PJRT_Client_DmaUnmap = function!(PJRT_Client_DmaUnmap_Args, |args| {
            let mut mapped = MAPPED.lock().unwrap();
            let index = mapped.iter().position(|(begin, _)| *begin == args.data.addr()).unwrap();
            mapped.swap_remove(index);
        });
    });
    let slab = vec![0_u8; 4096];
    // SAFETY: the slab outlives the mapping, and nothing is transferred.
    let mapping = unsafe { client.dma_map(NonNull::from(&slab[..])) }.unwrap();
    assert_eq!(*MAPPED.lock().unwrap(), [(slab.as_ptr().addr(), 4096)]);
    drop(client);
    drop(mapping);
    assert!(MAPPED.lock().unwrap().is_empty());
    // If the plugin lacks the function, `dma_map` returns an error. SAFETY: as above.
    let refused = unsafe { open(|_| {}).dma_map(NonNull::from(&slab[..])) };
    assert!(matches!(refused, Err(PjrtError::Missing { call: "PJRT_Client_DmaMap" })));
}
