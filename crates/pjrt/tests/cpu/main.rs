//! Tests with XLA's plugin for the CPU.

mod common;
mod programs;
mod upload;
