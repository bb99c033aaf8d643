//! Errors of artifacts.

use super::built_in;
use super::format::FORMAT;
use std::path::PathBuf;

/// An error of opening or choosing an artifact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The name is neither the name of a built-in artifact nor the path of an artifact.
    #[error(
        "no artifact {name:?}: give the name of a built-in one ({}), or the path of another one, without \
         .json",
        built_in::names()
    )]
    Unknown {
        /// The requested artifact.
        name: String,
    },
    /// A file of the artifact cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The manifest does not have the form that the exporter writes.
    #[error("bad manifest of artifact {name}: {reason}")]
    Manifest {
        /// The artifact.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// An older or newer exporter wrote the artifact, so its programs have other arguments.
    #[error(
        "artifact {name} has format {format}, and this trainer runs artifacts of format {}: export it again \
         with examples/resnet/export/export_resnet.py of this version",
        FORMAT
    )]
    Format {
        /// The artifact.
        name: String,
        /// The manifest's version; 0 if the manifest has none.
        format: u64,
    },
    /// A program does not have the digest that the manifest records for it.
    #[error("{program} of artifact {name} does not have the sha256 of its manifest: export it again")]
    Damaged {
        /// The artifact.
        name: String,
        /// `init`, `step` or `eval`.
        program: &'static str,
    },
    /// No built-in artifact matches the request.
    #[error("no program for {wanted} is built in; there are\n{built_in}\nTo export it: {export}")]
    NoMatch {
        /// The requested artifact.
        wanted: String,
        /// A line for each built-in artifact.
        built_in: String,
        /// The command that exports a matching artifact.
        export: String,
    },
    /// Several built-in artifacts match the request.
    #[error(
        "there are several programs for {wanted}: give more options, or the name of one with --artifact\n\
         {matching}"
    )]
    Ambiguous {
        /// The requested artifact.
        wanted: String,
        /// A line for each built-in artifact that matches.
        matching: String,
    },
}
