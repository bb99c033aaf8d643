//! Finds the PJRT plugin for this machine.

mod error;

pub use error::PluginError;

use crate::cuda;
use crate::progress::tasks;
use shardstream_pjrt::fetch::{self, Wheel};
use shardstream_pjrt::{Plugin, PluginOption};
use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// The user's choice of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PluginChoice {
    /// XLA's plugin for the CPU, which is downloaded the first time.
    Cpu,
    /// JAX's plugin for NVIDIA GPUs, which is downloaded the first time if python3 does not have the plugin.
    Cuda,
    /// Google's libtpu.
    Tpu,
    /// The path of a shared library.
    Path(PathBuf),
}

impl FromStr for PluginChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "cpu" => Self::Cpu,
            "cuda" => Self::Cuda,
            "tpu" => Self::Tpu,
            path => Self::Path(path.into()),
        })
    }
}

impl fmt::Display for PluginChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda => f.write_str("cuda"),
            Self::Tpu => f.write_str("tpu"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A plugin, and how it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlugin {
    /// The shared library.
    pub path: PathBuf,
    /// A description for the log.
    pub how: Cow<'static, str>,
}

impl FoundPlugin {
    /// Loads the plugin. Loading it runs code of the plugin.
    pub fn load(&self) -> Result<Plugin, PluginError> {
        let folder =
            self.path.parent().filter(|folder| cache_dir().is_ok_and(|cache| folder.starts_with(cache)));
        Plugin::load(&self.path).map_err(|source| match folder {
            Some(folder) => PluginError::Cached { folder: folder.into(), source },
            None => PluginError::Load(source),
        })
    }

    /// Whether the plugin drives TPUs, according to its file name.
    pub fn is_tpu(&self) -> bool {
        self.name().contains("tpu")
    }

    /// Whether the plugin drives GPUs, according to its file name. Such a plugin joins the processes of a job
    /// through a key-value store.
    pub fn is_gpu(&self) -> bool {
        ["cuda", "gpu", "rocm"].iter().any(|kind| self.name().contains(kind))
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().to_lowercase()
    }

    /// Options that open `devices` devices. Only the CPU plugin has such an option, since it can have any
    /// number of devices on one machine.
    pub fn client_options(&self, devices: usize) -> Vec<PluginOption> {
        if self.name().contains("cpu") { vec![("cpu_device_count", devices as i64).into()] } else { vec![] }
    }
}

/// Finds the plugin to train with: the given plugin; if none is given, the plugin for this machine's TPU or
/// GPU; if the machine has neither, the plugin for the CPU. The plugins for GPU and CPU are downloaded the
/// first time.
pub fn find(given: Option<&PluginChoice>) -> Result<FoundPlugin, PluginError> {
    if let Some(found) = by_option(given)? {
        return Ok(found);
    }
    let dev = Path::new("/dev");
    if tpu_present(dev) {
        // Not the CPU: each host of a slice would train by itself, and all would write the same checkpoints.
        return libtpu()?.ok_or(PluginError::NoLibtpu);
    }
    if gpu_present(dev) && cuda::is_supported() {
        return match cuda_plugin(Path::new("/proc")) {
            Err(PluginError::Driver { found }) => {
                let needed = cuda::OLDEST_DRIVER;
                let how = format!("CPU, as the driver of this machine's GPU is {found}, older than {needed}");
                Ok(FoundPlugin { how: how.into(), ..cpu()? })
            }
            found => found,
        };
    }
    cpu()
}

/// Finds the plugin that compiles for a TPU. The machine need not have a TPU.
pub fn find_compiler(given: Option<&PluginChoice>) -> Result<FoundPlugin, PluginError> {
    match by_option(given)? {
        Some(found) => Ok(found),
        None => libtpu()?.ok_or(PluginError::NoLibtpu),
    }
}

/// Whether a training with this choice would use a TPU of this machine.
pub fn is_on_tpu(given: Option<&PluginChoice>) -> Result<bool, PluginError> {
    if !tpu_present(Path::new("/dev")) {
        return Ok(false);
    }
    match given {
        Some(PluginChoice::Cpu | PluginChoice::Cuda) => Ok(false),
        Some(PluginChoice::Path(path)) => Ok(plugin_file(path.clone(), "--plugin")?.is_tpu()),
        Some(PluginChoice::Tpu) | None => Ok(libtpu()?.is_some_and(|found| found.is_tpu())),
    }
}

/// Whether this machine has a TPU: a device `accel0` … or `vfio/0` … in `dev`.
pub fn tpu_present(dev: &Path) -> bool {
    // /dev/vfio/vfio also exists on machines without a TPU.
    has_numbered_file(dev, "accel") || has_numbered_file(&dev.join("vfio"), "")
}

/// Whether this machine has an NVIDIA GPU: a device `nvidia0` … in `dev`.
pub fn gpu_present(dev: &Path) -> bool {
    has_numbered_file(dev, "nvidia")
}

/// Whether a folder has a file whose name is `prefix` and a number.
fn has_numbered_file(dir: &Path, prefix: &str) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.file_name()).any(|name| {
        let number = name.to_str().and_then(|n| n.strip_prefix(prefix));
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Finds the CUDA plugin that is installed for python3. If there is none, finds the plugin in the cache, and
/// downloads it the first time. `proc` is the folder `/proc`.
fn cuda_plugin(proc: &Path) -> Result<FoundPlugin, PluginError> {
    if !cuda::is_supported() {
        return Err(PluginError::CudaPlatform { platform: platform() });
    }
    let driver = cuda::driver(proc);
    if let Some(found) = driver.filter(|driver| *driver < cuda::OLDEST_DRIVER) {
        return Err(PluginError::Driver { found });
    }
    if let Some(found) = python_cuda(run_python, driver) {
        return Ok(found);
    }
    let cache = cache_dir()?;
    let path = tasks(|report| cuda::WHEELS.ensure(&cache, report))?;
    Ok(FoundPlugin { path, how: "CUDA".into() })
}

fn platform() -> String {
    format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Finds the CPU plugin in the cache. Downloads it the first time.
pub fn cpu() -> Result<FoundPlugin, PluginError> {
    let wheel = fetch::cpu_wheel().ok_or_else(|| PluginError::Platform { platform: platform() })?;
    let advice = "The download needs python3 with pip 20.3 or newer (on Debian: apt install python3-pip), \
                  access to a Python package index, and glibc 2.27. Without them: download the wheel \
                  elsewhere, unzip it, and give the .so in it as --plugin.";
    let (wheel, cache) = (Wheel { advice, ..wheel }, cache_dir()?);
    let path = tasks(|report| wheel.ensure(&cache, report))?;
    Ok(FoundPlugin { path, how: "CPU".into() })
}

/// The directory for downloads and generated data: `SHARDSTREAM_CACHE`, or the user's cache directory.
pub fn cache_dir() -> Result<PathBuf, PluginError> {
    fetch::cache_dir().ok_or(PluginError::NoCache)
}

fn by_option(given: Option<&PluginChoice>) -> Result<Option<FoundPlugin>, PluginError> {
    let find = |choice: &PluginChoice| match choice {
        PluginChoice::Cpu => cpu(),
        PluginChoice::Cuda => cuda_plugin(Path::new("/proc")),
        PluginChoice::Tpu => libtpu()?.ok_or(PluginError::NoLibtpu),
        PluginChoice::Path(path) => plugin_file(path.clone(), "--plugin"),
    };
    given.map(find).transpose()
}

fn libtpu() -> Result<Option<FoundPlugin>, PluginError> {
    if let Some(path) = std::env::var_os("TPU_LIBRARY_PATH").filter(|p| !p.is_empty()) {
        return plugin_file(path.into(), "TPU_LIBRARY_PATH").map(Some);
    }
    Ok(python_libtpu().map(|path| FoundPlugin { path, how: "libtpu of python3".into() }))
}

fn plugin_file(path: PathBuf, from: &'static str) -> Result<FoundPlugin, PluginError> {
    // The path is made absolute, because the dynamic linker searches only its own folders for a name without
    // a slash.
    match std::path::absolute(&path) {
        Ok(whole) if whole.is_file() => Ok(FoundPlugin { path: whole, how: from.into() }),
        _ => Err(PluginError::NoFile { from, path }),
    }
}

/// Finds the libtpu that is installed for python3. The package is looked up but not imported, since an import
/// would claim the TPU.
fn python_libtpu() -> Option<PathBuf> {
    const LOOK_UP: &str = "import importlib.util as u; s = u.find_spec('libtpu'); \
                           print(next(iter(s.submodule_search_locations)) if s else '')";
    python_file(LOOK_UP, "libtpu.so")
}

/// Finds the newest CUDA plugin that is installed for python3 and that the driver supports. NVIDIA's
/// libraries must be beside the plugin. `python` runs a line of Python and returns its output.
fn python_cuda(python: impl Fn(&str) -> Option<String>, driver: Option<cuda::Driver>) -> Option<FoundPlugin> {
    let is_supported =
        |package: &&cuda::PythonPackage| driver.is_none_or(|driver| driver >= package.oldest_driver);
    let mut packages = cuda::PYTHON_PACKAGES.iter().filter(is_supported);
    packages.find_map(|cuda::PythonPackage { name, module, .. }| {
        let look_up = format!(
            "import importlib.util as u, importlib.metadata as m; s = u.find_spec('jax_plugins.{module}'); \
             print(next(iter(s.submodule_search_locations))); print(m.version('{name}'))"
        );
        let output = python(&look_up)?;
        let (folder, version) = output.trim().split_once('\n')?;
        let path = Path::new(folder.trim()).join("xla_cuda_plugin.so");
        let libraries = path.ancestors().nth(3)?.join("nvidia/cudnn/lib");
        if !path.is_file() || !libraries.is_dir() {
            return None;
        }
        Some(FoundPlugin { path, how: format!("{name} {} of python3", version.trim()).into() })
    })
}

/// Runs `look_up`, a line of Python that prints a folder. Returns the path of the file `name` in this folder;
/// `None` if the file does not exist.
fn python_file(look_up: &str, name: &str) -> Option<PathBuf> {
    let folder = run_python(look_up)?;
    let path = Path::new(folder.trim()).join(name);
    if folder.trim().is_empty() || !path.is_file() {
        return None;
    }
    Some(path)
}

/// Runs a line of Python, and returns its output. The line cannot import modules from the current directory.
fn run_python(line: &str) -> Option<String> {
    let line = format!("import sys; sys.path[:] = [path for path in sys.path if path]; {line}");
    let output = Command::new("python3").args(["-c", &line]).output().ok()?;
    String::from_utf8(output.stdout).ok().filter(|_| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tpu_is_a_numbered_device() {
        let dev = tempfile::tempdir().unwrap();
        let add = |name: &str| {
            let path = dev.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        assert!(!tpu_present(dev.path()));
        add("vfio/vfio");
        add("accelerator");
        add("accel");
        assert!(!tpu_present(dev.path()));
        add("vfio/0");
        assert!(tpu_present(dev.path()));
        std::fs::remove_file(dev.path().join("vfio/0")).unwrap();
        add("accel0");
        assert!(tpu_present(dev.path()));
    }

    #[test]
    fn a_given_path_must_be_a_file() {
        let e = find(Some(&PluginChoice::Path("no/plugin.so".into()))).unwrap_err();
        assert!(matches!(e, PluginError::NoFile { from: "--plugin", .. }), "{e}");
    }

    #[test]
    fn a_given_name_without_a_slash_is_a_file_in_the_current_directory() {
        // The dynamic linker would search its own folders for a name without a slash.
        let found = find(Some(&PluginChoice::Path("Cargo.toml".into()))).unwrap();
        assert!(found.path.is_absolute(), "{found:?}");
    }

    #[test]
    fn a_gpu_is_a_numbered_device() {
        let dev = tempfile::tempdir().unwrap();
        for control in ["nvidiactl", "nvidia-uvm", "nvidia"] {
            std::fs::write(dev.path().join(control), "").unwrap();
        }
        assert!(!gpu_present(dev.path()));
        std::fs::write(dev.path().join("nvidia3"), "").unwrap();
        assert!(gpu_present(dev.path()));
    }

    #[test]
    fn an_old_driver_is_refused_before_the_download() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("driver/nvidia");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("version"),
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu",
        )
        .unwrap();
        let error = cuda_plugin(proc.path()).unwrap_err().to_string();
        assert!(error.contains("470.256.02") && error.contains("525.60.13"), "{error}");
    }

    #[test]
    fn the_newest_cuda_plugin_of_python_that_the_driver_supports_is_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let module = |cuda: u32| dir.path().join(format!("jax_plugins/xla_cuda{cuda}"));
        let python = |line: &str| {
            let mut packages = [(12, "0.10.2"), (13, "0.11.2")].into_iter();
            let (cuda, version) = packages.find(|(cuda, _)| line.contains(&format!("xla_cuda{cuda}")))?;
            Some(format!("{}\n{version}\n", module(cuda).display()))
        };
        let found = |driver: &str| python_cuda(python, driver.parse().ok());
        for cuda in [12, 13] {
            std::fs::create_dir_all(module(cuda)).unwrap();
            std::fs::write(module(cuda).join("xla_cuda_plugin.so"), "").unwrap();
        }
        assert_eq!(found("580.159.04"), None, "without NVIDIA's libraries");
        std::fs::create_dir_all(dir.path().join("nvidia/cudnn/lib")).unwrap();
        for (driver, cuda, how) in [
            ("580.159.04", 13, "jax-cuda13-pjrt 0.11.2 of python3"),
            ("535.183.01", 12, "jax-cuda12-pjrt 0.10.2 of python3"),
            ("unknown", 13, "jax-cuda13-pjrt 0.11.2 of python3"),
        ] {
            let found = found(driver).unwrap();
            assert_eq!((found.path, &*found.how), (module(cuda).join("xla_cuda_plugin.so"), how), "{driver}");
        }
        std::fs::remove_file(module(13).join("xla_cuda_plugin.so")).unwrap();
        assert_eq!(found("580.159.04").unwrap().path, module(12).join("xla_cuda_plugin.so"));
    }

    #[test]
    fn a_choice_is_a_known_word_or_a_path() {
        for text in ["cpu", "cuda", "tpu", "./cpu", "dir/plugin.so"] {
            let choice: PluginChoice = text.parse().unwrap();
            assert_eq!(matches!(choice, PluginChoice::Path(_)), text.contains('/'));
            assert_eq!(choice.to_string(), text);
        }
    }

    #[test]
    fn only_the_cpu_plugin_has_an_option_for_the_number_of_devices() {
        let options = |path: &str| FoundPlugin { path: path.into(), how: "".into() }.client_options(8);
        assert_eq!(options("x/xla_cpu_pjrt.so"), [("cpu_device_count", 8).into()]);
        assert!(options("cpu/libtpu.so").is_empty());
    }
}
