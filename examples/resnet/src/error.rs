//! The error type of the trainer. It wraps the error types of the modules that have an error type of their
//! own.

use crate::checkpoint::CheckpointError;
use crate::exit_code::{EXIT_OUTAGE, EXIT_STOPPED, EXIT_TARGET, EXIT_USAGE};
use shardstream::ErrorKind;
use std::io;
use std::path::PathBuf;

/// The result of an operation of the trainer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that ends the trainer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plugin or a device failed.
    #[error(transparent)]
    Pjrt(#[from] shardstream_pjrt::PjrtError),
    /// No plugin was found or downloaded.
    #[error(transparent)]
    Plugin(#[from] crate::plugin::PluginError),
    /// The processes of the job did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] crate::rendezvous::RendezvousError),
    /// The exported program cannot be used.
    #[error(transparent)]
    Artifact(#[from] crate::artifact::ArtifactError),
    /// The data could not be read.
    #[error("cannot read the data")]
    Data(#[from] shardstream::Error),
    /// A folder of images cannot be used.
    #[error("cannot use the folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A training from single files cannot resume: its batches have no state.
    #[error(
        "a training from a folder cannot be resumed, since its order has no state: make shards of the folder"
    )]
    NoState,
    /// A checkpoint cannot be written or loaded.
    #[error(transparent)]
    Checkpoint(#[from] crate::checkpoint::CheckpointError),
    /// A file of weights cannot be written or read.
    #[error(transparent)]
    Weights(#[from] crate::weights::WeightsError),
    /// A profile cannot be recorded or written.
    #[error(transparent)]
    Profile(#[from] crate::profile::ProfileError),
    /// The log directory cannot be used.
    #[error(transparent)]
    LogDir(#[from] crate::logdir::LogDirError),
    /// A state has another number of buffers than the network.
    #[error("the state has {got} buffers, and the network has {expected}")]
    State {
        /// Number of buffers of the network.
        expected: usize,
        /// Number of buffers of the state.
        got: usize,
    },
    /// The program is for another number of devices than the job has.
    #[error(
        "the program {artifact} is for {wanted} device(s), and the job has {present} ({platform}; {local} of \
         this process): {}", devices_advice(platform, *wanted, *present)
    )]
    Devices {
        /// The artifact's name.
        artifact: String,
        /// Number of devices of the program.
        wanted: usize,
        /// Number of devices of the job, over all processes.
        present: usize,
        /// Number of devices of this process.
        local: usize,
        /// The plugin's name of the platform.
        platform: String,
    },
    /// A batch does not fit the program.
    #[error("bad batch: {0}")]
    Batch(String),
    /// The loss became NaN or infinite.
    #[error(transparent)]
    Diverged(#[from] crate::report::Diverged),
    /// An epoch has no full batch.
    #[error("the {0} data has no full batch")]
    Empty(&'static str),
    /// The number of evaluated samples differs from the number of validation samples.
    #[error("{samples} samples were evaluated, and the validation data has {there}")]
    Validation {
        /// Number of evaluated samples.
        samples: u64,
        /// Number of samples of the validation data.
        there: u64,
    },
    /// A spawned process failed. Its own output says why.
    #[error("process {rank} of {processes} ended with {status}{}", others(*code))]
    Process {
        /// The rank of the process.
        rank: usize,
        /// Number of processes.
        processes: usize,
        /// The exit status of the process.
        status: String,
        /// The exit code of the process, if the parent should end with the same code.
        code: Option<u8>,
    },
    /// A signal stopped the training.
    #[error("stopped after step {step}, as it was asked to")]
    Stopped {
        /// The step, counted from the start of the training.
        step: u64,
    },
    /// All epochs are done, and the best accuracy is below the target.
    #[error("the best validation accuracy, {:.2} %, is below the target of {target} %", 100.0 * best)]
    Target {
        /// The best accuracy, 0 to 1.
        best: f64,
        /// The target in percent.
        target: f64,
    },
    /// The options contradict each other, or cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The report could not be written.
    #[error("cannot write the report")]
    Output(#[from] io::Error),
}

fn others(code: Option<u8>) -> &'static str {
    if matches!(code, Some(EXIT_STOPPED | EXIT_TARGET)) { "" } else { ", and the others were ended with it" }
}

impl Error {
    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Stopped { .. } => EXIT_STOPPED,
            Self::Target { .. } => EXIT_TARGET,
            Self::Process { code: Some(code), .. } => *code,
            Self::Usage(_) | Self::NoState => EXIT_USAGE,
            Self::Data(error) => data_exit_code(error.kind()),
            Self::Checkpoint(
                CheckpointError::Place { .. }
                | CheckpointError::Exists { .. }
                | CheckpointError::Other { .. }
                | CheckpointError::Version { .. },
            ) => EXIT_USAGE,
            Self::Checkpoint(
                CheckpointError::List { source, .. }
                | CheckpointError::Write { source, .. }
                | CheckpointError::Read { source, .. },
            ) => data_exit_code(source.kind()),
            _ => 1,
        }
    }
}

/// The exit code for an error of the data or of a store.
fn data_exit_code(kind: &ErrorKind) -> u8 {
    // After one of these errors, a retry cannot succeed.
    let permanent = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::NotADirectory];
    match kind {
        ErrorKind::Config(_) | ErrorKind::UnsupportedScheme { .. } | ErrorKind::NotFound(_) => EXIT_USAGE,
        ErrorKind::Denied(_) | ErrorKind::Unsupported(_) => EXIT_USAGE,
        ErrorKind::Io(error) if permanent.contains(&error.kind()) => EXIT_USAGE,
        ErrorKind::Io(_)
        | ErrorKind::Busy { .. }
        | ErrorKind::Length { .. }
        | ErrorKind::DamagedCache { .. } => EXIT_OUTAGE,
        _ => 1,
    }
}

/// What to do if the program is for another number of devices.
fn devices_advice(platform: &str, wanted: usize, present: usize) -> String {
    let other = format!("use an artifact for {present} device(s), or export one with --devices {present}");
    match platform {
        "cpu" => format!(
            "the CPU plugin has {wanted} devices on one machine with the option cpu_device_count={wanted}, \
             and cannot join machines; or {other}"
        ),
        "cuda" | "rocm" if present < wanted => format!(
            "{other}; if more hosts have GPUs for it, start the same command on each of them, with --rank, \
             --world-size and --coordinator"
        ),
        _ if present < wanted => {
            format!("{other}; if the slice has more hosts, start the same command on each of them")
        }
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_and_wrong_options_have_different_exit_codes() {
        let data = |kind: ErrorKind| Error::Data(kind.into()).exit_code();
        let io = |kind: io::ErrorKind| data(ErrorKind::Io(kind.into()));
        assert_eq!(io(io::ErrorKind::TimedOut), EXIT_OUTAGE);
        assert_eq!(io(io::ErrorKind::StorageFull), EXIT_OUTAGE);
        assert_eq!(data(ErrorKind::Busy { retry_after: None, source: "503".into() }), EXIT_OUTAGE);
        assert_eq!(io(io::ErrorKind::PermissionDenied), EXIT_USAGE);
        assert_eq!(data(ErrorKind::Config("`--streams`".into())), EXIT_USAGE);
        assert_eq!(data(ErrorKind::NotFound("404".into())), EXIT_USAGE);
        assert_eq!(Error::Usage("--rank".into()).exit_code(), EXIT_USAGE);
        assert_eq!(data(ErrorKind::Checksum), 1);
        let source = ErrorKind::Io(io::ErrorKind::ConnectionReset.into()).into();
        let write = CheckpointError::Write { url: "gs://bucket/a".into(), source };
        assert_eq!(Error::from(write).exit_code(), EXIT_OUTAGE);
        assert_eq!(Error::from(CheckpointError::Exists { newest: "a".into() }).exit_code(), EXIT_USAGE);
    }

    #[test]
    fn the_error_for_another_number_of_devices_has_advice() {
        let message = |platform: &str, wanted, present| {
            let (artifact, platform) = ("resnet8-x8".into(), platform.into());
            Error::Devices { artifact, wanted, present, local: present, platform }.to_string()
        };
        assert!(message("cpu", 8, 1).contains("cpu_device_count=8"));
        assert!(message("tpu", 8, 1).contains("on each of them"));
        let fewer = message("tpu", 1, 8);
        assert!(fewer.contains("--devices 8") && !fewer.contains("on each of them"), "{fewer}");
    }
}
