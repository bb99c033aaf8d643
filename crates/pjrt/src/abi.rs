//! Passes arguments to the functions of the C API.

use super::error::PjrtError;
use super::sys;
use std::ffi::c_char;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A C struct that is passed to the API by pointer, and that holds its own size in the field `struct_size`.
///
/// # Safety
///
/// The type is `#[repr(C)]`, and all bytes zero is a valid value of it.
pub(super) unsafe trait CStruct {
    /// Writes the `struct_size` field.
    fn set_size(&mut self, size: usize);
}

/// A C struct followed by zeros.
///
/// Newer versions of the API add fields at the end of its structs. A plugin refuses a struct that is smaller
/// than the struct that the plugin was built with, but accepts a larger struct. Zero has meant "default" for
/// every field added so far, so with this padding the same bindings work with newer plugins.
#[repr(C)]
pub(super) struct Padded<T> {
    inner: T,
    later_fields: [u64; 16],
}

impl<T: CStruct> Padded<T> {
    /// A struct of zeros with its size set.
    pub(super) fn new() -> Self {
        // SAFETY: `inner` may be all zeros, as `CStruct` promises. `later_fields` consists of integers, so it
        // may be all zeros too.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.inner.set_size(size_of::<Self>());
        zero
    }

    /// The pointer to pass to the plugin. Newer plugins read the padding through it as well.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        std::ptr::from_mut(self).cast()
    }
}

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Padded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

macro_rules! c_structs {
    ($($name:ident),* $(,)?) => {$(
        // SAFETY: bindgen declares these structs as `#[repr(C)]`. Their fields are integers, raw pointers,
        // `Option`s of function pointers, integer newtypes, and structs and unions of these types. Zero is a
        // valid value of each.
        unsafe impl CStruct for sys::$name {
            fn set_size(&mut self, size: usize) {
                self.struct_size = size;
            }
        }
    )*};
}

c_structs!(
    PJRT_Buffer_Destroy_Args,
    PJRT_Buffer_Dimensions_Args,
    PJRT_Buffer_ElementType_Args,
    PJRT_Buffer_MemoryLayout,
    PJRT_Buffer_MemoryLayout_Tiled,
    PJRT_Buffer_ReadyEvent_Args,
    PJRT_Buffer_ToHostBuffer_Args,
    PJRT_Buffer_UnsafePointer_Args,
    PJRT_Client_AddressableDevices_Args,
    PJRT_Client_Devices_Args,
    PJRT_Client_ProcessIndex_Args,
    PJRT_Client_BufferFromHostBuffer_Args,
    PJRT_Client_Compile_Args,
    PJRT_Client_Create_Args,
    PJRT_Client_Destroy_Args,
    PJRT_Client_DmaMap_Args,
    PJRT_Client_DmaUnmap_Args,
    PJRT_Client_PlatformName_Args,
    PJRT_Client_PlatformVersion_Args,
    PJRT_Compile_Args,
    PJRT_DeviceDescription_DebugString_Args,
    PJRT_DeviceDescription_Id_Args,
    PJRT_DeviceDescription_Kind_Args,
    PJRT_DeviceDescription_ProcessIndex_Args,
    PJRT_Device_GetDescription_Args,
    PJRT_Error_Destroy_Args,
    PJRT_Error_GetCode_Args,
    PJRT_Error_Message_Args,
    PJRT_Event_Await_Args,
    PJRT_Event_Destroy_Args,
    PJRT_Event_OnReady_Args,
    PJRT_ExecuteOptions,
    PJRT_Executable_DeserializeAndLoad_Args,
    PJRT_Executable_Destroy_Args,
    PJRT_Executable_NumOutputs_Args,
    PJRT_Executable_Serialize_Args,
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args,
    PJRT_LoadedExecutable_AddressableDevices_Args,
    PJRT_LoadedExecutable_Destroy_Args,
    PJRT_LoadedExecutable_Execute_Args,
    PJRT_LoadedExecutable_GetExecutable_Args,
    PJRT_NamedValue,
    PJRT_Plugin_Initialize_Args,
    PJRT_Program,
    PJRT_TopologyDescription_Create_Args,
    PJRT_TopologyDescription_Destroy_Args,
);

/// `args!(Name { field: value })`: a zeroed, padded struct `Name` with these fields set.
macro_rules! args {
    ($name:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        #[allow(unused_mut)]
        let mut args = $crate::abi::Padded::<$crate::sys::$name>::new();
        $(args.$field = $value;)*
        args
    }};
}

/// `call!(plugin, Function, args)`: calls a function of the plugin's table. Returns a
/// [`PjrtError`](super::PjrtError) if the plugin returns an error or its table lacks the function. Unsafe:
/// see [`super::Plugin::invoke`].
macro_rules! call {
    ($plugin:expr, $function:ident, $args:expr) => {
        $plugin.invoke(
            stringify!($function),
            std::mem::offset_of!($crate::sys::PJRT_Api, $function),
            &mut $args,
        )
    };
}

/// Checks that the pointer that a successful `call` returned is not null.
pub(super) fn non_null<T>(pointer: *mut T, call: &'static str) -> Result<NonNull<T>, PjrtError> {
    NonNull::new(pointer).ok_or(PjrtError::Nothing { call })
}

/// The code of a StableHLO program, followed by a zero byte that `code_size` does not count: MLIR's text
/// parser reads the byte after the code, and continues if it is not zero.
pub(super) struct ProgramCode(Vec<u8>);

impl ProgramCode {
    pub(super) fn new(code: &[u8]) -> Self {
        Self([code, &[0]].concat())
    }

    /// The program as a C struct, which points into this code.
    pub(super) fn program(&self) -> Padded<sys::PJRT_Program> {
        const FORMAT: &[u8] = b"mlir";
        args!(PJRT_Program {
            code: self.0.as_ptr().cast::<c_char>().cast_mut(), // only read
            code_size: self.0.len() - 1,
            format: FORMAT.as_ptr().cast(),
            format_size: FORMAT.len(),
        })
    }
}

/// Copies a text that the plugin returned.
///
/// # Safety
///
/// `start` is null or points to `len` readable bytes.
pub(super) unsafe fn text(start: *const c_char, len: usize) -> String {
    // SAFETY: the caller promises what `slice` requires.
    String::from_utf8_lossy(unsafe { slice(start.cast(), len) }).into_owned()
}

/// A C array as a slice; empty if `start` is null.
///
/// # Safety
///
/// `start` is null or points to `len` valid values that live and do not change for `'a`.
pub(super) unsafe fn slice<'a, T>(start: *const T, len: usize) -> &'a [T] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: `start` is not null. The caller promises that it points to `len` valid values, which live and
    // do not change for `'a`.
    unsafe { std::slice::from_raw_parts(start, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_arguments_includes_their_padding() {
        let args = args!(PJRT_Error_Message_Args {});
        assert_eq!(args.struct_size, size_of::<sys::PJRT_Error_Message_Args>() + 128);
        assert!(args.error.is_null());
    }

    #[test]
    fn a_null_array_is_an_empty_slice() {
        // SAFETY: `slice` allows a null pointer.
        assert!(unsafe { slice::<u8>(std::ptr::null(), 3) }.is_empty());
    }
}
