//! The structure of the code, what imports what, and its words.

mod circles;
mod defaults;
mod imports;
mod names;
mod pages;
mod rooms;
mod words;
