//! Runs one target on the named files, or, with `--cfg fuzzing`, on the inputs of libFuzzer.
#![cfg_attr(fuzzing, no_main)]

/// `fuzz TARGET FILE...`
#[cfg(not(fuzzing))]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("the name of a target");
    let run = shardstream_fuzz::target(&name).expect("a target of that name");
    for path in arguments {
        println!("{path}");
        run(&std::fs::read(path).expect("a file that can be read"));
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static RUN: std::sync::LazyLock<shardstream_fuzz::Target> = std::sync::LazyLock::new(|| {
        let name = std::env::var("SHARDSTREAM_FUZZ").expect("SHARDSTREAM_FUZZ is the name of a target");
        shardstream_fuzz::target(&name).expect("a target of that name")
    });
    RUN(data);
});
