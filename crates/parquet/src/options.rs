//! The columns to read from a file.

/// The options of [`Parquet`](crate::Parquet).
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The column whose values are the keys. If `None`, a sample's key is the number of its row.
    pub(crate) key: Option<String>,
    /// The columns that are fields. If `None`, all columns are fields.
    pub(crate) columns: Option<Vec<String>>,
}
