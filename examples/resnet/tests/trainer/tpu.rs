//! Tests that the programs compile for TPUs, on a machine without a TPU.
//!
//! `SHARDSTREAM_TEST_LIBTPU` is the path of Google's compiler, the file `libtpu.so` of the Python package
//! `libtpu` (600 MB). The tests are ignored by default.

use shardstream_pjrt::Plugin;
use std::ffi::OsString;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// This lock is held while libtpu is used, since libtpu allows only one process per machine at a time.
static LIBTPU_LOCK: Mutex<()> = Mutex::new(());

/// The path of the compiler.
fn libtpu() -> OsString {
    std::env::var_os("SHARDSTREAM_TEST_LIBTPU").expect("SHARDSTREAM_TEST_LIBTPU is the path of libtpu.so")
}

/// Runs the program with `--compile-only`, for these topologies.
fn compile(artifact: &str, topologies: &str) -> Output {
    let libtpu = libtpu();
    let _lock = LIBTPU_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.env("TPU_SKIP_MDS_QUERY", "1").arg("--plugin").arg(libtpu);
    program.args(["--artifact", artifact, "--compile-only", topologies]).output().unwrap()
}

#[track_caller]
fn compiles(artifact: &str, topologies: &str) {
    let output = compile(artifact, topologies);
    let (log, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}{errors}");
    for topology in topologies.split(',') {
        for program in ["step", "eval"] {
            let line = log.lines().find(|l| l.contains(program) && l.contains(topology));
            assert!(
                line.is_some_and(|l| l.contains(artifact) && !l.contains(" 0 bytes")),
                "{topology}: {log}"
            );
        }
    }
}

#[test]
#[ignore = "needs libtpu.so: see CONTRIBUTING.md"]
fn programs_compile_for_eight_devices_of_three_generations() {
    compiles("resnet8-x8", "v3:2x2,v5e:2x4,v6e:2x4");
}

#[test]
#[ignore = "needs libtpu.so: see CONTRIBUTING.md"]
fn bfloat16_programs_compile() {
    compiles("resnet8-bf16-x8", "v3:2x2");
}

#[test]
#[ignore = "needs libtpu.so: see CONTRIBUTING.md"]
fn programs_compile_for_thirty_two_devices_of_four_hosts() {
    compiles("resnet50-bf16-x32", "v3:4x4");
}

#[test]
#[ignore = "needs libtpu.so: see CONTRIBUTING.md"]
fn another_number_of_devices_is_refused() {
    let output = compile("resnet8-x8", "v3:4x4,v99:1x1");
    assert!(!output.status.success());
}

#[test]
#[ignore = "needs libtpu.so: see CONTRIBUTING.md"]
fn libtpu_has_a_profiler() {
    let libtpu = libtpu();
    let _lock = LIBTPU_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let plugin = Plugin::load(libtpu).unwrap();
    assert!(plugin.has_profiler());
    // Without a TPU, the recording has only the work of the host.
    let recording = plugin.start_profiler().unwrap().stop().unwrap();
    let planes = 1 << 3 | 2;
    assert_eq!(recording.first(), Some(&planes), "{} bytes", recording.len());
}
