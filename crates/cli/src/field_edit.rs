//! [`FieldEdit`]: selects and renames the fields of samples.

use crate::failure::other_error;
use shardstream::{Result, Sample};

/// Options that select and rename fields.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FieldEdit {
    /// Keep only these fields.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    keep_fields: Vec<String>,
    /// Leave out these fields.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', conflicts_with = "keep_fields")]
    drop_fields: Vec<String>,
    /// Rename a field. May be given several times.
    #[arg(long, value_name = "FIELD=NEW", value_parser = renaming)]
    rename: Vec<(String, String)>,
}

fn renaming(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("expected FIELD=NEW".into()),
    }
}

impl FieldEdit {
    /// The new name of a field; `None` if the field is left out.
    pub(crate) fn name<'a>(&'a self, field: &'a str) -> Option<&'a str> {
        let is_in = |list: &[String]| list.iter().any(|name| name == field);
        if is_in(&self.drop_fields) || !self.keep_fields.is_empty() && !is_in(&self.keep_fields) {
            return None;
        }
        let renamed = self.rename.iter().find(|(old, _)| old == field);
        Some(renamed.map_or(field, |(_, new)| new))
    }

    /// The sample with only the selected fields, under their new names.
    ///
    /// # Errors
    /// If two fields would have the same name.
    pub(crate) fn apply(&self, sample: Sample) -> Result<Sample> {
        if self.keep_fields.is_empty() && self.drop_fields.is_empty() && self.rename.is_empty() {
            return Ok(sample);
        }
        let mut edited = Sample::new(sample.key());
        for (field, value) in sample.fields() {
            let Some(name) = self.name(field) else { continue };
            if edited.set(name.to_owned(), value.clone()).is_some() {
                let what = format!("{}: two fields would have the name {name:?}", sample.key());
                return Err(other_error(what).in_shard(sample.shard()));
            }
        }
        Ok(edited)
    }

    /// The options as text, for the saved plan.
    pub(crate) fn shown(&self) -> String {
        let renamed: Vec<String> = self.rename.iter().map(|(old, new)| format!("{old}={new}")).collect();
        format!(
            "keep [{}], drop [{}], rename [{}]",
            self.keep_fields.join(","),
            self.drop_fields.join(","),
            renamed.join(",")
        )
    }
}
