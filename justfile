# What is done often, by name; `just ci` is all that CI does. `just` lists them.

_list:
    @just --list --unsorted

# The tests of the default features, as the README has them
test:
    cargo test

# The tests with all features, of the library and its program
test-all:
    cargo test --workspace --exclude resnet --all-features

# The form of the code, and what clippy says of it
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# The documentation as docs.rs builds it, but for what needs a nightly toolchain
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps

# The structure of the code, its words and the links of the pages
structure:
    cargo test --test structure

# The commands of the pages have rules; `just pages run` runs those that can run
pages run="":
    python3 .ci/commands.py {{ if run == "" { "--check" } else { "" } }}

# Writes the outputs in docs/cli.md and docs/cli-writing.md anew
bless:
    SHARDSTREAM_BLESS=1 cargo test -p shardstream-cli

# Looks for inputs that a target fails on, with libFuzzer on stable Rust (compiles C++). It keeps the inputs that
# reach new code in target/fuzz; one that fails is written where it says, and belongs into fuzz/corpus
fuzz TARGET SECONDS="60":
    mkdir -p target/fuzz/corpus/{{ TARGET }}
    RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares" \
        SHARDSTREAM_FUZZ={{ TARGET }} cargo run --release -p shardstream-fuzz --target "$(rustc --print host-tuple)" --target-dir target/fuzz -- \
        target/fuzz/corpus/{{ TARGET }} fuzz/corpus/{{ TARGET }} -max_total_time={{ SECONDS }} -rss_limit_mb=1024 -timeout=20

# Advisories, licences, sources and bans of all dependencies (cargo install cargo-deny)
deny:
    cargo deny --all-features check advisories licenses sources bans

# The public API as one text, .ci/public-api.txt (cargo install cargo-public-api; a nightly toolchain)
api:
    for crate in base image audio store; do cargo +nightly public-api -p shardstream-$crate --all-features -sss; done > .ci/public-api.txt
    cargo +nightly public-api -p shardstream --all-features -sss >> .ci/public-api.txt

# What has broken the API since a commit (cargo install cargo-semver-checks)
semver REV:
    cargo semver-checks -p shardstream --all-features --baseline-rev {{ REV }}

# Builds what is published from its packed files, in the order of their dependencies, and uploads nothing
package:
    cargo publish --workspace --dry-run

# The oldest toolchain that is promised
oldest:
    cargo +1.89 check

# Compiles the programs of the trainer for TPUs; LIBTPU is the path of libtpu.so
tpu LIBTPU:
    SHARDSTREAM_TEST_LIBTPU={{ LIBTPU }} cargo test -p resnet --test trainer tpu -- --include-ignored

# Everything that must hold before a change lands
ci:
    .ci/run
