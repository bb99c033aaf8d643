//! Importing and exporting weights: trainings that start from given weights, and logits compared with
//! torchvision's.
//!
//! `SHARDSTREAM_TEST_JAX` is a Python interpreter with the packages of `export/requirements.txt`, and
//! `SHARDSTREAM_TEST_TORCHVISION` is an interpreter with torch, torchvision and safetensors. Tests that need
//! either of them are ignored by default.

use crate::common::{plugin, synthetic};
use resnet::artifact::{Artifact, Manifest};
use resnet::weights::{Initial, encode};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A training on one device, with 64 images a step.
fn program(arguments: &[&str]) -> Command {
    let plugin = plugin();
    let shards = &synthetic().0;
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin).arg("--work-dir").arg(Path::new(&shards.train).parent().unwrap());
    program.args(["--shards", &shards.train, "--val-shards", &shards.validation]);
    program.args(["--log-steps", "1", "--threads", "2", "--shuffle", "100", "--warmup", "5"]).args(arguments);
    program
}

/// The log of a successful program.
fn log(program: &mut Command) -> String {
    let output = program.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error output of a failed program.
fn error(program: &mut Command) -> String {
    let output = program.output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The loss of the first step.
fn first_loss(log: &str) -> f32 {
    let (_, rest) = log.split_once("  loss ").expect("a line of a step");
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_training_starts_from_the_weights_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (weights, checkpoints) = (path("first/model.safetensors"), path("first/saved"));
    let training =
        ["--epochs", "4", "--checkpoint", &checkpoints, "--resume", "auto", "--save-weights", &weights];
    let mut first = program(&training);
    let first = log(&mut first);
    assert!(first.contains(&format!(" -> {weights}")), "{first}");
    let written = std::fs::read(&weights).unwrap();

    // A run that resumes the finished training writes the checkpoint's weights to the file again.
    std::fs::remove_file(&weights).unwrap();
    let again = log(&mut program(&training));
    assert!(again.contains("all 4 epochs are done") && again.contains(&weights), "{again}");
    assert!(std::fs::read(&weights).unwrap() == written, "the same bytes");

    let checkpoints = path("second");
    let tuning = ["--init-from", &weights, "--seed", "2", "--checkpoint", &checkpoints, "--resume", "auto"];
    let with = |more: &[&str]| log(&mut program(&[&tuning[..], &["--epochs", "1"], more].concat()));
    let second = with(&["--steps", "2"]);
    let (random, trained) = (first_loss(&first), first_loss(&second));
    println!("the first loss: {random} of random weights, {trained} of trained ones");
    assert!(trained < 0.6 * random, "{random} {trained}");
    let line = format!("initial weights: 47 tensors of {weights}, sha256 ");
    assert!(second.contains(&line) && !second.contains("fc"), "{second}");

    // The same command with more epochs resumes, and does not start from the weights again.
    let resumed = log(&mut program(&[&tuning[..], &["--epochs", "2", "--steps", "2"]].concat()));
    assert!(resumed.contains("--init-from is not read") && !resumed.contains("initial weights"), "{resumed}");
    assert!(resumed.contains("epoch 2 of 2") && !resumed.contains("epoch 1 of 2: training"), "{resumed}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn weights_of_another_network_are_refused_before_compilation() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r20.safetensors");
    let manifest = Artifact::open("resnet20").unwrap().manifest;
    std::fs::write(&file, encode(&manifest, &state(&manifest)).unwrap()).unwrap();
    let arguments = ["--init-from", file.to_str().unwrap()];
    let mut program = program(&arguments);
    let message = error(&mut program);
    assert!(
        message.contains("do not fit the network resnet8") && message.contains("and 55 more"),
        "{message}"
    );
    std::fs::write(&file, "nothing").unwrap();
    let message = error(&mut self::program(&arguments));
    assert!(message.contains("is not a complete safetensors file"), "{message}");
    // A URL that cannot be written to is reported before the work starts.
    let inside = file.join("model.safetensors");
    let message = error(&mut self::program(&["--save-weights", inside.to_str().unwrap()]));
    assert!(message.contains("cannot write the weights"), "{message}");
}

#[cfg(feature = "gcs")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn weights_are_written_to_a_bucket_and_read_from_it() {
    let server = crate::bucket::start();
    let run = |arguments: &[&str]| {
        let mut program = program(&[arguments, &["--epochs", "1", "--steps", "1"]].concat());
        log(program.env("STORAGE_EMULATOR_HOST", server.url("")))
    };
    let first = run(&["--save-weights", "gs://bucket/weights/"]);
    assert!(first.contains("-> gs://bucket/weights/model.safetensors"), "{first}");
    let second = run(&["--init-from", "gs://bucket/weights/model.safetensors"]);
    assert!(
        second.contains("initial weights: 47 tensors of gs://bucket/weights/model.safetensors"),
        "{second}"
    );
}

/// The Python interpreter to which the environment variable `SHARDSTREAM_TEST_name` is set.
fn python(name: &str) -> PathBuf {
    let variable = format!("SHARDSTREAM_TEST_{name}");
    std::env::var_os(&variable).unwrap_or_else(|| panic!("{variable} must name a Python")).into()
}

/// Reproducible numbers from -1 to 1.
fn noise() -> impl FnMut() -> f32 {
    let mut bits = 1_u32;
    move || {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (bits >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A state with random weights that neither vanish nor explode from layer to layer, and with statistics
/// unlike the initial statistics.
fn state(manifest: &Manifest) -> Vec<Vec<f32>> {
    let mut noise = noise();
    let buffers = manifest.state.iter().map(|buffer| {
        let values = buffer.shape.iter().product::<i64>();
        let inputs = values / buffer.shape.last().copied().unwrap_or(1).max(1);
        let (mean, width) = match buffer.name.rsplit('.').next() {
            Some("kernel") => (0.0, (6.0 / inputs as f32).sqrt()),
            Some("scale" | "var") => (0.6, 0.3),
            _ => (0.0, 0.1),
        };
        match buffer.name.starts_with("opt.") {
            true => vec![0.0; values as usize],
            false => (0..values).map(|_| mean + width * noise()).collect(),
        }
    });
    buffers.collect()
}

/// The manifest of torchvision's network of this name, for 224 pixels and 1000 classes.
fn network(model: &str) -> Manifest {
    let artifact = if model == "resnet50" { "resnet50-224" } else { model };
    let mut manifest = Artifact::open(artifact).unwrap().manifest;
    (manifest.size, manifest.classes) = (224, 1000);
    for buffer in &mut manifest.state {
        // In artifacts for 32 pixels and 10 classes, the first kernel and the last layer are smaller than in
        // torchvision's network.
        if buffer.name.ends_with("s.Conv_0.kernel") || buffer.name.ends_with("trace.Conv_0.kernel") {
            buffer.shape[..2].copy_from_slice(&[7, 7]);
        } else if buffer.name.contains(".Dense_0.") {
            *buffer.shape.last_mut().unwrap() = 1000;
        }
    }
    manifest
}

/// Runs `logits.py` with requests for one network.
struct Comparison {
    dir: tempfile::TempDir,
    manifest: Manifest,
}

fn bytes<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.into_iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}

impl Comparison {
    fn new(model: &str) -> Self {
        let (dir, manifest) = (tempfile::tempdir().unwrap(), network(model));
        let mut noise = noise();
        let images: Vec<f32> = (0..2 * 3 * 224 * 224).map(|_| 2.0 * noise()).collect();
        std::fs::write(dir.path().join("images"), bytes(&images)).unwrap();
        Self { dir, manifest }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn logits(&self, python: &Path, by: &str) -> Vec<f32> {
        let request = serde_json::json!({
            "by": by,
            "model": self.manifest.model,
            "classes": 1000,
            "size": 224,
            "images": self.path("images"),
            "state": self.path("state"),
            "weights": self.path("weights"),
            "logits": self.path("logits"),
        });
        std::fs::write(self.path("request"), request.to_string()).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trainer/weights/logits.py");
        let output = Command::new(python).arg("-B").arg(script).arg(self.path("request")).output().unwrap();
        assert!(output.status.success(), "{by}: {}", String::from_utf8_lossy(&output.stderr));
        let logits = std::fs::read(self.path("logits")).unwrap();
        assert!(logits.len().is_multiple_of(2 * 1000 * 4), "{by}: {} bytes", logits.len());
        logits.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    fn export(&self) {
        let state = state(&self.manifest);
        std::fs::write(self.path("state"), bytes(state.iter().flatten())).unwrap();
        std::fs::write(self.path("weights"), encode(&self.manifest, &state).unwrap()).unwrap();
    }

    /// Reads the safetensors file into a second state, and appends that state to the file of the exported
    /// state.
    fn import(&self) {
        let mut state = state(&self.manifest);
        let initial = Initial::read(self.path("weights").to_str().unwrap(), &self.manifest).unwrap();
        initial.apply(&mut state);
        let mut file = std::fs::File::options().append(true).open(self.path("state")).unwrap();
        file.write_all(&bytes(state.iter().flatten())).unwrap();
    }
}

/// Compares logits. The tolerance allows for sums in another order; the largest observed difference was 2e-6
/// of the largest logit.
fn compare(name: &str, ours: &[f32], theirs: &[f32]) {
    let largest = ours.iter().fold(0_f32, |most, logit| most.max(logit.abs()));
    let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0_f32, f32::max);
    println!("{name}: logits up to {largest}, differ by at most {difference}");
    assert!(largest > 0.1 && difference < 1e-4 * largest, "{name}: {difference} of {largest}");
    // A network that ignores its input would give two images the same logits.
    assert_ne!(ours[..1000], ours[1000..]);
}

#[test]
#[ignore = "needs Pythons with JAX and with torchvision: see CONTRIBUTING.md"]
fn a_network_built_from_the_file_gives_the_exporters_logits() {
    if std::env::var_os("SHARDSTREAM_TEST_TORCHVISION").is_some_and(|path| !path.is_empty()) {
        // The next test compares with torchvision itself, so this test is not needed: its network only
        // imitates torchvision in JAX.
        return;
    }
    let jax = python("JAX");
    for model in ["resnet18", "resnet50"] {
        let comparison = Comparison::new(model);
        comparison.export();
        compare(model, &comparison.logits(&jax, "exporter"), &comparison.logits(&jax, "names"));
    }
}

#[test]
#[ignore = "needs Pythons with JAX and with torchvision: see CONTRIBUTING.md"]
fn torchvision_gives_the_exporters_logits() {
    let (jax, torch) = (python("JAX"), python("TORCHVISION"));
    for model in ["resnet18", "resnet50"] {
        let comparison = Comparison::new(model);
        comparison.export();
        let exported = comparison.logits(&torch, "torchvision");
        let random = comparison.logits(&torch, "random");
        comparison.import();
        // Computes the logits of both states in one call, as compiling takes most of the time.
        let exporter = comparison.logits(&jax, "exporter");
        let (export, import) = exporter.split_at(2 * 1000);
        compare(&format!("{model} exported"), export, &exported);
        compare(&format!("{model} imported"), import, &random);
    }
}
