//! `shardstream completions`

use crate::context::Context;
use crate::failure::Failure;
use clap_complete::Shell;

/// Write completions for a shell.
///
/// bash: source <(shardstream completions bash). zsh: shardstream completions zsh > DIR/_shardstream, with
/// DIR in $fpath. fish: shardstream completions fish > ~/.config/fish/completions/shardstream.fish
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut context.program.clone(), "shardstream", &mut script);
    context.output.bytes(&script)
}
