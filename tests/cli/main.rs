//! The program `shardstream`, as people run it: real files, its output and its exit status.

#[path = "../support/mod.rs"]
mod support;

mod emulators;
mod extract;
mod help;
mod index;
mod info;
mod interrupt;
mod logging;
mod look;
mod ls;
mod odd;
mod page;
mod program;
mod progress;
mod remote;
mod stats;
mod verify;
mod writing;
