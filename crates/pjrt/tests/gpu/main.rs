//! Tests with JAX's plugin for NVIDIA GPUs, on a machine with a GPU.

mod gpu;
