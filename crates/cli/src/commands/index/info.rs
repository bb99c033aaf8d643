//! `shardstream index info`

use crate::context::Context;
use crate::failure::Failure;
use crate::options::JsonOption;
use crate::text;
use serde::Serialize;
use shardstream::Index;
use std::collections::BTreeSet;

/// Show what an index contains.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The index: a path or URL.
    #[arg(value_name = "INDEX")]
    index: String,
    #[command(flatten)]
    json: JsonOption,
}

/// The document that `--json` writes.
#[derive(Debug, Serialize)]
struct IndexInfo {
    shards: usize,
    samples: u64,
    bytes: u64,
    fields: BTreeSet<String>,
    /// Number of shards whose samples have offsets in the index.
    located: u64,
    /// Number of shards whose samples have checksums in the index.
    checksums: u64,
    /// Names of the filters that have selected samples.
    selections: BTreeSet<String>,
}

pub(super) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let index = Index::load(&context.store, &options.index)?;
    let mut document = IndexInfo {
        shards: index.len(),
        samples: index.samples(),
        bytes: index.iter().filter_map(|shard| shard.bytes()).sum(),
        fields: BTreeSet::new(),
        located: 0,
        checksums: 0,
        selections: index.iter().filter_map(|shard| shard.selection().map(str::to_owned)).collect(),
    };
    for shard in &index {
        document.located += u64::from(shard.range(0..shard.samples()).is_some());
        document.checksums += u64::from(shard.checksum_of(0).is_some());
        if shard.members(0).is_none() {
            // The index has only the number of samples. The loop below would do nothing, for up to 2^64
            // samples.
            continue;
        }
        for sample in 0..shard.samples() {
            if sample % 4096 == 0 {
                context.interrupt.check()?;
            }
            for (field, _) in shard.members(sample).into_iter().flatten() {
                if !document.fields.contains(field) {
                    document.fields.insert(field.to_owned());
                }
            }
        }
    }
    if options.json.json {
        return context.output.document(&document);
    }
    let out = &context.output;
    let shards = document.shards as u64;
    let some = |count: u64| match count {
        0 => "none".to_owned(),
        count if count == shards => "all".to_owned(),
        count => format!("{} shards", text::number(count)),
    };
    out.line(format_args!("shards            {}", text::number(shards)))?;
    out.line(format_args!("samples           {}", text::number(document.samples)))?;
    out.line(format_args!("bytes             {}", text::bytes(document.bytes)))?;
    let fields: Vec<&str> = document.fields.iter().map(String::as_str).collect();
    let fields = if fields.is_empty() { "not known".into() } else { fields.join(", ") };
    out.line(format_args!("fields            {fields}"))?;
    out.line(format_args!("places of samples {}", some(document.located)))?;
    out.line(format_args!("checksums         {}", some(document.checksums)))?;
    for selection in &document.selections {
        out.line(format_args!("selected by       {selection}"))?;
    }
    Ok(())
}
