//! The crate with JAX's plugin for NVIDIA's GPUs, on a machine that has one.

mod gpu;
