//! `shardstream man`

use crate::context::Context;
use crate::failure::Failure;
use clap_mangen::Man;
use std::path::PathBuf;

/// Write the man page of the program, or the man pages of all commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory for shardstream.1, shardstream-ls.1 and so on; it is created if it is missing. Without DIR,
    /// the page of the program is written to stdout.
    dir: Option<PathBuf>,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let Some(directory) = options.dir else {
        return context.output.bytes(&page(&context.program)?);
    };
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    std::fs::create_dir_all(&directory).map_err(failed)?;
    clap_mangen::generate_to(context.program.clone(), &directory).map_err(failed)
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let failed = |error: std::io::Error| Failure::io("cannot write the man page", &error);
    Man::new(command.clone()).render(&mut page).map_err(failed)?;
    Ok(page)
}
