//! A program to compile, with its parameters and devices.

use shardstream_pjrt::{CompileOptions, Signature, Span};

/// A program to compile.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// The name for the log.
    pub name: &'static str,
    /// The StableHLO code.
    pub code: &'a [u8],
    /// The parameters of the program.
    pub signature: Signature,
    /// Number of replicas of the program, and number of devices that each replica runs on.
    pub options: &'a CompileOptions,
    /// Whether the program runs on the devices of the whole job, or only on the devices of this process.
    pub span: Span,
}
