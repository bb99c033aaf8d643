//! Why a command ended without success, and the program's exit status.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: a fault of a file or the network, or bad data where the command must not meet any
  2    wrong usage
  3    `verify` or `index check` found damage
  130  interrupted (Ctrl-C, SIGTERM)";

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the crate.
    Crate(shardstream::Error),
    /// Anything else that went wrong, in words.
    Failed(String),
    /// The command was given options that make no sense together.
    Usage(String),
    /// The command looked for damage, and found some, which it has reported.
    Damage,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// Whoever reads the output has closed it. That is no fault: `shardstream … | head` does it.
    Closed,
}

impl Failure {
    /// An error of the operating system, with what was tried.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Failure::Failed(format!("{what}: {error}"))
    }

    /// Writes the message to stderr, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        use std::io::Write;
        let message = match self {
            Failure::Crate(error) => format!("{error:#}"),
            Failure::Failed(message) | Failure::Usage(message) => message.clone(),
            Failure::Interrupted => "interrupted".to_owned(),
            Failure::Damage | Failure::Closed => String::new(),
        };
        if !message.is_empty() {
            // stderr may be closed too, and there is nowhere left to say so.
            drop(writeln!(io::stderr(), "shardstream: {message}"));
        }
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Closed => 0,
            Failure::Crate(_) | Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Damage => 3,
            Failure::Interrupted => 130,
        }
    }
}

impl From<shardstream::Error> for Failure {
    fn from(error: shardstream::Error) -> Self {
        Failure::Crate(error)
    }
}
