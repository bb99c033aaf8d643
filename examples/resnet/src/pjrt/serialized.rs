//! Executables as bytes, which another process loads without compiling.

use super::abi::{given, slice, text};
use super::client::Client;
use super::error::Result;
use super::executable::{Executable, Signature};
use super::{CompileOptions, sys};

/// Which devices a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The first ones of the whole job.
    Job,
    /// The first ones of this process.
    Process,
}

/// What the plugin says of a device, in words that it does not define: two that are equal here take the same
/// executables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// By which compile options name it.
    pub id: i64,
    /// That drives it.
    pub process: i32,
    /// Whether it is of this process.
    pub local: bool,
    /// Model of the device; empty where the plugin does not say.
    pub kind: String,
    /// Place in the topology, where the plugin knows one.
    pub description: String,
}

impl Executable {
    /// The executable as bytes that [`Client::load`] takes: machine code, for the same plugin and the same
    /// devices only.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        self.unloaded(|plugin, executable| {
            let mut args = args!(PJRT_Executable_Serialize_Args { executable: executable });
            // SAFETY: the executable is alive; the bytes live until the deleter is called, and are copied
            // before.
            unsafe {
                call!(plugin, PJRT_Executable_Serialize, args)?;
                let start = given(args.serialized_bytes.cast_mut(), "PJRT_Executable_Serialize");
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
    /// Loads an executable that [`Executable::serialize`] made in this or another process. Signature, options
    /// and span are those that it was compiled with.
    ///
    /// The plugin runs what it is given: the bytes must come from a place that the user trusts.
    pub fn load(
        &self,
        serialized: &[u8],
        signature: Signature,
        options: &CompileOptions,
        span: Span,
    ) -> Result<Executable> {
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
        let executable = given(args.loaded_executable, "PJRT_Executable_DeserializeAndLoad")?;
        // SAFETY: a new executable, handed over; its devices are checked against `here`.
        unsafe { Executable::from_raw(self.clone(), executable, signature, here) }
    }

    /// The compile options of a program as the plugin gets them, with the ids of its devices.
    pub fn encoded_options(&self, options: &CompileOptions, span: Span) -> Result<Vec<u8>> {
        Ok(self.encode(span, options)?.0)
    }

    /// Version of the C API that the plugin was built with.
    pub fn api_version(&self) -> (i32, i32) {
        self.plugin().version()
    }

    /// What the plugin calls its version; empty where it does not say.
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
    pub fn device_identities(&self) -> Result<Vec<DeviceIdentity>> {
        let plugin = self.plugin();
        let identify = |device: &super::client::Device| {
            let mut of = args!(PJRT_Device_GetDescription_Args { device: device.device });
            // SAFETY: devices, their descriptions and the texts of these live as long as the client.
            unsafe {
                call!(plugin, PJRT_Device_GetDescription, of)?;
                let at: *mut sys::PJRT_DeviceDescription =
                    given(of.device_description, "PJRT_Device_GetDescription")?.as_ptr();
                let mut kind = args!(PJRT_DeviceDescription_Kind_Args { device_description: at });
                let mut debug = args!(PJRT_DeviceDescription_DebugString_Args { device_description: at });
                // A plugin that does not say it leaves the text null.
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
