//! Loads the CPU plugin. The first run downloads it, so these tests are ignored by default.

use shardstream_pjrt::fetch::cpu_plugin;
use shardstream_pjrt::{Client, Plugin};
use std::sync::OnceLock;

pub(crate) fn plugin() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let path = cpu_plugin(&|line| eprintln!("{line}")).expect("a CPU plugin");
        Plugin::load(path).expect("the plugin loads")
    })
}

/// A client with this number of devices, for one test.
pub(crate) fn client(devices: i64) -> Client {
    plugin().client(&[("cpu_device_count", devices).into()]).expect("the plugin opens its devices")
}
