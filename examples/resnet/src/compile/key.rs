//! The key of a compiled program: everything that the executable depends on.

use super::program::Program;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shardstream_pjrt::{Client, PjrtError, PluginOption, Span};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Environment variables that change what plugins compile.
const VARIABLES: [&str; 6] = [
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "TPU_MEGACORE",
    "TF_XLA_FLAGS",
    "NVIDIA_TF32_OVERRIDE",
    "TF_CUDNN_DETERMINISTIC",
];

/// Prefixes of the names of drivers and of the libraries that GPU plugins compile with.
const LIBRARIES: [&str; 8] =
    ["libcu", "libnv", "libnccl", "libamd", "libhip", "libroc", "libMIOpen", "libhsa"];

/// Everything that an executable depends on. The key is stored in the executable's file, and the key's hash
/// is the file's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Version of the file's format.
    format: u32,
    /// Sha256 of the program.
    program: String,
    /// The serialized compile options in hexadecimal digits. They include the ids of the devices.
    options: String,
    target: Target,
}

/// Everything that the executables of a process depend on, except the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    plugin: Library,
    /// The options as the user wrote them.
    plugin_options: Vec<String>,
    /// The GPU libraries that the process has loaded, such as the driver.
    libraries: Vec<Library>,
    api: (i32, i32),
    platform: String,
    platform_version: String,
    process: usize,
    devices: Vec<DeviceKey>,
    environment: Vec<(String, String)>,
    /// The host's processor, if the programs run on it.
    processor: Option<Processor>,
}

/// The identity of a shared library. It includes the file's name and not its path: the same file may have
/// different paths in different containers, and an update may put another file at the same path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Library {
    name: String,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u64,
    /// Sha256 over parts of the file. The modification time alone does not identify the file, since some
    /// installers give every file the same time. Hashing all of a 300 MB file would take a second.
    samples: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceKey {
    id: i64,
    process: i32,
    local: bool,
    kind: String,
    description: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Processor {
    /// The name of the processor, for people who read the file.
    model: String,
    /// Sha256 of the models and instruction sets of all cores.
    features: String,
    /// Number of threads, among which the compiled program divides its work.
    threads: usize,
}

impl Key {
    pub(super) fn new(target: &Target, client: &Client, program: &Program<'_>) -> Result<Self, PjrtError> {
        let options = client.encoded_options(program.options, program.span)?;
        Ok(Self {
            format: 1,
            program: crate::hex(&Sha256::digest(program.code)),
            options: crate::hex(&options),
            target: target.clone(),
        })
    }

    /// Sha256 of the key.
    pub(super) fn hash(&self) -> String {
        // Serializing a struct of strings and numbers to JSON is deterministic and cannot fail.
        crate::hex(&Sha256::digest(serde_json::to_vec(self).unwrap_or_default()))
    }
}

impl Target {
    /// The target for the devices of this client. `None` if the target cannot be determined, as on a host
    /// that does not report its processor's features.
    pub fn new(client: &Client, plugin: &Path, options: &[PluginOption]) -> io::Result<Option<Self>> {
        let platform = client.platform().map_err(io::Error::other)?;
        let runs_on_host = platform == "cpu" || platform == "Host";
        let processor = if runs_on_host { Processor::of_host() } else { None };
        if runs_on_host && processor.is_none() {
            return Ok(None);
        }
        let identities = client.device_identities().map_err(io::Error::other)?;
        let devices = identities.into_iter().map(|device| DeviceKey {
            id: device.id,
            process: device.process,
            local: device.local,
            kind: device.kind,
            description: device.description,
        });
        Ok(Some(Self {
            plugin: Library::new(plugin)?,
            plugin_options: options.iter().map(ToString::to_string).collect(),
            libraries: gpu_libraries(),
            api: client.api_version(),
            platform,
            platform_version: client.platform_version(),
            process: client.process_index().map_err(io::Error::other)?,
            devices: devices.collect(),
            environment: environment(|name| std::env::var(name).ok()),
            processor,
        }))
    }

    /// Whether programs of this span are cached. Programs that span several GPU processes are not cached: all
    /// processes must compile such a program, since their compilers divide the work of tuning among each
    /// other. If one process loaded the program from the cache, the others would wait for its tuning results.
    pub(super) fn keeps(&self, span: Span) -> bool {
        let is_one_process = self.devices.iter().all(|device| device.local);
        let platform = self.platform.to_lowercase();
        let is_gpu = ["cuda", "rocm", "gpu"].iter().any(|name| platform.contains(name));
        span == Span::Process || is_one_process || !is_gpu
    }
}

impl Library {
    fn new(path: &Path) -> io::Result<Self> {
        const SAMPLES: u64 = 64;
        const SAMPLE: u64 = 16 << 10;
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let (bytes, modified) = (metadata.len(), metadata.modified()?);
        let mut hash = Sha256::new();
        let mut buffer = vec![0; SAMPLE as usize];
        for sample in 0..SAMPLES {
            // The last sample ends at the end of the file.
            let offset = bytes.saturating_sub(SAMPLE) as u128 * u128::from(sample) / u128::from(SAMPLES - 1);
            let part = &mut buffer[..bytes.min(SAMPLE) as usize];
            file.seek(SeekFrom::Start(offset as u64))?;
            file.read_exact(part)?;
            hash.update(part);
        }
        Ok(Self {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes,
            modified: modified.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
            samples: crate::hex(&hash.finalize()),
        })
    }
}

/// The GPU libraries that this process has loaded; empty if the system does not list them.
fn gpu_libraries() -> Vec<Library> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths: BTreeSet<_> =
        maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..])).collect();
    let is_gpu = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.contains(".so") && LIBRARIES.iter().any(|start| name.starts_with(start))
    };
    let mut libraries: Vec<_> =
        paths.into_iter().filter(is_gpu).filter_map(|path| Library::new(Path::new(path)).ok()).collect();
    libraries.sort();
    libraries
}

/// The environment variables that are set. If `XLA_FLAGS` names a file with the flags, the value includes the
/// content of that file.
fn environment(get: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for name in VARIABLES {
        let Some(value) = get(name) else { continue };
        let is_file = name == "XLA_FLAGS" && !value.trim_start().starts_with('-');
        let value = match fs::read_to_string(&value) {
            Ok(content) if is_file => format!("{value}: {content}"),
            _ => value,
        };
        variables.push((name.to_owned(), value));
    }
    variables
}

impl Processor {
    fn of_host() -> Option<Self> {
        let threads = std::thread::available_parallelism().ok()?.get();
        Self::from_cpuinfo(&fs::read_to_string("/proc/cpuinfo").ok()?, threads)
    }

    /// Reads the text of `/proc/cpuinfo`. `None` if the text does not list the features.
    fn from_cpuinfo(text: &str, threads: usize) -> Option<Self> {
        // The list lacks a core's frequency and number, since these do not affect the code.
        const NAMES: [&str; 11] = [
            "vendor_id",
            "cpu family",
            "model",
            "model name",
            "stepping",
            "flags",
            "Features",
            "CPU implementer",
            "CPU architecture",
            "CPU variant",
            "CPU part",
        ];
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let unique: BTreeSet<_> = lines.map(|(name, value)| (name.trim(), value.trim())).collect();
        let fields: Vec<_> = unique.into_iter().filter(|(name, _)| NAMES.contains(name)).collect();
        let value = |wanted: &str| fields.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        value("flags").or(value("Features"))?;
        let model = value("model name").or(value("CPU part")).unwrap_or_default().to_owned();
        Some(Self { model, features: crate::hex(&Sha256::digest(format!("{fields:?}"))), threads })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The key of a fictitious program.
    pub(in super::super) fn key(program: &str) -> Key {
        let plugin = Library { name: "p.so".into(), bytes: 1, modified: 2, samples: "3".into() };
        let device =
            DeviceKey { id: 0, process: 0, local: true, kind: "chip".into(), description: "(0,0)".into() };
        let target = Target {
            plugin,
            plugin_options: vec![],
            libraries: vec![],
            api: (0, 81),
            platform: "tpu".into(),
            platform_version: "1".into(),
            process: 0,
            devices: vec![device],
            environment: vec![],
            processor: None,
        };
        Key { format: 1, program: program.into(), options: "00".into(), target }
    }

    /// The target of a fictitious plugin.
    pub(in super::super) fn target() -> Target {
        key("").target
    }

    #[test]
    fn each_field_changes_the_hash() {
        let first = key("step");
        let mut hashes = vec![first.hash()];
        assert_eq!(hashes[0], key("step").hash());
        let changes: [fn(&mut Key); 15] = [
            |k| k.format = 2,
            |k| k.program = "eval".into(),
            |k| k.options = "01".into(),
            |k| k.target.plugin.bytes = 9,
            |k| k.target.plugin.modified = 9,
            |k| k.target.plugin.samples = "9".into(),
            |k| k.target.plugin_options = vec!["a=1".into()],
            |k| k.target.libraries = vec![k.target.plugin.clone()],
            |k| k.target.api = (0, 82),
            |k| k.target.platform = "cpu".into(),
            |k| k.target.platform_version = "2".into(),
            |k| k.target.process = 1,
            |k| k.target.devices[0].description = "(0,1)".into(),
            |k| k.target.environment = vec![("XLA_FLAGS".into(), "--a".into())],
            |k| {
                k.target.processor = Some(Processor { model: "a".into(), features: "b".into(), threads: 2 });
            },
        ];
        for change in changes {
            let mut other = first.clone();
            change(&mut other);
            hashes.push(other.hash());
        }
        let unique: BTreeSet<_> = hashes.iter().collect();
        assert_eq!(unique.len(), hashes.len());
    }

    #[test]
    fn a_processor_is_identified_by_model_and_features() {
        let parse = |text: &str| Processor::from_cpuinfo(text, 2);
        let first =
            parse("processor\t: 0\nmodel name\t: Chip\nflags\t\t: avx avx2\ncpu MHz\t\t: 2100\n").unwrap();
        let same =
            parse("processor\t: 1\nmodel name\t: Chip\nflags\t\t: avx avx2\ncpu MHz\t\t: 3300\n").unwrap();
        let other = parse("processor\t: 0\nmodel name\t: Chip\nflags\t\t: avx avx2 avx512f\n").unwrap();
        assert_eq!((&first, first.model.as_str()), (&same, "Chip"));
        assert_ne!(first, other);
        let arm = parse("processor\t: 0\nFeatures\t: asimd sve\nCPU part\t: 0xd40\n").unwrap();
        assert_eq!(arm.model, "0xd40");
        assert_eq!(parse("processor: 0\n"), None, "the features are not listed");
    }

    #[test]
    fn a_library_is_identified_by_its_content_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plugin.so");
        let mut content = vec![7u8; 3 << 20];
        fs::write(&path, &content).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let first = Library::new(&path).unwrap();
        assert_eq!(first, Library::new(&path).unwrap());
        *content.last_mut().unwrap() = 8;
        fs::write(&path, &content).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let other = Library::new(&path).unwrap();
        assert_eq!((first.bytes, first.modified), (other.bytes, other.modified));
        assert_ne!(first.samples, other.samples);
        fs::write(&path, b"").unwrap();
        assert_eq!(Library::new(&path).unwrap().bytes, 0);
        assert!(Library::new(&dir.path().join("none.so")).is_err());
    }

    #[test]
    fn flags_in_a_file_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "--xla_one").unwrap();
        let path = file.path().display().to_string();
        let only = |variable: &'static str| {
            let path = path.clone();
            environment(move |name| if name == variable { Some(path.clone()) } else { None })
        };
        assert_eq!(only("XLA_FLAGS"), [("XLA_FLAGS".to_owned(), format!("{path}: --xla_one"))]);
        assert_eq!(only("LIBTPU_INIT_ARGS"), [("LIBTPU_INIT_ARGS".to_owned(), path.clone())]);
    }

    #[test]
    fn programs_that_gpu_processes_compile_together_are_not_cached() {
        let mut target = key("step").target;
        assert!(target.keeps(Span::Job));
        target.devices.push(DeviceKey { id: 1, process: 1, local: false, ..target.devices[0].clone() });
        assert!(target.keeps(Span::Job), "on a TPU each process compiles for itself");
        target.platform = "cuda".into();
        assert!(target.keeps(Span::Process) && !target.keeps(Span::Job));
    }
}
