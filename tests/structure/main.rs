//! The structure of the code, what imports what, and its words.

mod circles;
mod imports;
mod pages;
mod rooms;
mod words;
