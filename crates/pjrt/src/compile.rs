//! Compiles programs for the devices of a client.

use super::abi::{ProgramCode, non_null};
use super::client::Client;
use super::compile_options::{CompileOptions, Span};
use super::error::PjrtError;
use super::executable::{Executable, Signature};

impl Client {
    /// Compiles StableHLO (text, bytecode or portable artifact) for the first
    /// [`devices()`](CompileOptions::devices) devices of the job. All processes of the job must compile the
    /// program, and must run it at the same time. This process runs the program only on its own devices.
    /// Device `i` of the returned executable is local device `i` of this client.
    ///
    /// `signature` lists the program's parameters, since the C API does not report them.
    pub fn compile(
        &self,
        code: &[u8],
        signature: Signature,
        options: &CompileOptions,
    ) -> Result<Executable, PjrtError> {
        self.compile_for(Span::Job, code, signature, options)
    }

    /// Like [`compile`](Self::compile), for the first devices of this process only.
    pub fn compile_local(
        &self,
        code: &[u8],
        signature: Signature,
        options: &CompileOptions,
    ) -> Result<Executable, PjrtError> {
        self.compile_for(Span::Process, code, signature, options)
    }

    /// Like [`compile`](Self::compile) or [`compile_local`](Self::compile_local), depending on `span`.
    pub fn compile_for(
        &self,
        span: Span,
        code: &[u8],
        signature: Signature,
        options: &CompileOptions,
    ) -> Result<Executable, PjrtError> {
        let (encoded, here) = self.encode(span, options)?;
        let code = ProgramCode::new(code);
        let mut program = code.program();
        let mut args = args!(PJRT_Client_Compile_Args {
            client: self.as_ptr(),
            program: program.as_mut_ptr(),
            compile_options: encoded.as_ptr().cast(),
            compile_options_size: encoded.len(),
        });
        // SAFETY: the client is alive; program, code and options live during the call.
        unsafe { call!(self.plugin(), PJRT_Client_Compile, args) }?;
        let executable = non_null(args.executable, "PJRT_Client_Compile")?;
        // SAFETY: the executable is new, and the plugin hands it over to us.
        unsafe { Executable::from_raw(self.clone(), executable, signature, here) }
    }
}
