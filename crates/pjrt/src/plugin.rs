//! Loads the shared library of a plugin, and calls the functions of its table.

use super::abi::{CStruct, Padded, text};
use super::error::{Code, PjrtError};
use super::sys;
use std::mem::offset_of;
use std::path::Path;
use std::ptr::NonNull;

/// A loaded PJRT plugin.
///
/// It stays loaded until the process ends: plugins start threads, and do not support unloading.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    api: NonNull<sys::PJRT_Api>,
}

// SAFETY: the table is constant and lives as long as the process (the library is never unloaded), and the
// API's functions may be called from any thread.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

type ApiFunction<T> = unsafe extern "C" fn(*mut T) -> *mut sys::PJRT_Error;

impl Plugin {
    /// Loads the plugin at `path` and initialises it.
    ///
    /// This runs the library's code, so the path must be one that the user trusts.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, PjrtError> {
        let path = path.as_ref();
        let not_a_plugin = |reason: String| PjrtError::NotAPlugin { path: path.into(), reason };
        // SAFETY: loading runs the library's initialisers; the documentation asks for a trusted path.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|source| PjrtError::Load { path: path.into(), source })?;
        let api = {
            // SAFETY: this name has this type in every PJRT plugin.
            let get =
                unsafe { library.get::<unsafe extern "C" fn() -> *const sys::PJRT_Api>(b"GetPjrtApi\0") }
                    .map_err(|_| not_a_plugin("it does not export GetPjrtApi".into()))?;
            // SAFETY: the function has no parameters and may be called at any time.
            unsafe { get() }
        };
        std::mem::forget(library);
        let api =
            NonNull::new(api.cast_mut()).ok_or_else(|| not_a_plugin("GetPjrtApi returned null".into()))?;
        let plugin = Self { api };
        if plugin.table_size() < offset_of!(sys::PJRT_Api, PJRT_Error_Destroy) {
            return Err(not_a_plugin("its table of functions is too short".into()));
        }
        let (major, minor) = plugin.version();
        if major != 0 {
            return Err(not_a_plugin(format!(
                "it has API version {major}.{minor}, and only 0.x is supported"
            )));
        }
        // SAFETY: initialisation has no arguments besides the struct.
        unsafe { call!(plugin, PJRT_Plugin_Initialize, args!(PJRT_Plugin_Initialize_Args {})) }?;
        Ok(plugin)
    }

    /// Version of the C API that the plugin was built with, as (major, minor).
    pub fn version(&self) -> (i32, i32) {
        // SAFETY: the version is at the start of the table in all versions.
        let v = unsafe { &raw const (*self.api.as_ptr()).pjrt_api_version };
        // SAFETY: as above.
        unsafe { ((*v).major_version, (*v).minor_version) }
    }

    /// Size of the table in bytes. The table of an older plugin is shorter than the table in our bindings.
    fn table_size(&self) -> usize {
        // SAFETY: `struct_size` is the first field of the table in all versions.
        unsafe { (*self.api.as_ptr()).struct_size }
    }

    /// The plugin's extension of this type, if there is one.
    pub(super) fn extension(
        &self,
        wanted: sys::PJRT_Extension_Type,
    ) -> Option<NonNull<sys::PJRT_Extension_Base>> {
        // SAFETY: `extension_start` is the second field of the table in all versions.
        let mut next = unsafe { (*self.api.as_ptr()).extension_start };
        loop {
            let extension = NonNull::new(next)?;
            // SAFETY: the plugin's extensions are a list that lives as long as the table, and each begins
            // with these fields.
            let base = unsafe { extension.as_ref() };
            if base.type_ == wanted {
                return Some(extension);
            }
            next = base.next;
        }
    }

    /// The function at `offset` of the table, if the table has it.
    ///
    /// # Safety
    ///
    /// At `offset` [`sys::PJRT_Api`] has an `Option` of a function of type `F`.
    unsafe fn function<F>(&self, offset: usize) -> Option<F> {
        if offset + size_of::<Option<F>>() > self.table_size() {
            return None;
        }
        // SAFETY: the field is inside the table, and it has this type by the caller's promise. The field is
        // read by its offset, since a reference to the whole table would cover more memory than the table of
        // an older plugin has.
        unsafe { self.api.as_ptr().cast::<u8>().add(offset).cast::<Option<F>>().read() }
    }

    /// Calls the function at `offset` of the table; used through `call!`.
    ///
    /// # Safety
    ///
    /// `T` is the argument struct of the function at `offset`. The pointers in its fields meet the function's
    /// contract in `pjrt_c_api.h`.
    pub(super) unsafe fn invoke<T: CStruct>(
        &self,
        call: &'static str,
        offset: usize,
        args: &mut Padded<T>,
    ) -> Result<(), PjrtError> {
        // SAFETY: `offset` belongs to a function that takes a `T`, as the caller promises.
        let function =
            unsafe { self.function::<ApiFunction<T>>(offset) }.ok_or(PjrtError::Missing { call })?;
        // SAFETY: the fields of `args` meet the function's contract, as the caller promises. The pointer is
        // valid for `struct_size` bytes.
        let error = unsafe { function(args.as_mut_ptr()) };
        match NonNull::new(error) {
            None => Ok(()),
            // SAFETY: a non-null result is an error, which we must destroy.
            Some(error) => Err(unsafe { self.take_error(call, error) }),
        }
    }

    /// Converts a plugin's error to a [`PjrtError`] and destroys it.
    ///
    /// # Safety
    ///
    /// `error` comes from this plugin and is not used afterwards.
    pub(super) unsafe fn take_error(&self, call: &'static str, error: NonNull<sys::PJRT_Error>) -> PjrtError {
        type Void<T> = unsafe extern "C" fn(*mut T);
        let mut code = args!(PJRT_Error_GetCode_Args { error: error.as_ptr() });
        let mut message = args!(PJRT_Error_Message_Args { error: error.as_ptr() });
        let mut destroy = args!(PJRT_Error_Destroy_Args { error: error.as_ptr() });
        // SAFETY: each of these functions has the same signature in all versions of the API. The caller
        // passes a live error. The message is copied before the error is destroyed.
        unsafe {
            let offset = offset_of!(sys::PJRT_Api, PJRT_Error_GetCode);
            if let Some(get_code) = self.function::<ApiFunction<_>>(offset) {
                // If this fails, the code stays 0; the message still says what is wrong.
                get_code(code.as_mut_ptr());
            }
            let offset = offset_of!(sys::PJRT_Api, PJRT_Error_Message);
            if let Some(get_message) = self.function::<Void<_>>(offset) {
                get_message(message.as_mut_ptr());
            }
            let message = text(message.message, message.message_size);
            let offset = offset_of!(sys::PJRT_Api, PJRT_Error_Destroy);
            if let Some(free) = self.function::<Void<_>>(offset) {
                free(destroy.as_mut_ptr());
            }
            PjrtError::Call { call, code: Code(code.code.0), message }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error() {
        let e = Plugin::load("no/such/plugin.so").unwrap_err();
        assert!(matches!(e, PjrtError::Load { .. }), "{e}");
    }

    type ErrorPtr = *mut sys::PJRT_Error;

    unsafe extern "C" fn succeed<T>(_: *mut T) -> ErrorPtr {
        std::ptr::null_mut()
    }

    /// A plugin with the functions that `fill` sets, and no others.
    pub(in super::super) fn fake_plugin(fill: impl FnOnce(&mut sys::PJRT_Api)) -> Plugin {
        // SAFETY: integers, pointers and `Option`s of function pointers may all be zero.
        let mut api: sys::PJRT_Api = unsafe { std::mem::zeroed() };
        api.struct_size = size_of::<sys::PJRT_Api>();
        fill(&mut api);
        Plugin { api: NonNull::from(Box::leak(Box::new(api))) }
    }

    #[track_caller]
    fn assert_returned_nothing<T: std::fmt::Debug>(result: Result<T, PjrtError>, function: &str) {
        let e = result.unwrap_err();
        assert!(matches!(e, PjrtError::Nothing { call } if call == function), "{e}");
    }

    #[test]
    fn success_without_a_result_is_an_error() {
        let plugin = fake_plugin(|api| api.PJRT_Client_Create = Some(succeed));
        assert_returned_nothing(plugin.client(&[]), "PJRT_Client_Create");

        unsafe extern "C" fn some_client(args: *mut sys::PJRT_Client_Create_Args) -> ErrorPtr {
            // SAFETY: the caller passes a valid pointer. The fake functions never dereference the client.
            unsafe { (*args).client = NonNull::dangling().as_ptr() };
            std::ptr::null_mut()
        }
        unsafe extern "C" fn null_device(args: *mut sys::PJRT_Client_AddressableDevices_Args) -> ErrorPtr {
            let devices: &[*mut sys::PJRT_Device] = Box::leak(Box::new([std::ptr::null_mut()]));
            // SAFETY: the caller passes a valid pointer.
            unsafe {
                (*args).addressable_devices = devices.as_ptr();
                (*args).num_addressable_devices = devices.len();
            }
            std::ptr::null_mut()
        }
        let plugin = fake_plugin(|api| {
            api.PJRT_Client_Create = Some(some_client);
            api.PJRT_Client_Destroy = Some(succeed);
            api.PJRT_Client_AddressableDevices = Some(null_device);
        });
        assert_returned_nothing(plugin.client(&[]), "PJRT_Client_AddressableDevices");

        let plugin = fake_plugin(|api| api.PJRT_TopologyDescription_Create = Some(succeed));
        let options = super::super::CompileOptions::default();
        assert_returned_nothing(
            plugin.compile_for("v3:2x2", &[], &options),
            "PJRT_TopologyDescription_Create",
        );
    }

    #[test]
    fn a_function_beyond_the_end_of_a_short_table_is_missing() {
        let plugin = fake_plugin(|api| {
            api.PJRT_Client_Create = Some(succeed);
            api.struct_size = offset_of!(sys::PJRT_Api, PJRT_Client_Create);
        });
        let e = plugin.client(&[]).unwrap_err();
        assert!(matches!(e, PjrtError::Missing { call: "PJRT_Client_Create" }), "{e}");
    }

    #[test]
    fn the_plugin_s_error_is_copied_and_destroyed_once() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static DESTROYED: AtomicU32 = AtomicU32::new(0);
        unsafe extern "C" fn refuse(_: *mut sys::PJRT_Client_Create_Args) -> ErrorPtr {
            NonNull::dangling().as_ptr()
        }
        unsafe extern "C" fn message(args: *mut sys::PJRT_Error_Message_Args) {
            const TEXT: &str = "no such device";
            // SAFETY: the caller passes a valid pointer.
            unsafe {
                (*args).message = TEXT.as_ptr().cast();
                (*args).message_size = TEXT.len();
            }
        }
        unsafe extern "C" fn destroy(_: *mut sys::PJRT_Error_Destroy_Args) {
            DESTROYED.fetch_add(1, Ordering::SeqCst);
        }
        let plugin = fake_plugin(|api| {
            api.PJRT_Client_Create = Some(refuse);
            api.PJRT_Error_Message = Some(message);
            api.PJRT_Error_Destroy = Some(destroy);
        });
        let e = plugin.client(&[]).unwrap_err();
        assert!(e.to_string().contains("no such device"), "{e}");
        assert_eq!(DESTROYED.load(Ordering::SeqCst), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_without_the_function_table_is_an_error() {
        let e = Plugin::load("libc.so.6").unwrap_err();
        assert!(matches!(e, PjrtError::NotAPlugin { .. }), "{e}");
    }
}
