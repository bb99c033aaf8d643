//! A program to compile.

use shardstream_pjrt::{CompileOptions, Signature, Span};

/// A program to compile.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// The name for the log.
    pub name: &'static str,
    /// StableHLO.
    pub code: &'a [u8],
    /// Its parameters.
    pub signature: Signature,
    /// The number of devices that it runs on.
    pub options: &'a CompileOptions,
    /// The devices that it runs on: those of the job or of this process.
    pub span: Span,
}
