//! Arrays on a device.

use super::abi::{non_null, slice};
use super::client::Client;
use super::error::PjrtError;
use super::event::Event;
use super::sys;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// The type of the elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElementType {
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// Another type: the value is its number in the C API. A buffer with such elements can be passed to a
    /// program, but cannot be copied to the host.
    Other(u32),
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that the elements of a device array can have. Sealed: every bit pattern must be a valid value
/// of the type.
pub trait Element: Copy + Default + sealed::Sealed {
    /// The element type of the API.
    const TYPE: ElementType;
}

/// `elements!(rust type, variant, constant of the C API; ...)`
macro_rules! elements {
    ($($rust:ident, $variant:ident, $raw:ident;)*) => {
        $(
            impl sealed::Sealed for $rust {}
            impl Element for $rust {
                const TYPE: ElementType = ElementType::$variant;
            }
        )*

        impl ElementType {
            pub(super) fn to_raw(self) -> sys::PJRT_Buffer_Type {
                match self {
                    $(Self::$variant => sys::PJRT_Buffer_Type::$raw,)*
                    Self::Other(number) => sys::PJRT_Buffer_Type(number),
                }
            }

            fn from_raw(raw: sys::PJRT_Buffer_Type) -> Self {
                match raw {
                    $(sys::PJRT_Buffer_Type::$raw => Self::$variant,)*
                    sys::PJRT_Buffer_Type(number) => Self::Other(number),
                }
            }
        }

        impl fmt::Display for ElementType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str(stringify!($rust)),)*
                    Self::Other(number) => write!(f, "type {number}"),
                }
            }
        }
    };
}

elements! {
    i8, I8, PJRT_Buffer_Type_S8;
    i16, I16, PJRT_Buffer_Type_S16;
    i32, I32, PJRT_Buffer_Type_S32;
    i64, I64, PJRT_Buffer_Type_S64;
    u8, U8, PJRT_Buffer_Type_U8;
    u16, U16, PJRT_Buffer_Type_U16;
    u32, U32, PJRT_Buffer_Type_U32;
    u64, U64, PJRT_Buffer_Type_U64;
    f32, F32, PJRT_Buffer_Type_F32;
    f64, F64, PJRT_Buffer_Type_F64;
}

/// Type and dimensions of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Type of the elements.
    pub element: ElementType,
    /// Lengths of the dimensions; empty for a scalar.
    pub dims: Vec<i64>,
}

impl Spec {
    /// The spec of an array of `T`.
    pub fn of<T: Element>(dims: &[i64]) -> Self {
        Self { element: T::TYPE, dims: dims.to_vec() }
    }

    /// The number of elements; `None` if a dimension is negative or the number overflows.
    pub fn elements(&self) -> Option<usize> {
        let dims = self.dims.iter();
        dims.map(|d| usize::try_from(*d).ok()).try_fold(1usize, |n, d| n.checked_mul(d?))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.element, self.dims)
    }
}

/// The plugin's handle of a buffer. Dropping the handle frees the buffer.
#[derive(Debug)]
pub(super) struct Handle {
    client: Client,
    buffer: NonNull<sys::PJRT_Buffer>,
}

// SAFETY: buffers may be used from any thread (the API's contract); the pointer does not change, and is valid
// until `drop`.
unsafe impl Send for Handle {}
// SAFETY: as above; no method changes the array.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut args = args!(PJRT_Buffer_Destroy_Args { buffer: self.buffer.as_ptr() });
        // SAFETY: the buffer is ours and is not used again; the client is still alive. The plugin keeps the
        // array as long as work in flight reads it.
        let _ = unsafe { call!(self.client.plugin(), PJRT_Buffer_Destroy, args) };
    }
}

impl Handle {
    /// Takes ownership of a buffer that `call` returned.
    ///
    /// # Safety
    ///
    /// `buffer` is null or a live buffer of `client` that nobody else destroys.
    pub(super) unsafe fn from_raw(
        client: &Client,
        buffer: *mut sys::PJRT_Buffer,
        call: &'static str,
    ) -> Result<Self, PjrtError> {
        Ok(Self { client: client.clone(), buffer: non_null(buffer, call)? })
    }

    /// Keeps the client open until the array is complete or its transfer has failed. If a client is closed
    /// during a transfer, the plugin may abandon the transfer and release its source memory.
    pub(super) fn keep_client(&self) {
        let plugin = self.client.plugin();
        let mut args = args!(PJRT_Buffer_ReadyEvent_Args { buffer: self.buffer.as_ptr() });
        // SAFETY: the buffer is alive; the plugin hands the event over to us.
        let event = unsafe {
            match call!(plugin, PJRT_Buffer_ReadyEvent, args) {
                Ok(()) => Event::from_raw(plugin, args.event),
                // Without the event, the client may be closed during the transfer.
                Err(_) => None,
            }
        };
        if let Some(event) = event {
            // If the plugin has no callbacks, `keep` waits for the transfer; if waiting fails too, `keep`
            // leaks the client, which then stays open.
            let _ = event.keep(self.client.clone());
        }
    }

    /// Reads type and dimensions from the plugin.
    pub(super) fn spec(&self) -> Result<Spec, PjrtError> {
        let plugin = self.client.plugin();
        let mut element = args!(PJRT_Buffer_ElementType_Args { buffer: self.buffer.as_ptr() });
        let mut dims = args!(PJRT_Buffer_Dimensions_Args { buffer: self.buffer.as_ptr() });
        // SAFETY: the buffer is alive. The dimensions live as long as the buffer, and are copied.
        unsafe {
            call!(plugin, PJRT_Buffer_ElementType, element)?;
            call!(plugin, PJRT_Buffer_Dimensions, dims)?;
            Ok(Spec {
                element: ElementType::from_raw(element.type_),
                dims: slice(dims.dims, dims.num_dims).to_vec(),
            })
        }
    }
}

/// An array on a device. Dropping the buffer frees the array. An array that is still being uploaded or
/// computed can be passed to programs; reading it waits until it is complete.
#[derive(Debug)]
pub struct Buffer {
    handle: Handle,
    spec: Arc<Spec>,
    device: usize,
}

impl Buffer {
    /// `device` is the number of a local device of the handle's client.
    pub(super) fn new(handle: Handle, spec: Arc<Spec>, device: usize) -> Self {
        Self { handle, spec, device }
    }

    /// Type and dimensions of the array.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number of the device of this process that holds the array.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Waits until the array is complete and copies it to the host, in row-major order.
    pub fn to_host<T: Element>(&self) -> Result<Vec<T>, PjrtError> {
        let wanted = Spec { element: T::TYPE, dims: self.spec.dims.clone() };
        if *self.spec != wanted {
            return Err(PjrtError::mismatch("buffer to read", wanted, &self.spec));
        }
        let plugin = self.handle.client.plugin();
        let elements = self.spec.elements().unwrap_or(0);
        let mut values = vec![T::default(); elements];
        // Without a layout, the plugin would copy in the device's own order of dimensions.
        let row_major: Vec<i64> = (0..self.spec.dims.len() as i64).rev().collect();
        let mut layout = args!(PJRT_Buffer_MemoryLayout {
            type_: sys::PJRT_Buffer_MemoryLayout_Type::PJRT_Buffer_MemoryLayout_Type_Tiled,
        });
        let mut tiled = *args!(PJRT_Buffer_MemoryLayout_Tiled {
            minor_to_major: row_major.as_ptr(),
            minor_to_major_size: row_major.len(),
        });
        tiled.struct_size = size_of::<sys::PJRT_Buffer_MemoryLayout_Tiled>(); // nested, so not padded
        layout.__bindgen_anon_1.tiled = tiled;
        let mut args = args!(PJRT_Buffer_ToHostBuffer_Args {
            src: self.handle.buffer.as_ptr(),
            host_layout: layout.as_mut_ptr(),
            dst: values.as_mut_ptr().cast(),
            dst_size: size_of_val(values.as_slice()),
        });
        // SAFETY: buffer and layout live during the call. The destination has `dst_size` bytes, of a type for
        // which any bits are valid. It is not freed before the event `copied` has happened.
        unsafe {
            call!(plugin, PJRT_Buffer_ToHostBuffer, args)?;
            let Some(copied) = Event::from_raw(plugin, args.event) else {
                // Without an event the end of the copy is unknown, so the destination must never be freed.
                std::mem::forget(values);
                return Err(PjrtError::Nothing { call: "PJRT_Buffer_ToHostBuffer" });
            };
            copied.wait()?;
        }
        Ok(values)
    }

    /// Waits until a scalar is complete and copies it to the host.
    pub fn scalar<T: Element>(&self) -> Result<T, PjrtError> {
        match self.to_host()?.as_slice() {
            [value] => Ok(*value),
            values => Err(PjrtError::mismatch("scalar to read", "one value", values.len())),
        }
    }

    /// Address of the array in its device's memory. If a result has the same address as an argument, the
    /// program has reused the argument's memory for the result.
    pub fn address(&self) -> Result<usize, PjrtError> {
        let mut args = args!(PJRT_Buffer_UnsafePointer_Args { buffer: self.as_ptr() });
        // SAFETY: the buffer is alive; the address is not dereferenced.
        unsafe { call!(self.client().plugin(), PJRT_Buffer_UnsafePointer, args) }?;
        Ok(args.buffer_pointer)
    }

    pub(super) fn client(&self) -> &Client {
        &self.handle.client
    }

    pub(super) fn as_ptr(&self) -> *mut sys::PJRT_Buffer {
        self.handle.buffer.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_convert_to_the_c_api_and_back() {
        for number in 0..40 {
            let raw = sys::PJRT_Buffer_Type(number);
            assert_eq!(ElementType::from_raw(raw).to_raw(), raw);
        }
        assert_eq!(ElementType::from_raw(sys::PJRT_Buffer_Type::PJRT_Buffer_Type_F32), ElementType::F32);
        let other = sys::PJRT_Buffer_Type(200);
        assert_eq!(ElementType::from_raw(other), ElementType::Other(200));
    }

    #[test]
    fn elements_are_counted_without_overflow() {
        assert_eq!(Spec::of::<u8>(&[]).elements(), Some(1));
        assert_eq!(Spec::of::<u8>(&[2, 3, 0]).elements(), Some(0));
        assert_eq!(Spec::of::<u8>(&[2, -3]).elements(), None);
        assert_eq!(Spec::of::<u8>(&[i64::MAX, 4]).elements(), None);
        assert_eq!(Spec::of::<i32>(&[2, 3]).to_string(), "i32[2, 3]");
    }
}
