#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../docs/guide.md")]

// The pages of `docs/`, which are also read on the web and in an editor. Pages link to each other by Markdown
// references. `links.md` defines the same references with rustdoc paths as targets; this file is included
// before each page, because Markdown uses the first definition of a reference. `tests/structure/pages.rs`
// compares the references of `links.md` with those of the pages.
macro_rules! pages {
    ($($name:ident: $page:literal),* $(,)?) => {$(
        #[doc = include_str!("guide/links.md")]
        #[doc = include_str!(concat!("../docs/", $page))]
        pub mod $name {}
    )*};
}

pages! {
    first_hour: "first-hour.md",
    recipes: "recipes.md",
    pipelines: "pipelines.md",
    formats: "formats.md",
    random_access: "random-access.md",
    batches: "batches.md",
    trainers: "trainers.md",
    python: "python.md",
    network: "network.md",
    determinism: "determinism.md",
    reliability: "reliability.md",
    topology: "topology.md",
    webdataset: "webdataset.md",
    comparison: "comparison.md",
    cli: "cli.md",
    cli_writing: "cli-writing.md",
    tpu: "tpu.md",
    gpu: "gpu.md",
    glossary: "glossary.md",
}
