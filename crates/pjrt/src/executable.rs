//! Compiled programs.

use super::abi::{non_null, slice};
use super::buffer::{Buffer, Handle, Spec};
use super::client::Client;
use super::error::PjrtError;
use super::{Plugin, sys};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

/// The parameters of a program on one device: `state` first, then `inputs`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signature {
    /// Parameters that a run consumes, so that the program may reuse their memory for its results.
    pub state: Vec<Spec>,
    /// Parameters that are only read.
    pub inputs: Vec<Spec>,
}

/// A compiled and loaded program.
#[derive(Debug)]
pub struct Executable {
    client: Client,
    executable: NonNull<sys::PJRT_LoadedExecutable>,
    signature: Signature,
    /// Number of local devices that the program runs on.
    devices: usize,
    outputs: usize,
    output_specs: OnceLock<Vec<Arc<Spec>>>,
}

// SAFETY: by the API's contract, several threads may run an executable at the same time.
unsafe impl Send for Executable {}
// SAFETY: as above; only `output_specs` changes, and it is a `OnceLock`.
unsafe impl Sync for Executable {}

impl Drop for Executable {
    fn drop(&mut self) {
        let mut args = args!(PJRT_LoadedExecutable_Destroy_Args { executable: self.executable.as_ptr() });
        // SAFETY: the executable is ours and is not used again; the client is still alive.
        let _ = unsafe { call!(self.client.plugin(), PJRT_LoadedExecutable_Destroy, args) };
    }
}

impl Executable {
    /// Takes ownership of an executable.
    ///
    /// # Safety
    ///
    /// `executable` is a live executable of `client` that nobody else destroys. The devices that it was
    /// compiled for include the first `devices` local devices of the client, and no other local device.
    pub(super) unsafe fn from_raw(
        client: Client,
        executable: NonNull<sys::PJRT_LoadedExecutable>,
        signature: Signature,
        devices: usize,
    ) -> Result<Self, PjrtError> {
        let output_specs = OnceLock::new();
        // From here on `loaded` owns the executable, so an error below frees it.
        let mut loaded = Self { client, executable, signature, devices, outputs: 0, output_specs };
        loaded.outputs = loaded.with_unloaded(|plugin, plain| {
            let mut outputs = args!(PJRT_Executable_NumOutputs_Args { executable: plain });
            // SAFETY: the executable is alive.
            unsafe { call!(plugin, PJRT_Executable_NumOutputs, outputs) }?;
            Ok(outputs.num_outputs)
        })?;
        loaded.check_devices()?;
        Ok(loaded)
    }

    /// Calls `read` with the plugin and a `PJRT_Executable`: the compiled program, not bound to devices. Some
    /// functions of the API take this handle and not the handle of the loaded executable. The handle is valid
    /// until `read` returns.
    pub(super) fn with_unloaded<T>(
        &self,
        read: impl FnOnce(Plugin, *mut sys::PJRT_Executable) -> Result<T, PjrtError>,
    ) -> Result<T, PjrtError> {
        let plugin = self.client.plugin();
        let mut of =
            args!(PJRT_LoadedExecutable_GetExecutable_Args { loaded_executable: self.executable.as_ptr() });
        // SAFETY: the loaded executable is alive; the plain executable is a separate handle, which we destroy
        // below.
        unsafe { call!(plugin, PJRT_LoadedExecutable_GetExecutable, of) }?;
        let plain = non_null(of.executable, "PJRT_LoadedExecutable_GetExecutable")?.as_ptr();
        let result = read(plugin, plain);
        let mut destroy = args!(PJRT_Executable_Destroy_Args { executable: plain });
        // SAFETY: the plain executable is ours and is not used again.
        unsafe { call!(plugin, PJRT_Executable_Destroy, destroy) }?;
        result
    }

    /// Checks that device `i` of the executable is local device `i` of the client. A run relies on this: list
    /// `i` of its arguments has buffers on local device `i`.
    fn check_devices(&self) -> Result<(), PjrtError> {
        let mut args =
            args!(PJRT_LoadedExecutable_AddressableDevices_Args { executable: self.executable.as_ptr() });
        // SAFETY: the executable is alive, and so is the array, which the executable owns.
        let devices = unsafe {
            call!(self.client.plugin(), PJRT_LoadedExecutable_AddressableDevices, args)?;
            slice(args.addressable_devices, args.num_addressable_devices)
        };
        let expected =
            (0..self.devices).map(|d| self.client.local_device(d)).collect::<Result<Vec<_>, PjrtError>>()?;
        if expected.is_empty() || devices != expected {
            let expected_number = expected.len();
            let expected = format!("{} in the order of their ids", self.devices);
            let got = match devices.len() == expected_number && expected_number > 0 {
                true => "as many in another order".to_owned(),
                false => devices.len().to_string(),
            };
            return Err(PjrtError::mismatch("devices of the program in this process", expected, got));
        }
        Ok(())
    }

    /// Number of local devices that the program runs on.
    pub fn local_devices(&self) -> usize {
        self.devices
    }

    /// Number of results per device.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Starts the program. `state`, `inputs` and the results each have one list per device of this process.
    ///
    /// `state` is consumed: a program that was exported with donated arguments reuses their memory. `inputs`
    /// are never donated. The results are returned before the program has finished, and may be passed to
    /// other programs. Reading a result waits for the program, and fails if the program failed.
    pub fn run(
        &self,
        state: Vec<Vec<Buffer>>,
        inputs: &[Vec<&Buffer>],
    ) -> Result<Vec<Vec<Buffer>>, PjrtError> {
        let state: Vec<Vec<&Buffer>> = state.iter().map(|list| list.iter().collect()).collect();
        self.execute(&state, inputs, &self.not_donated(self.signature.state.len()))
        // `state` is dropped here. The plugin keeps the arrays until the program has read them.
    }

    /// Like [`run`](Self::run), but does not consume the state.
    pub fn read(
        &self,
        state: &[Vec<Buffer>],
        inputs: &[Vec<&Buffer>],
    ) -> Result<Vec<Vec<Buffer>>, PjrtError> {
        let state: Vec<Vec<&Buffer>> = state.iter().map(|list| list.iter().collect()).collect();
        self.execute(&state, inputs, &self.not_donated(0))
    }

    /// The indices of all parameters from number `first` on. The plugin gets these indices as the list of
    /// parameters whose memory the program must not reuse.
    fn not_donated(&self, first: usize) -> Vec<i64> {
        let all = self.signature.state.len() + self.signature.inputs.len();
        (first as i64..all as i64).collect()
    }

    fn execute(
        &self,
        state: &[Vec<&Buffer>],
        inputs: &[Vec<&Buffer>],
        not_donated: &[i64],
    ) -> Result<Vec<Vec<Buffer>>, PjrtError> {
        let arguments = self.arguments(state, inputs)?;
        let lists: Vec<_> = arguments.iter().map(Vec::as_ptr).collect();
        let mut outputs = vec![vec![ptr::null_mut(); self.outputs]; self.devices];
        let output_lists: Vec<_> = outputs.iter_mut().map(Vec::as_mut_ptr).collect();
        let mut options = args!(PJRT_ExecuteOptions {
            non_donatable_input_indices: not_donated.as_ptr(),
            num_non_donatable_input_indices: not_donated.len(),
        });
        // No completion events are requested: reading a result returns the errors of the program.
        let mut args = args!(PJRT_LoadedExecutable_Execute_Args {
            executable: self.executable.as_ptr(),
            options: options.as_mut_ptr(),
            argument_lists: lists.as_ptr(),
            num_devices: self.devices,
            num_args: self.signature.state.len() + self.signature.inputs.len(),
            output_lists: output_lists.as_ptr(),
        });
        // SAFETY: there is one list per device, each with `num_args` live buffers of this client; each list
        // of results has room for `outputs` results; all of them live during the call.
        unsafe { call!(self.client.plugin(), PJRT_LoadedExecutable_Execute, args) }?;
        // SAFETY: the results are now live and ours.
        unsafe { self.adopt(&outputs) }
    }

    /// Checks the arguments, and returns one list of pointers per device, as the C API expects.
    fn arguments(
        &self,
        state: &[Vec<&Buffer>],
        inputs: &[Vec<&Buffer>],
    ) -> Result<Vec<Vec<*mut sys::PJRT_Buffer>>, PjrtError> {
        check_count("lists of state", self.devices, state.len())?;
        check_count("lists of inputs", self.devices, inputs.len())?;
        let mut lists = Vec::with_capacity(self.devices);
        for (device, (state, inputs)) in state.iter().zip(inputs).enumerate() {
            check_count("state buffers", self.signature.state.len(), state.len())?;
            check_count("inputs", self.signature.inputs.len(), inputs.len())?;
            let specs = self.signature.state.iter().chain(&self.signature.inputs);
            let mut list = Vec::with_capacity(state.len() + inputs.len());
            for (i, (buffer, spec)) in state.iter().chain(inputs).zip(specs).enumerate() {
                if buffer.spec() != spec {
                    return Err(PjrtError::mismatch(format!("argument {i}"), spec, buffer.spec()));
                }
                if buffer.device() != device {
                    return Err(PjrtError::mismatch(
                        format!("device of argument {i}"),
                        device,
                        buffer.device(),
                    ));
                }
                if !buffer.client().same(&self.client) {
                    let what = format!("argument {i}");
                    return Err(PjrtError::mismatch(
                        what,
                        "a buffer of this client",
                        "one of another client",
                    ));
                }
                list.push(buffer.as_ptr());
            }
            lists.push(list);
        }
        Ok(lists)
    }

    /// Takes ownership of the results of a run.
    ///
    /// # Safety
    ///
    /// `outputs` are the results of a successful run of this program, one list per device.
    unsafe fn adopt(&self, outputs: &[Vec<*mut sys::PJRT_Buffer>]) -> Result<Vec<Vec<Buffer>>, PjrtError> {
        // Takes ownership of all results first, so that an error below frees them. SAFETY: the run handed
        // them over.
        let own = |b: &_| unsafe { Handle::from_raw(&self.client, *b, "PJRT_LoadedExecutable_Execute") };
        let handles: Vec<Vec<_>> = outputs.iter().map(|list| list.iter().map(own).collect()).collect();
        let mut buffers = Vec::with_capacity(self.devices);
        for (device, list) in handles.into_iter().enumerate() {
            let list = list.into_iter().collect::<Result<Vec<_>, PjrtError>>()?;
            let specs = self.output_specs(&list)?.iter().cloned();
            buffers.push(list.into_iter().zip(specs).map(|(h, s)| Buffer::new(h, s, device)).collect());
        }
        Ok(buffers)
    }

    /// The specs of the results. They are read only once: shapes are static, so the results of all runs have
    /// the same specs.
    fn output_specs(&self, results: &[Handle]) -> Result<&[Arc<Spec>], PjrtError> {
        if let Some(specs) = self.output_specs.get() {
            return Ok(specs);
        }
        let specs = results.iter().map(|r| r.spec().map(Arc::new)).collect::<Result<_, PjrtError>>()?;
        Ok(self.output_specs.get_or_init(|| specs))
    }
}

fn check_count(what: &str, expected: usize, got: usize) -> Result<(), PjrtError> {
    if expected == got {
        return Ok(());
    }
    Err(PjrtError::mismatch(format!("number of {what}"), expected, got))
}
