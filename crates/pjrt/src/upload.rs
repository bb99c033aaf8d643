//! Copies arrays from the host to a device.

use super::buffer::{Buffer, Element, Handle, Spec};
use super::error::PjrtError;
use super::event::Event;
use super::{Client, sys};
use bytes::Bytes;
use std::ffi::c_void;

/// The function of the C API that uploads an array.
const CALL: &str = "PJRT_Client_BufferFromHostBuffer";

impl Client {
    /// Copies a dense array in row-major order to device `device` of this process. When the function returns,
    /// the plugin no longer reads `data`.
    pub fn upload<T: Element>(&self, data: &[T], dims: &[i64], device: usize) -> Result<Buffer, PjrtError> {
        let spec = Spec::of::<T>(dims);
        check(&spec, data.len())?;
        let semantics = sys::PJRT_HostBufferSemantics::PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
        // SAFETY: `data` has as many values of this type as the dimensions say, and the plugin keeps no
        // reference to it after the call (ImmutableOnlyDuringCall).
        let (handle, done) = unsafe { self.start(data.as_ptr().cast(), &spec, device, semantics) }?;
        done.map_or(Ok(()), Event::wait)?;
        Ok(Buffer::new(handle?, spec.into(), device))
    }

    /// Starts to copy a dense array of bytes in row-major order to device `device` of this process, and
    /// returns at once. The device copies from the memory of `bytes`, without another copy on the host. A
    /// thread of the plugin drops `bytes` as soon as the transfer has ended or failed. Reading the array
    /// waits for the transfer, and returns an error if it failed.
    pub fn upload_bytes(&self, bytes: Bytes, dims: &[i64], device: usize) -> Result<Buffer, PjrtError> {
        let spec = Spec::of::<u8>(dims);
        check(&spec, bytes.len())?;
        let semantics =
            sys::PJRT_HostBufferSemantics::PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
        // SAFETY: `bytes` has as many bytes as the dimensions say. Nobody can change these bytes, and moving
        // the value `bytes` does not move its memory. `bytes` is kept until the event says that the plugin no
        // longer reads its memory. A call that fails keeps no reference.
        let (handle, done) = unsafe { self.start(bytes.as_ptr().cast(), &spec, device, semantics) }?;
        match done {
            // The bytes are dropped before the client, since their memory may be mapped for the client's
            // devices.
            Some(done) => done.keep((bytes, self.clone()))?,
            None => {
                // Without an event the end of the transfer is unknown, so the bytes must never be freed.
                std::mem::forget(bytes);
                return Err(PjrtError::Nothing { call: CALL });
            }
        }
        Ok(Buffer::new(handle?, spec.into(), device))
    }

    /// Starts a transfer. Returns the array, and the event after which the plugin no longer reads `data`.
    ///
    /// # Safety
    ///
    /// `data` points to an array of this spec. The array is neither freed nor changed during the time that
    /// `semantics` states.
    unsafe fn start(
        &self,
        data: *const c_void,
        spec: &Spec,
        device: usize,
        semantics: sys::PJRT_HostBufferSemantics,
    ) -> Result<(Result<Handle, PjrtError>, Option<Event>), PjrtError> {
        let mut args = args!(PJRT_Client_BufferFromHostBuffer_Args {
            client: self.as_ptr(),
            data: data,
            type_: spec.element.to_raw(),
            dims: spec.dims.as_ptr(),
            num_dims: spec.dims.len(),
            host_buffer_semantics: semantics,
            device: self.local_device(device)?,
        });
        // SAFETY: client and device are alive, the dimensions live during the call, and `data` lives as long
        // as needed, as the caller promises. The plugin hands array and event over to us.
        unsafe {
            call!(self.plugin(), PJRT_Client_BufferFromHostBuffer, args)?;
            let done = Event::from_raw(self.plugin(), args.done_with_host_buffer);
            let handle = Handle::from_raw(self, args.buffer, CALL);
            if let Ok(handle) = &handle {
                handle.keep_client();
            }
            Ok((handle, done))
        }
    }
}

fn check(spec: &Spec, values: usize) -> Result<(), PjrtError> {
    if spec.elements() == Some(values) {
        return Ok(());
    }
    Err(PjrtError::mismatch("values to upload", spec, values))
}
