//! [`Failure`]: why a command fails, and its exit status.

use crate::text;
use std::error::Error;
use std::fmt;
use std::io;
use std::iter;
use std::process::ExitCode;

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: an error of a file or the network, or bad data that the command does not accept
  2    wrong usage
  3    `verify` or `index check` found damage
  130  interrupted (Ctrl-C, SIGTERM)";

/// The reason why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the library.
    Crate(shardstream::Error),
    /// Any other failure, as a message.
    Failed(String),
    /// Options that contradict each other or cannot be combined.
    Usage(String),
    /// The command has found damage and has reported it already.
    Damage,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// The reader of stdout has closed it, as `shardstream … | head` does. This is not an error.
    Closed,
}

impl Failure {
    /// An error of the operating system; `what` names the file or the action.
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
            // A message may have a key or a name from a shard, with characters that control the terminal.
            let message = text::printable_lines(&message);
            // If stderr is closed, the message is lost: it cannot be reported anywhere else.
            drop(writeln!(io::stderr(), "shardstream: {message}"));
        }
        ExitCode::from(self.code())
    }

    pub(crate) fn code(&self) -> u8 {
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

/// A library error with this message.
pub(crate) fn other_error(message: impl Into<String>) -> shardstream::Error {
    io::Error::other(message.into()).into()
}

/// The message of an error and of its causes, separated by colons.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |error| (**error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
