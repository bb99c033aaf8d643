//! The devices of a plugin.

use super::abi::{non_null, slice, text};
use super::compile_options::{CompileOptions, Span};
use super::error::PjrtError;
use super::event::in_callback;
use super::key_values::{CallbackStore, KeyValues};
use super::{Plugin, PluginOption, sys};
use std::collections::BTreeSet;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

/// The devices that a plugin drives. Clones share the devices. When the last clone is dropped, the devices
/// are closed as soon as no transfer to them is under way.
///
/// In a job of several processes, as on a TPU slice of several hosts, each process sees the devices of the
/// whole job, but uploads data only to its own devices, the *local* devices. The devices of the job are
/// numbered from 0 in the order of their ids. The local devices have a second numbering, also from 0 in the
/// order of their ids.
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientInner>);

struct ClientInner {
    open: ManuallyDrop<OpenClient>,
    /// The devices of the whole job.
    devices: Vec<Device>,
    /// The devices of this process.
    local: Vec<Device>,
}

/// The plugin's handle of a client. Dropping the handle closes the devices.
struct OpenClient {
    plugin: Plugin,
    client: NonNull<sys::PJRT_Client>,
    /// The argument of the plugin's callbacks. The plugin may call them as long as the client lives.
    _store: Option<Box<CallbackStore>>,
}

impl fmt::Debug for ClientInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("devices", &self.devices).field("local", &self.local).finish()
    }
}

/// A device, owned by the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device {
    pub(super) device: *mut sys::PJRT_Device,
    /// The id that compile options use.
    pub(super) id: i64,
    /// The index of the process that drives the device.
    pub(super) process: i32,
}

// SAFETY: by the API's contract, several threads may use a client at the same time. The pointer never
// changes, and is valid until `drop` destroys the client.
unsafe impl Send for OpenClient {}
// SAFETY: as above.
unsafe impl Sync for OpenClient {}
// SAFETY: as above, and the devices live as long as the client.
unsafe impl Send for ClientInner {}
// SAFETY: as above.
unsafe impl Sync for ClientInner {}

impl Drop for OpenClient {
    fn drop(&mut self) {
        let mut args = args!(PJRT_Client_Destroy_Args { client: self.client.as_ptr() });
        // SAFETY: no buffer or executable of the client is alive: each holds a clone of the client's `Arc`.
        let _ = unsafe { call!(self.plugin, PJRT_Client_Destroy, args) };
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        // SAFETY: `self.open` is not used again.
        let open = unsafe { ManuallyDrop::take(&mut self.open) };
        if !in_callback() {
            return drop(open);
        }
        // A transfer held the last reference, and the current thread is the plugin's thread that ended the
        // transfer. Closing a client waits until the plugin's threads have ended: here, this thread would
        // wait for itself.
        let open = ManuallyDrop::new(open);
        let close = move || drop(ManuallyDrop::into_inner(open));
        // If no thread can be started, the client stays open.
        let _ = thread::Builder::new().name("pjrt-close".into()).spawn(close);
    }
}

impl Plugin {
    /// Opens the plugin's devices. If several options have the same name, the last one applies.
    pub fn client(&self, options: &[PluginOption]) -> Result<Client, PjrtError> {
        Client::create(*self, options, None)
    }

    /// Opens the devices of this process, as [`client`](Self::client) does, in a job of several processes.
    /// The processes exchange addresses through `values`. Waits until all processes have opened their
    /// devices.
    pub fn client_of_job(
        &self,
        options: &[PluginOption],
        values: Arc<dyn KeyValues>,
    ) -> Result<Client, PjrtError> {
        Client::create(*self, options, Some(values))
    }
}

impl Client {
    fn create(
        plugin: Plugin,
        options: &[PluginOption],
        values: Option<Arc<dyn KeyValues>>,
    ) -> Result<Self, PjrtError> {
        // If several options have the same name, the last one applies.
        let is_last = |(at, option): &(usize, &PluginOption)| {
            options[at + 1..].iter().all(|later| later.name != option.name)
        };
        let options: Vec<_> = options.iter().enumerate().filter(is_last).map(|(_, o)| o.to_raw()).collect();
        let mut args =
            args!(PJRT_Client_Create_Args { create_options: options.as_ptr(), num_options: options.len() });
        let store = values.map(CallbackStore::new);
        if let Some(store) = &store {
            // SAFETY: the store is kept beside the client, or is never freed.
            unsafe { store.set_callbacks(&mut args) };
        }
        // SAFETY: the options and their names live during the call, which copies them.
        let created = unsafe { call!(plugin, PJRT_Client_Create, args) };
        let client = match created.and_then(|()| non_null(args.client, "PJRT_Client_Create")) {
            Ok(client) => client,
            Err(error) => {
                // A thread of the plugin may still use the store, so it is leaked.
                return Err(match store {
                    Some(store) => Box::leak(store).explain(error),
                    None => error,
                });
            }
        };
        // From here on `inner` owns the client, so an error below closes it.
        let open = ManuallyDrop::new(OpenClient { plugin, client, _store: store });
        let mut inner = ClientInner { open, devices: vec![], local: vec![] };
        let mut local = args!(PJRT_Client_AddressableDevices_Args { client: client.as_ptr() });
        let mut all = args!(PJRT_Client_Devices_Args { client: client.as_ptr() });
        // SAFETY: the client is alive, and so are the arrays, which the client owns.
        unsafe {
            call!(plugin, PJRT_Client_AddressableDevices, local)?;
            let local = slice(local.addressable_devices, local.num_addressable_devices);
            inner.local = by_id(plugin, local, "PJRT_Client_AddressableDevices")?;
            call!(plugin, PJRT_Client_Devices, all)?;
            inner.devices = by_id(plugin, slice(all.devices, all.num_devices), "PJRT_Client_Devices")?;
        }
        Ok(Self(Arc::new(inner)))
    }

    /// The plugin's name for its kind of device: "cpu", "tpu", "cuda" …
    pub fn platform(&self) -> Result<String, PjrtError> {
        let mut args = args!(PJRT_Client_PlatformName_Args { client: self.as_ptr() });
        // SAFETY: the client is alive, and so is its name.
        unsafe {
            call!(self.0.open.plugin, PJRT_Client_PlatformName, args)?;
            Ok(text(args.platform_name, args.platform_name_size))
        }
    }

    /// The number of devices of the whole job.
    pub fn devices(&self) -> usize {
        self.0.devices.len()
    }

    /// The number of devices of this process.
    pub fn local_devices(&self) -> usize {
        self.0.local.len()
    }

    /// The number of processes of the job that have devices.
    pub fn processes(&self) -> usize {
        self.0.devices.iter().map(|d| d.process).collect::<BTreeSet<_>>().len()
    }

    /// Index of this process in the job; 0 if the job has only one process.
    pub fn process_index(&self) -> Result<usize, PjrtError> {
        let mut args = args!(PJRT_Client_ProcessIndex_Args { client: self.as_ptr() });
        // SAFETY: the client is alive.
        unsafe { call!(self.0.open.plugin, PJRT_Client_ProcessIndex, args) }?;
        Ok(usize::try_from(args.process_index).unwrap_or(0))
    }

    /// Encodes the compile options with the ids of the program's devices. Also returns how many of these
    /// devices are local.
    pub(super) fn encode(&self, span: Span, options: &CompileOptions) -> Result<(Vec<u8>, usize), PjrtError> {
        let devices = match span {
            Span::Job => &self.0.devices,
            Span::Process => &self.0.local,
        };
        let wanted = options.devices();
        if wanted == 0 || wanted > devices.len() {
            let have = format!("1 to {}", devices.len());
            return Err(PjrtError::mismatch("number of devices of the program", have, wanted));
        }
        let devices = &devices[..wanted];
        let here = devices.iter().filter(|d| self.is_local(d)).count();
        Ok((options.encode(&devices.iter().map(|d| d.id).collect::<Vec<_>>()), here))
    }

    pub(super) fn is_local(&self, device: &Device) -> bool {
        self.0.local.iter().any(|local| local.id == device.id)
    }

    /// The devices of the whole job, sorted by id.
    pub(super) fn all_devices(&self) -> &[Device] {
        &self.0.devices
    }

    pub(super) fn as_ptr(&self) -> *mut sys::PJRT_Client {
        self.0.open.client.as_ptr()
    }

    /// The local device with this number.
    pub(super) fn local_device(&self, number: usize) -> Result<*mut sys::PJRT_Device, PjrtError> {
        let device = self.0.local.get(number).map(|d| d.device);
        device.ok_or_else(|| {
            PjrtError::mismatch("device", format!("a number below {}", self.local_devices()), number)
        })
    }

    /// The plugin that drives the devices.
    pub fn plugin(&self) -> Plugin {
        self.0.open.plugin
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Reads each device's id and process index. Returns the devices sorted by id.
///
/// # Safety
///
/// The pointers are null or live devices of a client of this plugin.
unsafe fn by_id(
    plugin: Plugin,
    devices: &[*mut sys::PJRT_Device],
    call: &'static str,
) -> Result<Vec<Device>, PjrtError> {
    let describe = |device: &*mut sys::PJRT_Device| {
        let device = non_null(*device, call)?.as_ptr();
        let mut of = args!(PJRT_Device_GetDescription_Args { device: device });
        // SAFETY: devices and their descriptions live as long as the client.
        unsafe {
            call!(plugin, PJRT_Device_GetDescription, of)?;
            let description = non_null(of.device_description, "PJRT_Device_GetDescription")?.as_ptr();
            let mut id = args!(PJRT_DeviceDescription_Id_Args { device_description: description });
            call!(plugin, PJRT_DeviceDescription_Id, id)?;
            let mut process =
                args!(PJRT_DeviceDescription_ProcessIndex_Args { device_description: description });
            call!(plugin, PJRT_DeviceDescription_ProcessIndex, process)?;
            Ok(Device { device, id: id.id.into(), process: process.process_index })
        }
    };
    let mut described = devices.iter().map(describe).collect::<Result<Vec<_>, PjrtError>>()?;
    described.sort_by_key(|d| d.id);
    Ok(described)
}
