//! The program `shardstream`: inspects, checks, indexes, creates and copies shards.
//!
//! The program is a thin layer over the library's public API. Each command is a file in `commands`; the other
//! modules have the code that several commands use.

mod arguments;
mod class_folders;
mod class_list;
mod commands;
mod contact_sheet;
mod context;
mod copier;
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
mod open_readers;
mod options;
mod outcome;
mod output;
mod parallel;
mod places;
mod progress;
mod quantity;
mod range_samples;
mod replacement;
mod rewrite;
mod sample_list;
mod sample_shrinker;
mod samples;
mod saved_plan;
mod series;
mod shard_cutter;
mod shard_reader;
mod skip_bad;
mod source_identity;
mod system_names;
mod table;
mod text;
mod waiting;
mod write_job;
mod write_options;

use clap::{CommandFactory, Parser};
use commands::Command;
use context::Context;
use failure::Failure;
use global::GlobalOptions;
use logging::Timeline;
use std::process::ExitCode;

/// Inspects, checks, indexes, creates and copies WebDataset shards.
///
/// Shards are local files, or objects: gs://bucket/key, s3://bucket/key, az://container/key, https://…,
/// hf://datasets/OWNER/NAME/path. Patterns may have braces (train-{000000..000146}.tar) and wildcards
/// (train-*.tar, **/*.tar); a directory means the shards directly in it.
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
    let timeline = match context.log(program.command.trace()) {
        Ok(timeline) => timeline,
        Err(failure) => return failure.report(),
    };
    let done = program.command.run(&context);
    // After an interrupt, the command may end with any error: report the interrupt instead.
    let done =
        done.map_err(|failure| if context.interrupt.is_set() { Failure::Interrupted } else { failure });
    let timeline = timeline.map_or(Ok(()), Timeline::finish);
    match done.and(context.output.flush()).and(timeline) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The output from before the failure is still useful. If it cannot be written, only the first
            // failure is reported.
            drop(context.output.flush());
            failure.report()
        }
    }
}
