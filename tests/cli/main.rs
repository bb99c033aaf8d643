//! The program `shardstream`, as people run it: real files, its output and its exit status.

mod help;
mod ls;
mod program;
