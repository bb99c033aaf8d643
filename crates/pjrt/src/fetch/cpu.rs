//! Downloads the plugin for the CPU.

use super::error::FetchError;
use super::pinned::Pinned;
use super::wheel::Wheel;
use std::path::PathBuf;

/// Returns the path of the OpenXLA project's CPU plugin, which drives this machine's processors as devices.
/// If the plugin is not in the cache, downloads it (64 MB). `report` is called with a line of progress before
/// each slow step.
///
/// The download runs `python3 -m pip`. The wheel is unpacked only if its sha256 is the pinned one.
///
/// # Errors
///
/// [`FetchError::Platform`] if the plugin is not published for this platform; it is published for Linux on
/// x86-64 and aarch64. Other [`FetchError`]s if the download fails.
pub fn cpu_plugin(report: &dyn Fn(&str)) -> Result<PathBuf, FetchError> {
    let wheel = cpu_wheel().ok_or_else(|| FetchError::Platform {
        platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
    })?;
    wheel.ensure(&cache_dir().ok_or(FetchError::NoCache)?, report)
}

/// The wheel of the CPU plugin for this platform, if there is one.
pub fn cpu_wheel() -> Option<Wheel<'static>> {
    wheel_for(std::env::consts::OS, std::env::consts::ARCH)
}

fn wheel_for(system: &str, processor: &str) -> Option<Wheel<'static>> {
    let sha256 = match (system, processor) {
        ("linux", "x86_64") => "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
        ("linux", "aarch64") => "8f613be6e891858f40d64f9799319502fff42689661944fc18a6ffd8210b30c9",
        _ => return None,
    };
    Some(Wheel {
        pinned: Pinned { package: "xla-cpu-pjrt", version: "0.0.1", sha256, download_mb: 64 },
        member: "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
        advice: "The download needs python3 with pip 20.3 or newer (on Debian: apt install python3-pip), \
                 access to a Python package index, and glibc 2.27. Without them: download the wheel \
                 elsewhere, unzip it, and load the .so in it.",
    })
}

/// The directory for downloads: `SHARDSTREAM_CACHE`, or `shardstream` in the user's cache directory.
pub fn cache_dir() -> Option<PathBuf> {
    cache_dir_of(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn cache_dir_of(env: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    env("SHARDSTREAM_CACHE")
        .or_else(|| Some(env("XDG_CACHE_HOME")?.join("shardstream")))
        .or_else(|| Some(env("HOME")?.join(".cache").join("shardstream")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_set_the_cache_directory() {
        let dir = |variables: &[(&str, &str)]| {
            let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
            cache_dir_of(get).map(|d| d.display().to_string())
        };
        assert_eq!(dir(&[]), None);
        assert_eq!(dir(&[("HOME", "/h")]).unwrap(), "/h/.cache/shardstream");
        let xdg = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x")];
        assert_eq!(dir(&xdg).unwrap(), "/x/shardstream");
        assert_eq!(dir(&[xdg[0], xdg[1], ("SHARDSTREAM_CACHE", "/s")]).unwrap(), "/s");
    }

    #[test]
    fn other_platforms_have_no_wheel() {
        assert!(wheel_for("macos", "aarch64").is_none());
        assert!(wheel_for("linux", "aarch64").is_some());
    }
}
