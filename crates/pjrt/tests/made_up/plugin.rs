//! A fake PJRT plugin, which the tests build. As the CUDA plugin does, it exchanges the processes' device
//! numbers through the key-value store. It checks that each value is deleted after it was read. The memory of
//! an upload is released at once; programs can be compiled and loaded, but not run.
#![allow(unsafe_code)]

#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code, clippy::all)]
#[path = "../../src/sys.rs"]
mod sys;

use std::collections::BTreeSet;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use sys::*;

type ErrorPtr = *mut PJRT_Error;

struct Failure {
    code: u32,
    message: String,
}

#[derive(Clone, Copy)]
struct Device {
    id: i32,
    process: i32,
}

struct Client {
    devices: Vec<*mut PJRT_Device>,
    local: Vec<*mut PJRT_Device>,
    process: i32,
}

fn fail(code: u32, message: String) -> ErrorPtr {
    Box::into_raw(Box::new(Failure { code, message })).cast()
}

/// Number of deleted values minus number of values read.
static VALUES: AtomicI64 = AtomicI64::new(0);

unsafe extern "C" fn raise(code: PJRT_Error_Code, message: *const i8, size: usize) -> ErrorPtr {
    let message = unsafe { std::slice::from_raw_parts(message.cast(), size) };
    fail(code.0, String::from_utf8_lossy(message).into_owned())
}

static mut RAISE: PJRT_CallbackError = Some(raise);

unsafe fn put(args: &PJRT_Client_Create_Args, key: &str, value: &[u8]) -> Result<(), ErrorPtr> {
    let mut call: PJRT_KeyValuePutCallback_Args = unsafe { std::mem::zeroed() };
    call.struct_size = size_of_val(&call);
    (call.key, call.key_size) = (key.as_ptr().cast(), key.len());
    (call.value, call.value_size) = (value.as_ptr().cast(), value.len());
    (call.callback_error, call.user_arg) = (&raw mut RAISE, args.kv_put_user_arg);
    let failed = unsafe { args.kv_put_callback.unwrap()(&mut call) };
    if failed.is_null() { Ok(()) } else { Err(failed) }
}

unsafe fn get(args: &PJRT_Client_Create_Args, key: &str, timeout: i32) -> Result<Vec<u8>, ErrorPtr> {
    let mut call: PJRT_KeyValueGetCallback_Args = unsafe { std::mem::zeroed() };
    call.struct_size = size_of_val(&call);
    (call.key, call.key_size, call.timeout_in_ms) = (key.as_ptr().cast(), key.len(), timeout);
    (call.callback_error, call.user_arg) = (&raw mut RAISE, args.kv_get_user_arg);
    let failed = unsafe { args.kv_get_callback.unwrap()(&mut call) };
    if !failed.is_null() {
        return Err(failed);
    }
    VALUES.fetch_sub(1, Ordering::SeqCst);
    let value = unsafe { std::slice::from_raw_parts(call.value.cast::<u8>(), call.value_size) }.to_vec();
    unsafe { call.value_deleter_callback.unwrap()(call.value) };
    VALUES.fetch_add(1, Ordering::SeqCst);
    Ok(value)
}

unsafe fn has_value(args: &PJRT_Client_Create_Args, key: &str) -> Result<bool, u32> {
    let mut call: PJRT_KeyValueTryGetCallback_Args = unsafe { std::mem::zeroed() };
    call.struct_size = size_of_val(&call);
    (call.key, call.key_size) = (key.as_ptr().cast(), key.len());
    (call.callback_error, call.user_arg) = (&raw mut RAISE, args.kv_try_get_user_arg);
    let failed = unsafe { args.kv_try_get_callback.unwrap()(&mut call) };
    if failed.is_null() {
        unsafe { call.value_deleter_callback.unwrap()(call.value) };
        return Ok(true);
    }
    match *unsafe { Box::from_raw(failed.cast::<Failure>()) } {
        Failure { code: 5, .. } => Ok(false),
        other => Err(other.code),
    }
}

struct Options {
    node: i32,
    nodes: i32,
    visible: Vec<i64>,
    others: Vec<String>,
}

unsafe fn options(args: &PJRT_Client_Create_Args) -> Options {
    let mut options = Options { node: 0, nodes: 1, visible: vec![], others: vec![] };
    for at in 0..args.num_options {
        let option = unsafe { &*args.create_options.add(at) };
        let name = unsafe { std::slice::from_raw_parts(option.name.cast::<u8>(), option.name_size) };
        let value = &option.__bindgen_anon_1;
        match (name, option.type_) {
            (b"node_id", PJRT_NamedValue_Type::PJRT_NamedValue_kInt64) => {
                options.node = unsafe { value.int64_value } as i32;
            }
            (b"num_nodes", PJRT_NamedValue_Type::PJRT_NamedValue_kInt64) => {
                options.nodes = unsafe { value.int64_value } as i32;
            }
            (b"visible_devices", PJRT_NamedValue_Type::PJRT_NamedValue_kInt64List) => {
                let list = unsafe { std::slice::from_raw_parts(value.int64_array_value, option.value_size) };
                options.visible = list.to_vec();
            }
            (name, _) => options.others.push(String::from_utf8_lossy(name).into_owned()),
        }
    }
    options
}

/// Time-out for reading the value of another process, in milliseconds. A test may set `MADE_UP_TIMEOUT`.
fn timeout() -> i32 {
    std::env::var("MADE_UP_TIMEOUT").map_or(60_000, |value| value.parse().unwrap())
}

unsafe extern "C" fn create(args: *mut PJRT_Client_Create_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    let Options { node, nodes, visible, others } = unsafe { options(args) };
    if let Some(other) = others.first() {
        return fail(3, format!("unknown option {other}"));
    }
    let own: Vec<u8> = visible.iter().map(|device| *device as u8).collect();
    let mut all = vec![own];
    if nodes > 1 {
        let exchange = || -> Result<Vec<Vec<u8>>, ErrorPtr> {
            // A test makes this rank hang before it stores its devices.
            if std::env::var("MADE_UP_SILENT").is_ok_and(|rank| rank == node.to_string()) {
                std::thread::sleep(std::time::Duration::from_secs(20));
            }
            let key = format!("made_up/{node}");
            assert_eq!(unsafe { has_value(args, &key) }, Ok(false), "the key of an earlier job");
            unsafe { put(args, &key, &all[0]) }?;
            assert_eq!(unsafe { has_value(args, &key) }, Ok(true));
            (0..nodes).map(|other| unsafe { get(args, &format!("made_up/{other}"), timeout()) }).collect()
        };
        match exchange() {
            Ok(topologies) => all = topologies,
            Err(failed) => return failed,
        }
        assert_eq!(VALUES.load(Ordering::SeqCst), 0);
    }
    eprintln!("made-up plugin: node {node} of {nodes} sees the devices {all:?}");
    let mut client = Client { devices: vec![], local: vec![], process: node };
    for (process, devices) in all.iter().enumerate() {
        for _ in devices {
            let device = Device { id: client.devices.len() as i32, process: process as i32 };
            let device: *mut PJRT_Device = Box::into_raw(Box::new(device)).cast();
            client.devices.push(device);
            if process as i32 == node {
                client.local.push(device);
            }
        }
    }
    args.client = Box::into_raw(Box::new(client)).cast();
    null_mut()
}

unsafe extern "C" fn succeed<T>(_: *mut T) -> ErrorPtr {
    null_mut()
}

unsafe extern "C" fn devices(args: *mut PJRT_Client_Devices_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    let client = unsafe { &*args.client.cast::<Client>() };
    (args.devices, args.num_devices) = (client.devices.as_ptr(), client.devices.len());
    null_mut()
}

unsafe extern "C" fn local(args: *mut PJRT_Client_AddressableDevices_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    let client = unsafe { &*args.client.cast::<Client>() };
    (args.addressable_devices, args.num_addressable_devices) = (client.local.as_ptr(), client.local.len());
    null_mut()
}

unsafe extern "C" fn name(args: *mut PJRT_Client_PlatformName_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    (args.platform_name, args.platform_name_size) = (c"made-up".as_ptr(), 7);
    null_mut()
}

unsafe extern "C" fn process(args: *mut PJRT_Client_ProcessIndex_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.process_index = unsafe { (*args.client.cast::<Client>()).process };
    null_mut()
}

unsafe extern "C" fn description(args: *mut PJRT_Device_GetDescription_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.device_description = args.device.cast();
    null_mut()
}

unsafe extern "C" fn id(args: *mut PJRT_DeviceDescription_Id_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.id = unsafe { (*args.device_description.cast::<Device>()).id };
    null_mut()
}

unsafe extern "C" fn process_of(args: *mut PJRT_DeviceDescription_ProcessIndex_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.process_index = unsafe { (*args.device_description.cast::<Device>()).process };
    null_mut()
}

unsafe extern "C" fn upload(args: *mut PJRT_Client_BufferFromHostBuffer_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.buffer = NonNull::dangling().as_ptr();
    args.done_with_host_buffer = NonNull::dangling().as_ptr();
    null_mut()
}

unsafe extern "C" fn ready(args: *mut PJRT_Event_OnReady_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    unsafe { args.callback.unwrap()(null_mut(), args.user_arg) };
    null_mut()
}

/// Addresses of the mapped blocks of memory.
static MAPPED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Maps memory, and refuses memory that is mapped already, as CUDA does.
unsafe extern "C" fn map(args: *mut PJRT_Client_DmaMap_Args) -> ErrorPtr {
    match MAPPED.lock().unwrap().insert(unsafe { (*args).data }.addr()) {
        true => null_mut(),
        false => fail(6, "mapped already".into()),
    }
}

unsafe extern "C" fn unmap(args: *mut PJRT_Client_DmaUnmap_Args) -> ErrorPtr {
    assert!(MAPPED.lock().unwrap().remove(&unsafe { (*args).data }.addr()), "it was not mapped");
    null_mut()
}

/// Returns the plugin's only executable, which has no results and runs on the first device.
unsafe extern "C" fn compile(args: *mut PJRT_Client_Compile_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.executable = args.client.cast();
    null_mut()
}

/// Loads the executable that `compile` returns. Crashes if `MADE_UP_CRASH` is set.
unsafe extern "C" fn load(args: *mut PJRT_Executable_DeserializeAndLoad_Args) -> ErrorPtr {
    if std::env::var_os("MADE_UP_CRASH").is_some() {
        std::process::abort();
    }
    let args = unsafe { &mut *args };
    args.loaded_executable = args.client.cast();
    null_mut()
}

unsafe extern "C" fn serialize(args: *mut PJRT_Executable_Serialize_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    (args.serialized_bytes, args.serialized_bytes_size) = (c"code".as_ptr(), 4);
    null_mut()
}

unsafe extern "C" fn executable(args: *mut PJRT_LoadedExecutable_GetExecutable_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.executable = args.loaded_executable.cast();
    null_mut()
}

unsafe extern "C" fn executable_devices(
    args: *mut PJRT_LoadedExecutable_AddressableDevices_Args,
) -> ErrorPtr {
    let args = unsafe { &mut *args };
    let client = unsafe { &*args.executable.cast::<Client>() };
    (args.addressable_devices, args.num_addressable_devices) = (client.local.as_ptr(), 1);
    null_mut()
}

unsafe extern "C" fn code(args: *mut PJRT_Error_GetCode_Args) -> ErrorPtr {
    let args = unsafe { &mut *args };
    args.code = PJRT_Error_Code(unsafe { (*args.error.cast::<Failure>()).code });
    null_mut()
}

unsafe extern "C" fn message(args: *mut PJRT_Error_Message_Args) {
    let args = unsafe { &mut *args };
    let message = unsafe { &(*args.error.cast::<Failure>()).message };
    (args.message, args.message_size) = (message.as_ptr().cast(), message.len());
}

unsafe extern "C" fn destroy(args: *mut PJRT_Error_Destroy_Args) {
    drop(unsafe { Box::from_raw((*args).error.cast::<Failure>()) });
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn GetPjrtApi() -> *const PJRT_Api {
    let mut api: PJRT_Api = unsafe { std::mem::zeroed() };
    api.struct_size = size_of::<PJRT_Api>();
    api.pjrt_api_version.minor_version = 81;
    api.PJRT_Error_GetCode = Some(code);
    api.PJRT_Error_Message = Some(message);
    api.PJRT_Error_Destroy = Some(destroy);
    api.PJRT_Plugin_Initialize = Some(succeed);
    api.PJRT_Client_Create = Some(create);
    api.PJRT_Client_Destroy = Some(succeed);
    api.PJRT_Client_Devices = Some(devices);
    api.PJRT_Client_AddressableDevices = Some(local);
    api.PJRT_Client_PlatformName = Some(name);
    api.PJRT_Client_ProcessIndex = Some(process);
    api.PJRT_Device_GetDescription = Some(description);
    api.PJRT_DeviceDescription_Id = Some(id);
    api.PJRT_DeviceDescription_ProcessIndex = Some(process_of);
    api.PJRT_Client_BufferFromHostBuffer = Some(upload);
    api.PJRT_Client_DmaMap = Some(map);
    api.PJRT_Client_DmaUnmap = Some(unmap);
    api.PJRT_Buffer_Destroy = Some(succeed);
    api.PJRT_Event_Await = Some(succeed);
    api.PJRT_Event_Destroy = Some(succeed);
    api.PJRT_Event_OnReady = Some(ready);
    api.PJRT_Client_Compile = Some(compile);
    api.PJRT_LoadedExecutable_GetExecutable = Some(executable);
    api.PJRT_LoadedExecutable_AddressableDevices = Some(executable_devices);
    api.PJRT_LoadedExecutable_Destroy = Some(succeed);
    api.PJRT_Executable_NumOutputs = Some(succeed);
    api.PJRT_Executable_Destroy = Some(succeed);
    api.PJRT_Executable_Serialize = Some(serialize);
    api.PJRT_Executable_DeserializeAndLoad = Some(load);
    Box::leak(Box::new(api))
}
