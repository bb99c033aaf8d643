//! Compiles the blocks of the README and the pages as readers see them, without the lines that rustdoc hides:
//! a block with its own `main` is a program, and any other one is pasted into a `fn main() ->
//! shardstream::Result<()>` that imports the prelude. A block that is no such program is marked `ignore`.
//! That the blocks also do what they say is tested by rustdoc, which runs them.

#![allow(dead_code, unused, clippy::all, missing_debug_implementations)]

page_blocks::pages! {
    "README.md"
    "docs/batches.md"
    "docs/cli-writing.md"
    "docs/cli.md"
    "docs/determinism.md"
    "docs/gpu.md"
    "docs/guide.md"
    "docs/network.md"
    "docs/pipelines.md"
    "docs/recipes.md"
    "docs/reliability.md"
    "docs/topology.md"
    "docs/tpu.md"
    "docs/trainers.md"
    "docs/webdataset.md"
}
