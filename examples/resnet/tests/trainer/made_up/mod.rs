//! Jobs of several processes, with a fake plugin instead of the CUDA plugin, which needs a GPU. The tests
//! build the fake plugin with rustc.

use crate::build::build;
use crate::child::child;
use crate::common::synthetic;
use resnet::compile::{Cache, Compiler, Program};
use resnet::model::DeviceMemory;
use resnet::plugin::FoundPlugin;
use shardstream::tensor::BatchMemory;
use shardstream_pjrt::{CompileOptions, OptionValue, PluginOption, Signature, Span};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The path of the fake plugin. Its file name makes the trainer treat the fake plugin as a plugin for GPUs.
fn plugin() -> &'static Path {
    static BUILT: OnceLock<(Option<tempfile::TempDir>, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os("MADE_UP_PLUGIN") {
            return (None, path.into());
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made_up_gpu.so");
        let source = "../../crates/pjrt/tests/made_up/plugin.rs";
        build(&Path::new(env!("CARGO_MANIFEST_DIR")).join(source), &path);
        (Some(dir), path)
    });
    path
}

/// The trainer in a dry run on eight fake GPUs.
fn program(arguments: &[&str]) -> Command {
    program_of("resnet8-x8", arguments)
}

fn program_of(artifact: &str, arguments: &[&str]) -> Command {
    let shards = &synthetic().0;
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin()).args(["--artifact", artifact, "--dry-run", "--work-dir"]);
    program.arg(Path::new(&shards.train).parent().unwrap());
    program.args(["--shards", &shards.train, "--val-shards", &shards.validation, "--epochs", "1"]);
    program.args(["--log-steps", "0", "--workers", "1", "--shuffle", "50"]).args(arguments);
    // The job must not inherit these variables from the tests' environment.
    for name in ["CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "SHARDSTREAM_COORDINATOR", "SLURM_STEP_ID"] {
        program.env_remove(name);
    }
    program
}

fn texts(Output { status, stdout, stderr }: Output) -> (bool, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

fn run(program: &mut Command) -> (bool, String, String) {
    texts(program.output().unwrap())
}

/// An address with a port that was free a moment ago.
fn address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn one_process_uses_as_many_gpus_as_the_program_needs() {
    let (success, out, errors) = run(&mut program(&[]));
    assert!(success, "{errors}");
    assert!(errors.contains("node 0 of 1 sees the devices [[0, 1, 2, 3, 4, 5, 6, 7]]"), "{errors}");
    assert!(out.contains("on 8 of 8 made-up devices") && out.contains("has 8 of the devices"), "{out}");
}

#[test]
fn spawned_processes_join_and_share_the_gpus() {
    let (success, out, errors) = run(&mut program(&["--spawn", "4"]));
    assert!(success, "{errors}");
    for rank in 0..4 {
        let devices = format!("node {rank} of 4 sees the devices [[0, 1], [2, 3], [4, 5], [6, 7]]");
        assert!(errors.contains(&devices), "{errors}");
    }
    assert_eq!(out.matches("on 8 of 8 made-up devices").count(), 4, "{out}");
    assert_eq!(out.matches("has 2 of the devices").count(), 4, "{out}");
}

/// A rank of a job on two hosts with four GPUs each.
fn rank(artifact: &str, rank: &str, address: &str, timeout: &str) -> Command {
    let job = ["--rank", rank, "--world-size", "2", "--coordinator", address, "--join-timeout", timeout];
    let mut program = program_of(artifact, &job);
    program.args(["--plugin-option", "visible_devices=[0,1,2,3]"]);
    program
}

#[test]
fn processes_of_two_hosts_join_at_rank_0() {
    let address = address();
    let second = std::thread::spawn({
        let address = address.clone();
        // Rank 1 starts first.
        move || run(&mut rank("resnet8-x8", "1", &address, "30"))
    });
    std::thread::sleep(Duration::from_millis(300));
    let first = run(&mut rank("resnet8-x8", "0", &address, "30"));
    for (rank, (success, out, errors)) in [first, second.join().unwrap()].into_iter().enumerate() {
        assert!(success, "{errors}");
        let devices = format!("node {rank} of 2 sees the devices [[0, 1, 2, 3], [0, 1, 2, 3]]");
        assert!(errors.contains(&devices), "{errors}");
        assert!(out.contains("has 4 of the devices"), "{out}");
    }
}

#[test]
fn the_error_names_the_missing_rank() {
    let start = Instant::now();
    let (success, _, errors) = run(&mut rank("resnet8-x8", "0", &address(), "0.5"));
    assert!(!success && errors.contains("and rank 1 has not joined"), "{errors}");
    let (success, _, errors) = run(&mut rank("resnet8-x8", "1", &address(), "0.5"));
    assert!(!success && errors.contains("rank 1 did not reach rank 0 at 127.0.0.1:"), "{errors}");
    let (success, _, errors) = run(&mut program(&["--rank", "0", "--world-size", "2"]));
    assert!(!success && errors.contains("--coordinator HOST:PORT"), "{errors}");
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn the_error_names_a_rank_that_puts_no_key() {
    let mut program = program(&["--spawn", "2"]);
    let (success, _, errors) = run(program.env("MADE_UP_SILENT", "1").env("MADE_UP_TIMEOUT", "300"));
    let expected =
        "PJRT_Client_Create: rank 0 has waited 0.3 s for the key \"made_up/1\"; rank 1 has put no key yet";
    assert!(!success && errors.contains(expected), "{errors}");
}

#[test]
fn a_rank_with_another_program_is_refused() {
    let address = address();
    let first = std::thread::spawn({
        let address = address.clone();
        move || run(&mut rank("resnet8-x8", "0", &address, "5"))
    });
    let (success, _, errors) = run(&mut rank("resnet8-bf16-x8", "1", &address, "30"));
    assert!(!success && errors.contains("resnet8-x8 (") && errors.contains("rank 0 trains "), "{errors}");
    assert!(!first.join().unwrap().0);
}

#[test]
fn batch_memory_is_mapped_until_it_is_dropped() {
    let found = FoundPlugin { path: plugin().into(), how: "made up".into() };
    let visible = PluginOption { name: "visible_devices".into(), value: OptionValue::Ints(vec![0]) };
    let memory = DeviceMemory::new(&found.load().unwrap().client(&[visible]).unwrap());
    let slab = vec![0_u8; 4096];
    let pinned = memory.pin(&slab).unwrap();
    let again = memory.pin(&slab).err().unwrap().to_string();
    assert!(again.contains("mapped already"), "{again}");
    drop(pinned);
    memory.pin(&slab).unwrap();
}

#[test]
#[ignore = "run by a_program_that_crashed_while_loading_is_compiled_again"]
fn compile_with_cache_in_child() {
    let dir = std::env::var_os("MADE_UP_CACHE").unwrap();
    let found = FoundPlugin { path: plugin().into(), how: "made up".into() };
    let visible = PluginOption { name: "visible_devices".into(), value: OptionValue::Ints(vec![0]) };
    let client = found.load().unwrap().client(&[visible]).unwrap();
    let cache = Cache::open(dir, &client, &found, &[]).unwrap();
    let mut compiler = Compiler::with_cache(&client, Some(cache));
    let options = CompileOptions::default();
    let program = Program {
        name: "step",
        code: b"code",
        signature: Signature::default(),
        options: &options,
        span: Span::Job,
    };
    compiler.compile(&program).unwrap();
    println!("{}", compiler.report());
}

#[test]
fn a_program_that_crashed_while_loading_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    // The key of a cached program depends on the plugin's file, so all starts use the same file.
    let start = |crash: bool| {
        let mut process = child(module_path!(), "compile_with_cache_in_child");
        process.env("MADE_UP_CACHE", dir.path()).env("MADE_UP_PLUGIN", plugin());
        if crash {
            process.env("MADE_UP_CRASH", "1");
        }
        run(&mut process)
    };
    let files = |ending: &str| {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.to_str().unwrap().contains(ending)).collect::<Vec<_>>()
    };
    let (_, out, errors) = start(false);
    assert!(out.contains("programs: step compiled in"), "{out}{errors}");
    let (success, out, _) = start(true);
    assert!(!success && !out.contains("programs:"), "{out}");
    assert_eq!((files(".executable").len(), files(".loading-").len()), (1, 1));
    for _ in 0..2 {
        let (success, out, errors) = start(true);
        assert!(success && out.contains("programs: step compiled in"), "{out}{errors}");
        assert!(out.contains("warning: a process died or was killed while it loaded"), "{out}");
        assert_eq!((files(".executable").len(), files(".loading-").len()), (0, 1));
    }
    std::fs::remove_file(&files(".loading-")[0]).unwrap();
    let (_, out, _) = start(false);
    assert!(out.contains("programs: step compiled in") && !out.contains("warning"), "{out}");
    let (_, out, _) = start(false);
    assert!(out.contains("programs: step loaded from the cache in"), "{out}");
    assert_eq!((files(".executable").len(), files(".loading-").len()), (1, 0));
}
