//! Tests that run the program `shardstream` on real files, and check its output and exit status.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod emulators;
mod extract;
mod help;
mod hub;
mod index;
mod info;
mod interrupt;
mod limits;
mod logging;
mod look;
mod ls;
mod names;
mod odd;
mod page;
mod program;
mod progress;
mod remote;
mod secrets;
mod stats;
mod stdin;
mod terminal;
mod unsorted;
mod verify;
mod versions;
mod writing;
