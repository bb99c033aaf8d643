//! The structure of the code: what imports what.

mod circles;
mod imports;
