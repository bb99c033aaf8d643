//! The commands, each in a file of its own with its `Options` and `run`. The first comment of its options is
//! its line in `--help`.

use crate::context::Context;
use crate::failure::Failure;
use std::path::Path;

/// Declares commands: the file, and the name in the enum from which clap makes the name of the command.
macro_rules! commands {
    ($($file:ident: $Name:ident),* $(,)?) => {
        $(mod $file;)*

        /// Which command, with its options.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Command {
            $($Name($file::Options),)*
        }

        impl Command {
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
    /// Where a timeline of the command goes, if it writes one.
    pub(crate) fn trace(&self) -> Option<&Path> {
        match self {
            Command::Bench(options) => options.trace(),
            _ => None,
        }
    }
}
