//! The commands. Each has a file with its `Options` and a function `run`. The doc comment of `Options` is the
//! help text of the command.

use crate::context::Context;
use crate::failure::Failure;
use std::path::Path;

/// Declares the commands: the module of each command, and its variant of [`Command`], from which clap derives
/// the command's name.
macro_rules! commands {
    ($($file:ident: $Name:ident),* $(,)?) => {
        $(mod $file;)*

        /// A command with its options.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Command {
            $($Name($file::Options),)*
        }

        impl Command {
            /// Runs the command.
            pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
                match self {
                    $(Command::$Name(options) => $file::run(options, context),)*
                }
            }
        }
    };
}

// In the order of `--help`.
commands! {
    ls: Ls,
    info: Info,
    head: Head,
    cat: Cat,
    extract: Extract,
    index: Index,
    verify: Verify,
    stats: Stats,
    create: Create,
    reshard: Reshard,
    split: Split,
    cp: Cp,
    sync: Sync,
    plan: Plan,
    bench: Bench,
    completions: Completions,
    man: Man,
}

impl Command {
    /// The file for a timeline of the command, if it writes one.
    pub(crate) fn trace(&self) -> Option<&Path> {
        match self {
            Command::Bench(options) => options.trace(),
            _ => None,
        }
    }
}
