//! The program `shardstream`: inspects, checks, indexes, creates and copies shards.
//!
//! A thin layer over the crate's public API. Each command is a file in `commands`; the other modules hold
//! what the commands share.

mod arguments;
mod class_folders;
mod class_list;
mod commands;
mod contact_sheet;
mod context;
mod copying;
mod csv_rows;
mod distribution;
mod documents;
mod empty_fields;
mod failure;
mod field;
mod field_edit;
mod file_samples;
mod files;
mod global;
mod input;
mod input_hash;
mod inspection;
mod interrupt;
mod json_row;
mod lists;
mod logging;
mod machine_options;
mod measuring;
mod options;
mod outcome;
mod output;
mod parallel;
mod progress;
mod quantity;
mod range_samples;
mod replacement;
mod rewrite;
mod samples;
mod saved_plan;
mod series;
mod shard_cutter;
mod shard_reader;
mod skip_bad;
mod source_identity;
mod table;
mod text;
mod write_job;
mod write_options;

use clap::{CommandFactory, Parser};
use commands::Command;
use context::Context;
use global::GlobalOptions;
use std::process::ExitCode;

/// Inspects, checks, indexes, creates and copies WebDataset shards.
///
/// Shards are local files, or objects: gs://bucket/key, s3://bucket/key, az://container/key, https://…
/// Patterns may have braces (train-{000000..000146}.tar) and wildcards (train-*.tar, **/*.tar); a directory
/// means the shards directly in it.
#[derive(Debug, Parser)]
#[command(name = "shardstream", version, after_help = failure::EXIT_CODES, max_term_width = 100)]
struct Program {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let program: Program = arguments::parse();
    let context = match Context::new(program.global, Program::command()) {
        Ok(context) => context,
        Err(failure) => return failure.report(),
    };
    // Dropping the guard writes the rest of the timeline.
    let _log = match context.log(program.command.trace()) {
        Ok(log) => log,
        Err(failure) => return failure.report(),
    };
    let done = program.command.run(&context);
    match done.and(context.output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Output from before the failure is still useful. If it cannot be written either, the first
            // failure is the one to report.
            drop(context.output.flush());
            failure.report()
        }
    }
}
