//! What is read of a file.

/// The options of the format.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The column that is the key; the number of the row if none.
    pub(crate) key: Option<String>,
    /// The columns that are fields; all of them if none.
    pub(crate) columns: Option<Vec<String>>,
}
