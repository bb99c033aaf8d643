//! The structure of the code, what imports what, and its words.

mod circles;
mod defaults;
mod examples;
mod imports;
mod modules;
mod names;
mod pages;
mod paths;
mod rooms;
mod words;
mod workspace;
