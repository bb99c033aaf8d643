//! The option that says which fields may be empty.

/// The fields that may be empty. Any other empty field is an error for `create` and damage for `verify`,
/// since an empty file is nearly always left by a failed download.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct EmptyFields {
    /// Fields that may be empty.
    #[arg(long = "may-be-empty", value_name = "FIELD,…", value_delimiter = ',')]
    names: Vec<String>,
}

impl EmptyFields {
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn allow(&self, field: &str) -> bool {
        self.names.iter().any(|name| name == field)
    }
}
