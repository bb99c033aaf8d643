//! Finding the PJRT plugin of this machine.

use crate::pjrt::{self, Plugin, PluginOption};
use crate::wheel::{self, Wheel};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why there is no plugin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path that somebody gave is no file.
    #[error("{from} names {path}, which is no file")]
    NoFile {
        /// Who gave the path.
        from: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// No CPU plugin is published for this platform.
    #[error("no CPU plugin is known for {platform}; --plugin takes the path of any PJRT plugin")]
    Platform {
        /// Operating system and processor.
        platform: String,
    },
    /// Nowhere to keep it.
    #[error("no cache directory: set SHARDSTREAM_CACHE, XDG_CACHE_HOME or HOME")]
    NoCache,
    /// What is in the cache cannot be loaded.
    #[error(
        "the plugin in the cache cannot be loaded; if it is damaged, delete {folder} to have it fetched again"
    )]
    Cached {
        /// Of the plugin.
        folder: PathBuf,
        /// Why.
        source: pjrt::Error,
    },
    /// A plugin that is not ours cannot be loaded.
    #[error(transparent)]
    Load(pjrt::Error),
    /// Compiling for a TPU needs its compiler.
    #[error(
        "no libtpu found: install it (pip install libtpu) in the environment of python3, or set \
         TPU_LIBRARY_PATH, or give --plugin"
    )]
    NoLibtpu,
    /// The CPU plugin could not be fetched.
    #[error(transparent)]
    Wheel(#[from] wheel::Error),
}

/// A plugin and how it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The shared library.
    pub path: PathBuf,
    /// For the log.
    pub how: &'static str,
}

impl Found {
    /// Loads it, which runs its code.
    pub fn load(&self) -> Result<Plugin, Error> {
        let folder =
            self.path.parent().filter(|folder| cache_dir().is_ok_and(|cache| folder.starts_with(cache)));
        Plugin::load(&self.path).map_err(|source| match folder {
            Some(folder) => Error::Cached { folder: folder.into(), source },
            None => Error::Load(source),
        })
    }

    /// Whether it drives TPUs.
    pub fn is_tpu(&self) -> bool {
        self.name().contains("tpu")
    }

    /// Whether it drives GPUs, and so joins processes through keys that they put for each other.
    pub fn is_gpu(&self) -> bool {
        ["cuda", "gpu", "rocm"].iter().any(|kind| self.name().contains(kind))
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().to_lowercase()
    }

    /// Options to open its devices with: the CPU plugin can divide the machine into any number of them.
    pub fn client_options(&self, devices: usize) -> Vec<PluginOption> {
        if self.name().contains("cpu") { vec![("cpu_device_count", devices as i64).into()] } else { vec![] }
    }
}

/// The plugin to train with: the given one; else that of a TPU, if there is one; else the CPU plugin, which
/// is downloaded the first time.
pub fn find(given: Option<&Path>) -> Result<Found, Error> {
    if let Some(found) = by_option(given)? {
        return Ok(found);
    }
    let tpu = tpu_present(Path::new("/dev"));
    if tpu && let Some(found) = libtpu()? {
        return Ok(found);
    }
    let how = if tpu { "CPU, as no libtpu was found for this machine's TPU" } else { "CPU" };
    Ok(Found { how, ..cpu()? })
}

/// The plugin to compile for a TPU with, which need not be present.
pub fn find_compiler(given: Option<&Path>) -> Result<Found, Error> {
    match by_option(given)? {
        Some(found) => Ok(found),
        None => libtpu()?.ok_or(Error::NoLibtpu),
    }
}

/// Whether the plugin to train with would drive a TPU of this machine.
pub fn is_on_tpu(given: Option<&Path>) -> Result<bool, Error> {
    if !tpu_present(Path::new("/dev")) {
        return Ok(false);
    }
    let found = by_option(given)?.map_or_else(libtpu, |found| Ok(Some(found)))?;
    Ok(found.is_some_and(|found| found.is_tpu()))
}

/// Whether this machine has a TPU, as far as `dev` shows: `accel0` … or `vfio/0` …
pub fn tpu_present(dev: &Path) -> bool {
    let numbered = |dir: &Path, prefix: &str| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|e| e.file_name()).any(|name| {
            let number = name.to_str().and_then(|n| n.strip_prefix(prefix));
            number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    // /dev/vfio/vfio alone is there without any device.
    numbered(dev, "accel") || numbered(&dev.join("vfio"), "")
}

/// The CPU plugin, from the cache or downloaded.
pub fn cpu() -> Result<Found, Error> {
    let platform = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let wheel = cpu_wheel(&platform).ok_or(Error::Platform { platform })?;
    Ok(Found { path: wheel.ensure(&cache_dir()?)?, how: "CPU" })
}

/// Where downloads and generated data are kept: `SHARDSTREAM_CACHE`, or the user's cache directory.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let env = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    cache_dir_of(env).ok_or(Error::NoCache)
}

/// The wheel of the CPU plugin, made by the OpenXLA project.
fn cpu_wheel(platform: &str) -> Option<Wheel<'static>> {
    let sha256 = match platform {
        "linux-x86_64" => "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
        "linux-aarch64" => "8f613be6e891858f40d64f9799319502fff42689661944fc18a6ffd8210b30c9",
        _ => return None,
    };
    Some(Wheel {
        package: "xla-cpu-pjrt",
        version: "0.0.1",
        sha256,
        member: "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
        download_mb: 64,
        advice: "It takes python3 with pip 20.3 or newer (on Debian: apt install python3-pip), access to \
                 a Python package index, and glibc 2.27. Without them: download the wheel elsewhere, \
                 unzip it, and give the .so in it as --plugin.",
    })
}

fn cache_dir_of(env: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    env("SHARDSTREAM_CACHE")
        .or_else(|| Some(env("XDG_CACHE_HOME")?.join("shardstream")))
        .or_else(|| Some(env("HOME")?.join(".cache").join("shardstream")))
}

fn by_option(given: Option<&Path>) -> Result<Option<Found>, Error> {
    given.map(|path| file(path.into(), "--plugin")).transpose()
}

fn libtpu() -> Result<Option<Found>, Error> {
    if let Some(path) = std::env::var_os("TPU_LIBRARY_PATH").filter(|p| !p.is_empty()) {
        return file(path.into(), "TPU_LIBRARY_PATH").map(Some);
    }
    Ok(python_libtpu().map(|path| Found { path, how: "libtpu of python3" }))
}

fn file(path: PathBuf, from: &'static str) -> Result<Found, Error> {
    // The dynamic linker would look for a name without a slash in its own folders.
    match std::path::absolute(&path) {
        Ok(whole) if whole.is_file() => Ok(Found { path: whole, how: from }),
        _ => Err(Error::NoFile { from, path }),
    }
}

/// Where python3 has the package libtpu. It is looked up, not imported: importing it would claim the TPU.
fn python_libtpu() -> Option<PathBuf> {
    const LOOK_UP: &str = "import importlib.util as u; s = u.find_spec('libtpu'); \
                           print(next(iter(s.submodule_search_locations)) if s else '')";
    let output = Command::new("python3").args(["-c", LOOK_UP]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let path = Path::new(folder.trim()).join("libtpu.so");
    (!folder.trim().is_empty() && path.is_file()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_user_says() {
        let dir = |set: &[(&str, &str)]| {
            let get = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
            cache_dir_of(get).map(|d| d.display().to_string())
        };
        assert_eq!(dir(&[]), None);
        assert_eq!(dir(&[("HOME", "/h")]).unwrap(), "/h/.cache/shardstream");
        let xdg = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x")];
        assert_eq!(dir(&xdg).unwrap(), "/x/shardstream");
        assert_eq!(dir(&[xdg[0], xdg[1], ("SHARDSTREAM_CACHE", "/s")]).unwrap(), "/s");
    }

    #[test]
    fn a_tpu_shows_as_a_numbered_device() {
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
        let e = find(Some(Path::new("no/plugin.so"))).unwrap_err();
        assert!(matches!(e, Error::NoFile { from: "--plugin", .. }), "{e}");
    }

    #[test]
    fn a_given_name_is_that_of_a_file_here() {
        // The linker would otherwise search its own folders for a name without a slash.
        let found = find(Some(Path::new("Cargo.toml"))).unwrap();
        assert!(found.path.is_absolute(), "{found:?}");
    }

    #[test]
    fn other_platforms_are_refused() {
        assert!(cpu_wheel("macos-aarch64").is_none());
        assert!(cpu_wheel("linux-aarch64").is_some());
    }

    #[test]
    fn only_the_cpu_plugin_is_told_how_many_devices() {
        let options = |path: &str| Found { path: path.into(), how: "" }.client_options(8);
        assert_eq!(options("x/xla_cpu_pjrt.so"), [("cpu_device_count", 8).into()]);
        assert!(options("cpu/libtpu.so").is_empty());
    }
}
