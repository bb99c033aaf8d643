//! The artifacts that are built into the program.

/// The files of an artifact.
pub(super) struct BuiltIn {
    pub(super) name: &'static str,
    pub(super) manifest: &'static [u8],
    pub(super) init: &'static [u8],
    pub(super) step: &'static [u8],
    pub(super) eval: &'static [u8],
}

macro_rules! built_in {
    ($($name:literal),*) => {
        /// The built-in artifacts. Their files are part of the program.
        pub(super) static BUILT_IN: &[BuiltIn] = &[$(BuiltIn {
            name: $name,
            manifest: include_bytes!(concat!("../../artifacts/", $name, ".json")),
            init: include_bytes!(concat!("../../artifacts/", $name, ".init.mlirbc")),
            step: include_bytes!(concat!("../../artifacts/", $name, ".step.mlirbc")),
            eval: include_bytes!(concat!("../../artifacts/", $name, ".eval.mlirbc")),
        }),*];
    };
}

// The same list as `CHECKED_IN` in the exporter.
built_in!(
    "resnet8",
    "resnet8-x8",
    "resnet8-bf16-x8",
    "resnet20",
    "resnet18",
    "resnet18-bf16-x8",
    "resnet50-bf16-x8",
    "resnet50-bf16-x16",
    "resnet50-bf16-x32",
    "resnet50-224",
    "resnet50-224-bf16",
    "resnet50-224-bf16-x8",
    "resnet50-224-bf16-x16",
    "resnet50-224-bf16-x32"
);

/// The names of the built-in artifacts.
pub fn names() -> String {
    BUILT_IN.iter().map(|b| b.name).collect::<Vec<_>>().join(", ")
}
