//! Compiles for devices that are not present.

use super::abi::{ProgramCode, non_null};
use super::error::PjrtError;
use super::{CompileOptions, Plugin, sys};
use std::ptr::NonNull;

/// A topology that the plugin has created. Dropping the handle frees the topology.
struct TopologyHandle<'a>(&'a Plugin, NonNull<sys::PJRT_TopologyDescription>);

impl Drop for TopologyHandle<'_> {
    fn drop(&mut self) {
        let mut args = args!(PJRT_TopologyDescription_Destroy_Args { topology: self.1.as_ptr() });
        // SAFETY: the handle owns the topology, and nothing uses it after the drop.
        let _ = unsafe { call!(self.0, PJRT_TopologyDescription_Destroy, args) };
    }
}

/// An executable that is not loaded. Dropping the handle frees the executable.
struct CompiledHandle<'a>(&'a Plugin, NonNull<sys::PJRT_Executable>);

impl Drop for CompiledHandle<'_> {
    fn drop(&mut self) {
        let mut args = args!(PJRT_Executable_Destroy_Args { executable: self.1.as_ptr() });
        // SAFETY: the handle owns the executable, and nothing uses it after the drop.
        let _ = unsafe { call!(self.0, PJRT_Executable_Destroy, args) };
    }
}

impl Plugin {
    /// Compiles StableHLO ahead of time for the topology with a given name, for example `v3:2x2` (a TPU
    /// v3-8), and returns the size of the machine code in bytes. The devices need not be attached.
    ///
    /// Outside a TPU VM, set `TPU_SKIP_MDS_QUERY=1` in the environment before libtpu is loaded. Otherwise
    /// libtpu waits minutes for the metadata server of a TPU VM.
    pub fn compile_for(
        &self,
        topology: &str,
        code: &[u8],
        options: &CompileOptions,
    ) -> Result<u64, PjrtError> {
        let mut args = args!(PJRT_TopologyDescription_Create_Args {
            topology_name: topology.as_ptr().cast(),
            topology_name_size: topology.len(),
        });
        // SAFETY: the name lives during the call.
        unsafe { call!(self, PJRT_TopologyDescription_Create, args) }?;
        let topology = TopologyHandle(self, non_null(args.topology, "PJRT_TopologyDescription_Create")?);

        let encoded = options.encode(&[]);
        let code = ProgramCode::new(code);
        let mut program = code.program();
        let mut args = args!(PJRT_Compile_Args {
            topology: topology.1.as_ptr(),
            program: program.as_mut_ptr(),
            compile_options: encoded.as_ptr().cast(),
            compile_options_size: encoded.len(),
        });
        // SAFETY: topology, program, code and options live during the call.
        unsafe { call!(self, PJRT_Compile, args) }?;
        let compiled = CompiledHandle(self, non_null(args.executable, "PJRT_Compile")?);

        let executable = compiled.1.as_ptr();
        let mut size = args!(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args { executable: executable });
        // SAFETY: the executable is alive.
        unsafe { call!(self, PJRT_Executable_SizeOfGeneratedCodeInBytes, size) }?;
        Ok(u64::try_from(size.size_in_bytes).unwrap_or(0))
    }
}
