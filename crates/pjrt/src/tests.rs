//! Tests with a fake plugin what a real one on one machine cannot show: two processes of two devices each,
//! and transfers that fail.

use super::event::Event;
use super::plugin::tests::fake_plugin;
use super::{Buffer, Client, CompileOptions, PjrtError, Plugin, Signature, Spec, sys};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::ThreadId;

type Answer = *mut sys::PJRT_Error;

/// Id and process of each device, in no order.
static DEVICES: [(i32, i32); 4] = [(3, 1), (1, 0), (0, 0), (2, 1)];
/// Options of the compilations, by test: the code is the test's name.
static COMPILED: Mutex<Vec<(Vec<u8>, Vec<u8>)>> = Mutex::new(Vec::new());

fn list(places: &[usize]) -> &'static [*mut sys::PJRT_Device] {
    let device = |at: &usize| std::ptr::from_ref(&DEVICES[*at]).cast_mut().cast();
    Box::leak(places.iter().map(device).collect())
}

unsafe extern "C" fn succeed<T>(_: *mut T) -> Answer {
    null_mut()
}

/// `answer!(Struct, |args| { ... })`: a function of the table that succeeds.
macro_rules! answer {
    ($name:ident, |$args:ident| $body:block) => {{
        unsafe extern "C" fn function(arguments: *mut sys::$name) -> Answer {
            // SAFETY: the caller's arguments.
            let $args = unsafe { &mut *arguments };
            $body
            null_mut()
        }
        Some(function)
    }};
}

/// The second of two processes.
pub(super) fn second_process(api: &mut sys::PJRT_Api) {
    api.PJRT_Client_Create = answer!(PJRT_Client_Create_Args, |args| {
        args.client = NonNull::dangling().as_ptr();
    });
    api.PJRT_Client_Destroy = Some(succeed);
    api.PJRT_Client_ProcessIndex = answer!(PJRT_Client_ProcessIndex_Args, |args| {
        args.process_index = 1;
    });
    api.PJRT_Client_Devices = answer!(PJRT_Client_Devices_Args, |args| {
        let all = list(&[0, 1, 2, 3]);
        (args.devices, args.num_devices) = (all.as_ptr(), all.len());
    });
    api.PJRT_Client_AddressableDevices = answer!(PJRT_Client_AddressableDevices_Args, |args| {
        let local = list(&[0, 3]);
        (args.addressable_devices, args.num_addressable_devices) = (local.as_ptr(), local.len());
    });
    api.PJRT_Device_GetDescription = answer!(PJRT_Device_GetDescription_Args, |args| {
        args.device_description = args.device.cast();
    });
    api.PJRT_DeviceDescription_Id = answer!(PJRT_DeviceDescription_Id_Args, |args| {
        // SAFETY: one of `DEVICES`.
        args.id = unsafe { (*args.device_description.cast::<(i32, i32)>()).0 };
    });
    api.PJRT_DeviceDescription_ProcessIndex = answer!(PJRT_DeviceDescription_ProcessIndex_Args, |args| {
        // SAFETY: one of `DEVICES`.
        args.process_index = unsafe { (*args.device_description.cast::<(i32, i32)>()).1 };
    });
    api.PJRT_Client_Compile = answer!(PJRT_Client_Compile_Args, |args| {
        // SAFETY: the caller's arguments.
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
        answer!(PJRT_LoadedExecutable_AddressableDevices_Args, |args| {
            // In the order of their ids, which are 2 and 3.
            let here = list(&[3, 0]);
            (args.addressable_devices, args.num_addressable_devices) = (here.as_ptr(), here.len());
        });
    api.PJRT_LoadedExecutable_GetExecutable = answer!(PJRT_LoadedExecutable_GetExecutable_Args, |args| {
        args.executable = NonNull::dangling().as_ptr();
    });
    api.PJRT_Executable_NumOutputs = answer!(PJRT_Executable_NumOutputs_Args, |args| {
        args.num_outputs = 1;
    });
    api.PJRT_Executable_Destroy = Some(succeed);
    api.PJRT_LoadedExecutable_Execute = answer!(PJRT_LoadedExecutable_Execute_Args, |args| {
        for device in 0..args.num_devices {
            // SAFETY: the caller's arguments. The result is the argument.
            unsafe { **args.output_lists.add(device) = **args.argument_lists.add(device) };
        }
    });
    api.PJRT_Client_BufferFromHostBuffer = answer!(PJRT_Client_BufferFromHostBuffer_Args, |args| {
        // The buffer is its device, so that a test sees where it went.
        args.buffer = args.device.cast();
        args.done_with_host_buffer = NonNull::dangling().as_ptr();
    });
    api.PJRT_Buffer_Destroy = Some(succeed);
    api.PJRT_Buffer_ElementType = answer!(PJRT_Buffer_ElementType_Args, |args| {
        args.type_ = sys::PJRT_Buffer_Type::PJRT_Buffer_Type_U8;
    });
    api.PJRT_Buffer_Dimensions = Some(succeed);
    api.PJRT_Event_Await = Some(succeed);
    api.PJRT_Event_Destroy = Some(succeed);
    api.PJRT_Event_OnReady = answer!(PJRT_Event_OnReady_Args, |args| {
        // SAFETY: the callback is made for this argument.
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
fn a_process_runs_its_part_of_a_program_that_spans_several() {
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
    assert_eq!(options(b"alone"), &alone.encode(&[2, 3]), "those of this process");

    assert_eq!(program.local_devices(), 2);
    let bytes: Vec<Buffer> = (0..2).map(|device| client.upload(&[7u8], &[], device).unwrap()).collect();
    let places: Vec<_> = bytes.iter().map(Buffer::as_ptr).collect();
    assert_eq!(places, [list(&[3])[0].cast(), list(&[0])[0].cast()], "ids 2 and 3");
    let inputs: Vec<_> = bytes.iter().map(|b| vec![b]).collect();
    let results = program.run(vec![vec![], vec![]], &inputs).unwrap();
    let devices: Vec<_> = results.iter().map(|list| (list[0].device(), list[0].as_ptr())).collect();
    assert_eq!(devices, [(0, places[0]), (1, places[1])]);
    assert!(matches!(client.upload(&[7u8], &[], 2), Err(PjrtError::Mismatch { .. })), "of another process");
    for replicas in [0, 5] {
        let options = CompileOptions { replicas, partitions: 1 };
        assert!(matches!(client.compile(b"", takes_byte(), &options), Err(PjrtError::Mismatch { .. })));
    }
}

#[test]
fn a_zero_follows_the_code_of_a_program() {
    let client = open(|api| {
        api.PJRT_Client_Compile = answer!(PJRT_Client_Compile_Args, |args| {
            // SAFETY: the caller's arguments, and the zero, as MLIR's parser reads it.
            let text = unsafe {
                let program = &*args.program;
                std::slice::from_raw_parts(program.code.cast::<u8>(), program.code_size + 1)
            };
            assert_eq!(text, b"func\0");
            args.executable = NonNull::dangling().as_ptr();
        });
    });
    let options = CompileOptions { replicas: 1, partitions: 4 };
    // The caller's text continues after the code.
    client.compile(&b"function"[..4], Signature::default(), &options).unwrap();
}

#[test]
fn a_plugin_that_orders_the_devices_in_another_way_is_refused() {
    let client = open(|api| {
        api.PJRT_LoadedExecutable_AddressableDevices =
            answer!(PJRT_LoadedExecutable_AddressableDevices_Args, |args| {
                let here = list(&[0, 3]);
                (args.addressable_devices, args.num_addressable_devices) = (here.as_ptr(), here.len());
            });
    });
    let options = CompileOptions { replicas: 1, partitions: 4 };
    let e = client.compile(b"order", Signature::default(), &options).unwrap_err();
    assert!(matches!(e, PjrtError::Mismatch { .. }), "{e}");
}

/// Reports when it is dropped, and then panics if requested.
struct Told(Sender<()>, bool);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        assert!(!self.1, "expected in this test");
    }
}

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &[1, 2]
    }
}

/// Keeps a value until an event of this plugin. Also returns whether the value was dropped by then.
fn keep(plugin: Plugin, panics: bool) -> (Result<(), PjrtError>, bool) {
    let (sender, told) = channel();
    // SAFETY: nobody else has it, and the made-up functions do not look at it.
    let event = unsafe { Event::from_raw(plugin, NonNull::dangling().as_ptr()) }.unwrap();
    let result = event.keep(Told(sender, panics));
    (result, told.try_recv().is_ok())
}

#[test]
fn what_is_kept_is_dropped_however_the_transfer_ends() {
    static ERRORS: AtomicUsize = AtomicUsize::new(0);
    let (kept, dropped) = keep(fake_plugin(second_process), false);
    assert!(kept.is_ok() && dropped);
    let fails = |api: &mut sys::PJRT_Api| {
        second_process(api);
        api.PJRT_Event_OnReady = answer!(PJRT_Event_OnReady_Args, |args| {
            // SAFETY: the callback is made for this argument.
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
    assert!(kept.is_ok() && dropped, "a panic does not pass through the plugin");
}

#[test]
fn without_callbacks_the_event_is_waited_for() {
    static WAITED: AtomicBool = AtomicBool::new(false);
    let (kept, dropped) = keep(
        fake_plugin(|api| {
            second_process(api);
            api.PJRT_Event_OnReady = None;
            api.PJRT_Event_Await = answer!(PJRT_Event_Await_Args, |_args| {
                WAITED.store(true, Ordering::SeqCst);
            });
        }),
        false,
    );
    assert!(matches!(kept, Err(PjrtError::Missing { call: "PJRT_Event_OnReady" })));
    assert!(dropped && WAITED.load(Ordering::SeqCst));
    // If the end is unknown, the memory is leaked.
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
fn memory_stays_where_nobody_says_when_the_transfer_ends() {
    let (sender, told) = channel();
    let client = open(|api| {
        api.PJRT_Client_BufferFromHostBuffer = answer!(PJRT_Client_BufferFromHostBuffer_Args, |args| {
            args.buffer = args.device.cast();
        });
    });
    let result = client.upload_bytes(bytes::Bytes::from_owner(Told(sender, false)), &[2], 0);
    assert!(matches!(result, Err(PjrtError::Nothing { call: "PJRT_Client_BufferFromHostBuffer" })));
    assert!(told.try_recv().is_err());
}

type Callback = unsafe extern "C" fn(Answer, *mut c_void);
/// The callbacks that the plugin has not called yet, with their arguments.
static LATE: Mutex<Vec<(Callback, usize)>> = Mutex::new(Vec::new());
/// Reports on which thread a client was closed.
static CLOSED: Mutex<Option<Sender<ThreadId>>> = Mutex::new(None);

#[test]
fn a_client_is_closed_after_its_transfers_and_on_no_thread_of_the_plugin() {
    let client = open(|api| {
        api.PJRT_Event_OnReady = answer!(PJRT_Event_OnReady_Args, |args| {
            LATE.lock().unwrap().push((args.callback.unwrap(), args.user_arg.expose_provenance()));
        });
        api.PJRT_Buffer_ReadyEvent = answer!(PJRT_Buffer_ReadyEvent_Args, |args| {
            args.event = NonNull::dangling().as_ptr();
        });
        api.PJRT_Client_Destroy = answer!(PJRT_Client_Destroy_Args, |_args| {
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
    assert_eq!(late.len(), 2, "of the memory and of the array");
    for (callback, kept) in late {
        assert!(closed.try_recv().is_err(), "the transfer is under way");
        // SAFETY: the callback's own argument, once.
        unsafe { callback(null_mut(), std::ptr::with_exposed_provenance_mut(kept)) };
    }
    assert_ne!(closed.recv().unwrap(), std::thread::current().id());
}

/// Address and length of each mapping.
static MAPPED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[test]
fn memory_is_mapped_until_the_mapping_is_dropped() {
    let client = open(|api| {
        api.PJRT_Client_DmaMap = answer!(PJRT_Client_DmaMap_Args, |args| {
            MAPPED.lock().unwrap().push((args.data.addr(), args.size));
        });
        api.PJRT_Client_DmaUnmap = answer!(PJRT_Client_DmaUnmap_Args, |args| {
            let mut mapped = MAPPED.lock().unwrap();
            let at = mapped.iter().position(|(begin, _)| *begin == args.data.addr()).unwrap();
            mapped.swap_remove(at);
        });
    });
    let slab = vec![0_u8; 4096];
    // SAFETY: the slab outlives the mapping, and nothing is transferred.
    let mapping = unsafe { client.dma_map(NonNull::from(&slab[..])) }.unwrap();
    assert_eq!(*MAPPED.lock().unwrap(), [(slab.as_ptr().addr(), 4096)]);
    drop(client);
    drop(mapping);
    assert!(MAPPED.lock().unwrap().is_empty());
    // A plugin without support says so. SAFETY: as above.
    let refused = unsafe { open(|_| {}).dma_map(NonNull::from(&slab[..])) };
    assert!(matches!(refused, Err(PjrtError::Missing { call: "PJRT_Client_DmaMap" })));
}
