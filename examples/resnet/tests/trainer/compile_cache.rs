//! The second start of a training, which loads its programs from the cache.

use crate::common::{another_client, losses, plugin, synthetic};
use resnet::pjrt::{CompileOptions, Executable, Signature, Span, Spec};
use std::path::Path;
use std::process::Command;

/// The output of a training of one epoch with the compile cache `cache`.
fn run(cache: &str) -> Option<String> {
    let shards = &synthetic().0;
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin()?).arg("--work-dir").arg(Path::new(&shards.train).parent().unwrap());
    program.args(["--shards", &shards.train, "--val-shards", &shards.validation, "--threads", "2"]);
    program.args(["--epochs", "1", "--log-steps", "1", "--shuffle", "50", "--artifact", "resnet8-x8"]);
    let output = program.args(["--compile-cache", cache]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn programs_from_the_cache_compute_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("compiled");
    let cache = path.to_str().unwrap();
    let Some(compiled) = run(cache) else { return };
    assert!(compiled.contains("programs: init, step, eval compiled in "), "{compiled}");
    assert!(compiled.contains(" MB put into the cache in "), "{compiled}");
    let loaded = run(cache).unwrap();
    assert!(loaded.contains("programs: init, step, eval loaded from the cache in "), "{loaded}");
    // Loaded programs reuse donated buffers too.
    assert_eq!(losses(&compiled).len(), 10);
    assert_eq!(losses(&loaded), losses(&compiled));
    let accuracy =
        |log: &str| log.lines().find(|line| line.contains("validation accuracy")).unwrap().to_owned();
    let counts = |log: &str| accuracy(log).split(" in ").next().unwrap().to_owned();
    assert_eq!(counts(&loaded), counts(&compiled));
    // Damage costs a compilation and nothing else.
    for file in
        std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()).filter(|file| file.is_file())
    {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }
    let again = run(cache).unwrap();
    assert_eq!(again.matches("cannot be used, and is compiled again").count(), 3, "{again}");
    assert_eq!(losses(&again), losses(&compiled));
    assert!(run(cache).unwrap().contains("loaded from the cache"));
}

#[test]
fn a_loaded_program_takes_over_the_memory_of_its_state() {
    // Adds its argument to itself, in the memory of the argument.
    const IN_PLACE: &str = "func.func @main(%x: tensor<1024xf32> {tf.aliasing_output = 0 : i32}) \
                            -> tensor<1024xf32> {
        %sum = stablehlo.add %x, %x : tensor<1024xf32>
        return %sum : tensor<1024xf32>
    }";
    let Some(client) = another_client(1) else { return };
    let signature = || Signature { state: vec![Spec::of::<f32>(&[1024])], inputs: vec![] };
    let options = CompileOptions::default();
    let compiled = client.compile(IN_PLACE.as_bytes(), signature(), &options).unwrap();
    let loaded = client.load(&compiled.serialize().unwrap(), signature(), &options, Span::Job).unwrap();
    let in_place = |program: &Executable| {
        let given = client.upload(&[1f32; 1024], &[1024], 0).unwrap();
        // A result, whose memory belongs to the plugin.
        let first = program.run(vec![vec![given]], &[vec![]]).unwrap();
        let address = first[0][0].address().unwrap();
        let second = program.run(first, &[vec![]]).unwrap();
        assert_eq!(second[0][0].to_host::<f32>().unwrap(), [4.0; 1024]);
        second[0][0].address().unwrap() == address
    };
    assert!(in_place(&compiled));
    assert!(in_place(&loaded));
}
