//! The option that says which fields may be empty.

/// An empty field is nearly always the rest of a failed download: `create` refuses it, and `verify` finds it.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct EmptyFields {
    /// Fields that may be empty.
    #[arg(long = "may-be-empty", value_name = "FIELD,…", value_delimiter = ',')]
    names: Vec<String>,
}

impl EmptyFields {
    /// The fields that may be empty.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn allow(&self, field: &str) -> bool {
        self.names.iter().any(|name| name == field)
    }
}
