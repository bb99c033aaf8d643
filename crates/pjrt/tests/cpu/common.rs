//! The CPU plugin, which is downloaded on the first run. Without it the tests say SKIPPED; with
//! `SHARDSTREAM_REQUIRE_PLUGIN=1` they fail.

use shardstream_pjrt::fetch::{FetchError, cpu_plugin};
use shardstream_pjrt::{Client, Plugin};
use std::io::Write;
use std::sync::OnceLock;

/// The plugin; prints a message and returns `None` if it cannot be downloaded.
pub(crate) fn plugin() -> Option<&'static Plugin> {
    static FOUND: OnceLock<Result<Plugin, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| match cpu_plugin(&|line| eprintln!("{line}")) {
        Ok(path) => Ok(Plugin::load(path).expect("the plugin loads")),
        // A wrong hash is a failure in any case.
        Err(error @ FetchError::Hash { .. }) => panic!("{error}"),
        Err(error) => Err(error.to_string()),
    });
    match found {
        Ok(plugin) => Some(plugin),
        Err(reason) => {
            let required = std::env::var("SHARDSTREAM_REQUIRE_PLUGIN").is_ok_and(|value| value == "1");
            assert!(!required, "no CPU plugin: {reason}");
            // Not eprintln!, which the test harness swallows.
            let _ = writeln!(std::io::stderr(), "SKIPPED: no CPU plugin: {reason}");
            None
        }
    }
}

/// This many devices of the CPU plugin, for one test.
pub(crate) fn client(devices: i64) -> Option<Client> {
    Some(plugin()?.client(&[("cpu_device_count", devices).into()]).expect("it has devices"))
}
