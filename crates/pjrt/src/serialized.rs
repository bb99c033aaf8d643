//! Serializes executables, so that another process can load them without compiling.

use super::abi::{non_null, slice, text};
use super::client::Client;
use super::compile_options::{CompileOptions, Span};
use super::error::PjrtError;
use super::executable::{Executable, Signature};
use super::sys;

/// The plugin's description of a device. Devices with equal descriptions run the same executables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// The id that compile options use.
    pub id: i64,
    /// The index of the process that drives the device.
    pub process: i32,
    /// Whether the device belongs to this process.
    pub local: bool,
    /// Model of the device; empty if the plugin does not report it.
    pub kind: String,
    /// Position in the topology, if the plugin reports one.
    pub description: String,
}

impl Executable {
    /// Serializes the executable for [`Client::load`]. The bytes are machine code for this plugin and these
    /// devices.
    pub fn serialize(&self) -> Result<Vec<u8>, PjrtError> {
        self.with_unloaded(|plugin, executable| {
            let mut args = args!(PJRT_Executable_Serialize_Args { executable: executable });
            // SAFETY: the executable is alive. The bytes live until the deleter is called, and are copied
            // before that.
            unsafe {
                call!(plugin, PJRT_Executable_Serialize, args)?;
                let start = non_null(args.serialized_bytes.cast_mut(), "PJRT_Executable_Serialize");
                let bytes = start
                    .map(|start| slice(start.as_ptr().cast::<u8>(), args.serialized_bytes_size).to_vec());
                if let Some(free) = args.serialized_executable_deleter {
                    free(args.serialized_executable);
                }
                bytes
            }
        })
    }
}

impl Client {
    /// Loads an executable that [`Executable::serialize`] wrote in this or another process. The executable
    /// must have been compiled with the same `signature`, `options` and `span`.
    ///
    /// The plugin runs the machine code in the bytes, so they must come from a source that the user trusts.
    pub fn load(
        &self,
        serialized: &[u8],
        signature: Signature,
        options: &CompileOptions,
        span: Span,
    ) -> Result<Executable, PjrtError> {
        let (encoded, here) = self.encode(span, options)?;
        let mut args = args!(PJRT_Executable_DeserializeAndLoad_Args {
            client: self.as_ptr(),
            serialized_executable: serialized.as_ptr().cast(),
            serialized_executable_size: serialized.len(),
            overridden_serialized_compile_options: encoded.as_ptr().cast(),
            overridden_serialized_compile_options_size: encoded.len(),
        });
        // SAFETY: the client is alive; executable and options live during the call.
        unsafe { call!(self.plugin(), PJRT_Executable_DeserializeAndLoad, args) }?;
        let executable = non_null(args.loaded_executable, "PJRT_Executable_DeserializeAndLoad")?;
        // SAFETY: the executable is new, and the plugin hands it over to us; its devices are checked against
        // `here`.
        unsafe { Executable::from_raw(self.clone(), executable, signature, here) }
    }

    /// Encodes the compile options of a program, with the ids of its devices.
    pub fn encoded_options(&self, options: &CompileOptions, span: Span) -> Result<Vec<u8>, PjrtError> {
        Ok(self.encode(span, options)?.0)
    }

    /// Version of the C API that the plugin was built with.
    pub fn api_version(&self) -> (i32, i32) {
        self.plugin().version()
    }

    /// The platform's version, as the plugin reports it; empty if the plugin reports none.
    pub fn platform_version(&self) -> String {
        let mut args = args!(PJRT_Client_PlatformVersion_Args { client: self.as_ptr() });
        // SAFETY: the client is alive, and so is its version.
        unsafe {
            match call!(self.plugin(), PJRT_Client_PlatformVersion, args) {
                Ok(()) => text(args.platform_version, args.platform_version_size),
                Err(_) => String::new(),
            }
        }
    }

    /// The devices of the whole job, by id.
    pub fn device_identities(&self) -> Result<Vec<DeviceIdentity>, PjrtError> {
        let plugin = self.plugin();
        let identify = |device: &super::client::Device| {
            let mut of = args!(PJRT_Device_GetDescription_Args { device: device.device });
            // SAFETY: devices, their descriptions and the descriptions' texts live as long as the client.
            unsafe {
                call!(plugin, PJRT_Device_GetDescription, of)?;
                let at: *mut sys::PJRT_DeviceDescription =
                    non_null(of.device_description, "PJRT_Device_GetDescription")?.as_ptr();
                let mut kind = args!(PJRT_DeviceDescription_Kind_Args { device_description: at });
                let mut debug = args!(PJRT_DeviceDescription_DebugString_Args { device_description: at });
                // A plugin that reports no text leaves the pointer null.
                let _ = call!(plugin, PJRT_DeviceDescription_Kind, kind);
                let _ = call!(plugin, PJRT_DeviceDescription_DebugString, debug);
                Ok(DeviceIdentity {
                    id: device.id,
                    process: device.process,
                    local: self.is_local(device),
                    kind: text(kind.device_kind, kind.device_kind_size),
                    description: text(debug.debug_string, debug.debug_string_size),
                })
            }
        };
        self.all_devices().iter().map(identify).collect()
    }
}
