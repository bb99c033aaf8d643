//! Tests of the source text: which modules import which, links and names in pages, and the words of comments.

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
