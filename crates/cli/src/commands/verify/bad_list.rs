//! Collects the list of bad samples that `--to-list` writes.

use super::report::{FieldSet, Finding};
use crate::context::Context;
use crate::failure::Failure;
use crate::sample_list::ListedSample;
use std::collections::BTreeMap;

/// The list of bad samples, and the keys of all samples. The keys are kept because the fields that nearly all
/// samples have are known only after the last shard.
#[derive(Debug, Default)]
pub(super) struct BadList {
    /// The lines of the list so far.
    lines: Vec<u8>,
    /// The keys of the samples with each set of fields.
    samples: BTreeMap<Vec<String>, Vec<ShardKeys>>,
}

/// The keys of samples of one shard.
#[derive(Debug)]
struct ShardKeys {
    shard: String,
    keys: Vec<String>,
}

impl BadList {
    /// Adds a line for a finding.
    pub(super) fn add(&mut self, finding: &Finding) -> Result<(), Failure> {
        let why = format!("{}: {}", finding.kind, finding.message);
        let (shard, key) = (Some(finding.shard.clone()), finding.key.clone());
        write(&mut self.lines, &ListedSample { shard, key, why })
    }

    /// Stores the keys of samples that have the same fields. After the last shard, it may turn out that these
    /// samples lack a field.
    pub(super) fn add_keys(&mut self, field_set: &mut FieldSet) {
        let (shard, keys) = (field_set.shard.clone(), std::mem::take(&mut field_set.keys));
        self.samples.entry(field_set.fields.clone()).or_default().push(ShardKeys { shard, keys });
    }

    /// Adds a line for each sample that has exactly the fields `fields`. The line says that the sample has no
    /// field `missing`.
    pub(super) fn add_missing(&mut self, fields: &[String], missing: &str) -> Result<(), Failure> {
        let why = format!("missing_field: the sample has no field {missing:?}");
        for ShardKeys { shard, keys } in self.samples.get(fields).into_iter().flatten() {
            for key in keys {
                let (shard, key) = (Some(shard.clone()), Some(key.clone()));
                let line = ListedSample { shard, key, why: why.clone() };
                write(&mut self.lines, &line)?;
            }
        }
        Ok(())
    }

    /// Writes the list, which is empty if nothing was found.
    pub(super) fn save(&self, place: &str, context: &Context) -> Result<(), Failure> {
        context.store.put(place, &self.lines)?;
        Ok(())
    }
}

fn write(lines: &mut Vec<u8>, line: &ListedSample) -> Result<(), Failure> {
    let failed = |error| Failure::Failed(format!("cannot write JSON: {error}"));
    serde_json::to_writer(&mut *lines, line).map_err(failed)?;
    lines.push(b'\n');
    Ok(())
}
