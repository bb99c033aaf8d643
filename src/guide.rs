#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../docs/guide.md")]

// The pages of `docs/`, which are read on the web and in an editor as well. Their links between each other
// are references, and `links.md`, which is ahead of each page here, has other targets for them: of two
// definitions of a reference the first one counts. `tests/structure/pages.rs` compares the two.
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
