//! The error of reading an npy file.

/// Maximum length of a header in bytes, the same as in numpy.
pub(super) const MAX_HEADER: usize = 10_000;

/// Why an npy file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NpyError {
    /// The bytes do not begin with the magic number of an npy file.
    #[error("not an npy file")]
    Magic,
    #[error("unknown version {0}.{1} of the npy format")]
    Version(u8, u8),
    /// The file ends within its header.
    #[error("the npy header is truncated")]
    Truncated,
    /// The header is implausibly long.
    #[error("the npy header of {0} bytes exceeds the limit of {MAX_HEADER} bytes")]
    HeaderTooLarge(u64),
    /// The header is malformed.
    #[error("bad npy header at byte {position}: {message}")]
    Header {
        /// The byte position in the header's dictionary.
        position: usize,
        /// What is wrong.
        message: &'static str,
    },
    /// The data is longer or shorter than the header's shape and type require.
    #[error("the npy header says {expected} bytes of data, but there are {found}")]
    Length {
        /// Number of bytes that the shape and the type require.
        expected: usize,
        /// Number of bytes that follow the header.
        found: usize,
    },
    /// The array would not fit into the address space.
    #[error("the shape {0:?} in the npy header is impossible")]
    Shape(Vec<usize>),
    /// An unsupported element type, in numpy's notation: text, dates, structures, complex numbers.
    #[error("arrays of type {0} are not supported: use bool, int, uint or float of up to 64 bits")]
    Unsupported(String),
    /// The elements are Python objects, which the file stores as a pickle.
    #[error("the array holds Python objects, stored as a pickle")]
    Pickle,
}
