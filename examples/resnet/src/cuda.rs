//! JAX's CUDA plugin: its wheels, the Python packages that contain it, and the drivers that it needs.

use shardstream_pjrt::fetch::{Pinned, WheelSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The plugin and NVIDIA's libraries, which are downloaded if python3 has no plugin. `pip install
/// jax-cuda12-plugin[with-cuda]` chose these versions on the day on which they were pinned. The plugin finds
/// the libraries, `ptxas` and `libdevice` relative to its own path, at `../../nvidia`.
pub const WHEELS: WheelSet<'_> = WheelSet {
    name: "jax-cuda12-pjrt-0.10.2",
    wheels: &PINS,
    wanted: is_wanted,
    member: "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
    unpacked_mb: 5_120,
    advice: "The download needs python3 with pip 20.3 or newer, access to a Python package index, and glibc \
             2.27. Without them: pip install 'jax-cuda12-plugin[with-cuda]==0.10.2' elsewhere, and give its \
             xla_cuda_plugin.so as --plugin; or train on the CPU with --plugin cpu.",
};

const PINS: [Pinned<'_>; 13] = [
    pin("jax-cuda12-pjrt", "0.10.2", "806d1fd29038b6acf5a2b289dd62192abea977ee26aef60ea295b1d28a23acf8", 174),
    pin(
        "nvidia-cudnn-cu12",
        "9.28.0.42",
        "9ff58b7f36dacd0a93e89f8f2957b52466889217963701daa15e577317cfa375",
        717,
    ),
    pin(
        "nvidia-cublas-cu12",
        "12.9.3.13",
        "d7d51055f161b317c7105ddaae90e71eda059026074ffef93cf7cde2886bfe72",
        581,
    ),
    pin(
        "nvidia-cuda-cupti-cu12",
        "12.9.79",
        "096bcf334f13e1984ba36685ad4c1d6347db214de03dbb6eebb237b41d9d934f",
        11,
    ),
    pin(
        "nvidia-cuda-nvcc-cu12",
        "12.9.86",
        "5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0",
        41,
    ),
    pin(
        "nvidia-cuda-nvrtc-cu12",
        "12.9.86",
        "210cf05005a447e29214e9ce50851e83fc5f4358df8b453155d5e1918094dcb4",
        90,
    ),
    pin(
        "nvidia-cuda-runtime-cu12",
        "12.9.79",
        "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
        3,
    ),
    pin(
        "nvidia-cufft-cu12",
        "11.4.1.4",
        "c67884f2a7d276b4b80eb56a79322a95df592ae5e765cf1243693365ccab4e28",
        201,
    ),
    pin(
        "nvidia-cusolver-cu12",
        "11.7.5.82",
        "15da72d1340d29b5b3cf3fd100e3cd53421dde36002eda6ed93811af63c40d88",
        338,
    ),
    pin(
        "nvidia-cusparse-cu12",
        "12.5.10.65",
        "73060ce019ac064a057267c585bf1fd5a353734151f87472ff02b2c5c9984e78",
        366,
    ),
    pin(
        "nvidia-nccl-cu12",
        "2.32.3",
        "bb94b2348e4861d5e8aa00b36c3d12d9bdf9c6369b82cbb723de0b582280a21c",
        352,
    ),
    pin(
        "nvidia-nvjitlink-cu12",
        "12.9.86",
        "e3f1171dbdc83c5932a45f0f4c99180a70de9bd2718c1ab77d14104f6d7147f9",
        40,
    ),
    pin(
        "nvidia-nvshmem-cu12",
        "3.8.0",
        "b2e5760d6158aefe7bb74348d5128bb1b46a7dd1fd4b7b1e6fe55b4b07888f70",
        281,
    ),
];

const fn pin(
    package: &'static str,
    version: &'static str,
    sha256: &'static str,
    download_mb: u32,
) -> Pinned<'static> {
    Pinned { package, version, sha256, download_mb }
}

/// Whether a file of a wheel is needed. The needed files are shared libraries, code that the libraries load
/// at run time, and the tools that XLA runs. Headers, static libraries and Python files are not needed.
fn is_wanted(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_library = path.contains("/lib/") && (name.contains(".so") || name.ends_with(".bc"));
    path == WHEELS.member
        || path.starts_with("nvidia/cuda_nvcc/bin/")
        || path.starts_with("nvidia/cuda_nvcc/nvvm/")
        || path.starts_with("nvidia/") && is_library
}

/// The version of NVIDIA's driver, such as `525.60.13`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Driver([u32; 3]);

/// The oldest driver for CUDA 12, according to the release notes of its first version.
pub const OLDEST_DRIVER: Driver = Driver([525, 60, 13]);

/// A Python package that contains the plugin. Any version of the package will do, since the C API is the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonPackage {
    /// The name of the package.
    pub name: &'static str,
    /// The module below `jax_plugins` that contains the plugin.
    pub module: &'static str,
    /// The oldest driver for the package's version of CUDA, according to CUDA's release notes.
    pub oldest_driver: Driver,
}

/// The packages, from the newest version of CUDA to the oldest.
pub const PYTHON_PACKAGES: [PythonPackage; 2] = [
    PythonPackage { name: "jax-cuda13-pjrt", module: "xla_cuda13", oldest_driver: Driver([580, 65, 6]) },
    PythonPackage { name: "jax-cuda12-pjrt", module: "xla_cuda12", oldest_driver: OLDEST_DRIVER },
];

impl FromStr for Driver {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut version = [0; 3];
        let parts: Vec<&str> = text.split('.').collect();
        if !(2..=3).contains(&parts.len()) {
            return Err(());
        }
        for (number, part) in version.iter_mut().zip(parts) {
            *number = part.parse().map_err(|_| ())?;
        }
        Ok(Self(version))
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor:02}.{patch:02}")
    }
}

/// The version of this machine's driver; `None` if there is no driver. `proc` is `/proc`.
pub fn driver(proc: &Path) -> Option<Driver> {
    let text = std::fs::read_to_string(proc.join("driver/nvidia/version")).ok()?;
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find_map(|word| word.parse().ok())
}

/// Whether the wheels exist for this platform.
pub fn is_supported() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_open_and_closed_drivers_are_read() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(driver(proc.path()), None);
        let folder = proc.path().join("driver/nvidia");
        std::fs::create_dir_all(&folder).unwrap();
        for (line, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024",
                "470.256.02",
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  \
                 (dvs-builder@U16)",
                "570.86.15",
            ),
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183  Wed", "535.183.00"),
        ] {
            let text = format!("{line}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
            std::fs::write(folder.join("version"), text).unwrap();
            assert_eq!(driver(proc.path()).unwrap().to_string(), version);
        }
        std::fs::write(folder.join("version"), "none").unwrap();
        assert_eq!(driver(proc.path()), None);
    }

    #[test]
    fn drivers_are_ordered_by_number() {
        let driver = |text: &str| text.parse::<Driver>().unwrap();
        assert!(driver("470.256.02") < OLDEST_DRIVER && driver("525.60.11") < OLDEST_DRIVER);
        assert!(driver("525.60.13") >= OLDEST_DRIVER && driver("1000.1") > OLDEST_DRIVER);
        assert!("x86_64".parse::<Driver>().is_err() && "12".parse::<Driver>().is_err());
    }

    #[test]
    fn only_files_that_xla_needs_are_unpacked() {
        for path in [
            "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
            "nvidia/cudnn/lib/libcudnn.so.9",
            "nvidia/nvshmem/lib/libnvshmem_device.bc",
            "nvidia/cuda_nvcc/bin/ptxas",
            "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
        ] {
            assert!(is_wanted(path), "{path}");
        }
        for path in ["nvidia/cudnn/include/cudnn.h", "nvidia/nvshmem/lib/libnvshmem.a", "nvidia/__init__.py"]
        {
            assert!(!is_wanted(path), "{path}");
        }
    }
}
