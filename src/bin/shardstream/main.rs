//! The program `shardstream`: looks into shards, checks, indexes, makes and copies them.
//!
//! A thin layer over the crate's public API: each command is a file in `commands`, and what they share is in
//! the modules beside it.

mod commands;
mod context;
mod copying;
mod distribution;
mod documents;
mod failure;
mod field;
mod files;
mod global;
mod input;
mod inspection;
mod interrupt;
mod items;
mod lists;
mod logging;
mod machines;
mod making;
mod measuring;
mod options;
mod outcome;
mod output;
mod parallel;
mod progress;
mod quantity;
mod ranges;
mod rewriting;
mod samples;
mod saved_plan;
mod series;
mod sheet;
mod table;
mod text;
mod tree;

use clap::{CommandFactory, Parser};
use commands::Command;
use context::Context;
use global::Global;
use std::process::ExitCode;

/// Looks into WebDataset shards, checks, indexes, makes and copies them.
///
/// Shards are local files, or objects: gs://bucket/key, s3://bucket/key, az://container/key, https://…
/// Patterns may have braces (train-{000000..000146}.tar) and wildcards (train-*.tar, **/*.tar); a directory
/// means the shards in it.
#[derive(Debug, Parser)]
#[command(name = "shardstream", version, after_help = failure::EXIT_CODES, max_term_width = 100)]
struct Program {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let program = Program::parse();
    let context = match Context::new(program.global, Program::command()) {
        Ok(context) => context,
        Err(failure) => return failure.report(),
    };
    // Written to its end when it is dropped.
    let _log = match context.log(program.command.trace()) {
        Ok(log) => log,
        Err(failure) => return failure.report(),
    };
    let done = program.command.run(&context);
    match done.and(context.output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // What was found before the failure is worth having. If it cannot be written either, the failure
            // says enough.
            drop(context.output.flush());
            failure.report()
        }
    }
}
