//! The CPU plugin, which is downloaded on the first run. The tests are ignored unless they are asked for.

use shardstream_pjrt::fetch::cpu_plugin;
use shardstream_pjrt::{Client, Plugin};
use std::sync::OnceLock;

/// The plugin.
pub(crate) fn plugin() -> &'static Plugin {
    static FOUND: OnceLock<Plugin> = OnceLock::new();
    FOUND.get_or_init(|| {
        let path = cpu_plugin(&|line| eprintln!("{line}")).expect("a CPU plugin");
        Plugin::load(path).expect("the plugin loads")
    })
}

/// This many devices of the CPU plugin, for one test.
pub(crate) fn client(devices: i64) -> Client {
    plugin().client(&[("cpu_device_count", devices).into()]).expect("it has devices")
}
