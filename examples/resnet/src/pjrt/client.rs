//! The devices of a plugin.

use super::abi::{given, program, slice, text};
use super::buffer::{Buffer, Element, Handle, Spec};
use super::error::{Error, Result};
use super::event::Event;
use super::executable::{Executable, Signature};
use super::{CompileOptions, Plugin, sys};
use std::ptr::NonNull;
use std::sync::Arc;

/// The devices that a plugin drives. Clones share them; the last one closes them.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    plugin: Plugin,
    client: NonNull<sys::PJRT_Client>,
    /// Those of this process, owned by the client.
    devices: Vec<*mut sys::PJRT_Device>,
}

// SAFETY: clients and devices may be used from any thread at once (the API's contract); the pointers are
// constant and live until the client is destroyed in `drop`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut args = args!(PJRT_Client_Destroy_Args { client: self.client.as_ptr() });
        // SAFETY: buffers and executables hold a clone of the `Arc`, so none is left.
        let _ = unsafe { call!(self.plugin, PJRT_Client_Destroy, args) };
    }
}

impl Client {
    pub(super) fn create(plugin: Plugin, options: &[(&str, i64)]) -> Result<Self> {
        let options: Vec<_> = options.iter().map(|(name, value)| named_int(name, *value)).collect();
        let mut args =
            args!(PJRT_Client_Create_Args { create_options: options.as_ptr(), num_options: options.len() });
        // SAFETY: the options and their names live during the call, which copies them.
        unsafe { call!(plugin, PJRT_Client_Create, args) }?;
        // Owned from here on, so that an error below closes it.
        let client = given(args.client, "PJRT_Client_Create")?;
        let mut inner = Inner { plugin, client, devices: vec![] };
        let mut args = args!(PJRT_Client_AddressableDevices_Args { client: client.as_ptr() });
        // SAFETY: the client is alive; the array belongs to it and is copied at once.
        inner.devices = unsafe {
            call!(plugin, PJRT_Client_AddressableDevices, args)?;
            slice(args.addressable_devices, args.num_addressable_devices).to_vec()
        };
        if inner.devices.iter().any(|d| d.is_null()) {
            return Err(Error::Nothing { call: "PJRT_Client_AddressableDevices" });
        }
        Ok(Self(Arc::new(inner)))
    }

    /// What the plugin calls its kind of device: "cpu", "tpu", "cuda" …
    pub fn platform(&self) -> Result<String> {
        let mut args = args!(PJRT_Client_PlatformName_Args { client: self.0.client.as_ptr() });
        // SAFETY: the client is alive, and so is its name.
        unsafe {
            call!(self.0.plugin, PJRT_Client_PlatformName, args)?;
            Ok(text(args.platform_name, args.platform_name_size))
        }
    }

    /// The number of devices of this process.
    pub fn devices(&self) -> usize {
        self.0.devices.len()
    }

    /// Compiles StableHLO (text, bytecode or portable artifact) for the first
    /// [`devices()`](CompileOptions::devices) devices. Device `i` of the executable is device `i` of the
    /// client.
    ///
    /// The C API cannot be asked for a program's parameters, so `signature` says them.
    pub fn compile(&self, code: &[u8], signature: Signature, options: &CompileOptions) -> Result<Executable> {
        let wanted = options.devices();
        if wanted == 0 || wanted > self.devices() {
            let have = format!("1 to {}", self.devices());
            return Err(Error::mismatch("number of devices of the program", have, wanted));
        }
        let ids = self.0.devices[..wanted].iter().map(|d| self.device_id(*d)).collect::<Result<Vec<_>>>()?;
        let encoded = options.encode(&ids);
        let mut program = program(code);
        let mut args = args!(PJRT_Client_Compile_Args {
            client: self.0.client.as_ptr(),
            program: program.as_mut_ptr(),
            compile_options: encoded.as_ptr().cast(),
            compile_options_size: encoded.len(),
        });
        // SAFETY: the client is alive; program, code and options live during the call.
        unsafe { call!(self.0.plugin, PJRT_Client_Compile, args) }?;
        // SAFETY: a new executable, handed over.
        unsafe { Executable::from_raw(self.clone(), args.executable, signature, wanted) }
    }

    /// Copies a dense array, last dimension fastest, to a device. `data` may be reused on return.
    pub fn upload<T: Element>(&self, data: &[T], dims: &[i64], device: usize) -> Result<Buffer> {
        let spec = Spec::of::<T>(dims);
        if spec.elements() != Some(data.len()) {
            return Err(Error::mismatch("values to upload", spec, data.len()));
        }
        let Some(&target) = self.0.devices.get(device) else {
            return Err(Error::mismatch("device", format!("one below {}", self.devices()), device));
        };
        let mut args = args!(PJRT_Client_BufferFromHostBuffer_Args {
            client: self.0.client.as_ptr(),
            data: data.as_ptr().cast(),
            type_: T::TYPE.to_raw(),
            dims: dims.as_ptr(),
            num_dims: dims.len(),
            host_buffer_semantics:
                sys::PJRT_HostBufferSemantics::PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
            device: target,
        });
        // SAFETY: client and device are alive; `data` has as many values of this type as the dimensions
        // say, and the plugin keeps no reference to it after the call (ImmutableOnlyDuringCall).
        unsafe {
            call!(self.0.plugin, PJRT_Client_BufferFromHostBuffer, args)?;
            let done = Event::from_raw(self.0.plugin, args.done_with_host_buffer);
            let handle = Handle::from_raw(self, args.buffer, "PJRT_Client_BufferFromHostBuffer")?;
            done.map_or(Ok(()), Event::wait)?;
            Ok(Buffer::new(handle, spec.into(), device))
        }
    }

    pub(super) fn plugin(&self) -> Plugin {
        self.0.plugin
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The id of a device of this client, by which compile options name it.
    fn device_id(&self, device: *mut sys::PJRT_Device) -> Result<i64> {
        let mut of = args!(PJRT_Device_GetDescription_Args { device: device });
        // SAFETY: devices and their descriptions live as long as the client.
        unsafe {
            call!(self.0.plugin, PJRT_Device_GetDescription, of)?;
            let description = given(of.device_description, "PJRT_Device_GetDescription")?;
            let mut id = args!(PJRT_DeviceDescription_Id_Args { device_description: description.as_ptr() });
            call!(self.0.plugin, PJRT_DeviceDescription_Id, id)?;
            Ok(id.id.into())
        }
    }
}

/// An integer option; `name` must outlive every use of the result.
fn named_int(name: &str, value: i64) -> sys::PJRT_NamedValue {
    let mut option = *args!(PJRT_NamedValue {
        name: name.as_ptr().cast(),
        name_size: name.len(),
        type_: sys::PJRT_NamedValue_Type::PJRT_NamedValue_kInt64,
        value_size: 1,
    });
    option.__bindgen_anon_1.int64_value = value;
    // These stand in an array, whose stride is the size without padding.
    option.struct_size = size_of::<sys::PJRT_NamedValue>();
    option
}
