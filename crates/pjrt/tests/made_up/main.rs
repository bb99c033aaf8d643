//! Tests of the key-value store through which the processes of a job exchange addresses. The tests use a fake
//! plugin, since the CPU plugin has no jobs of several processes.

mod build;

use shardstream_pjrt::{
    Client, Code, KeyValueError, KeyValues, OptionValue, PjrtError, Plugin, PluginOption,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

fn plugin() -> Plugin {
    static PLUGIN: OnceLock<(tempfile::TempDir, Plugin)> = OnceLock::new();
    let build = || {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("made_up_gpu.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/made_up/plugin.rs");
        build::build(&source, &library);
        (dir, Plugin::load(library).unwrap())
    };
    PLUGIN.get_or_init(build).1
}

/// What the store does when the plugin reads the key that the other process sets.
#[derive(Clone, Copy)]
enum OtherProcess {
    HasStored,
    IsLate,
    Panics,
}

struct Store {
    values: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    other: OtherProcess,
}

impl KeyValues for Store {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), KeyValueError> {
        self.values.lock().unwrap().insert(key.into(), value.into());
        Ok(())
    }

    fn get(&self, key: &[u8], timeout: Duration) -> Result<Vec<u8>, KeyValueError> {
        assert!(timeout > Duration::ZERO);
        match (self.try_get(key)?, self.other) {
            (Some(value), _) => Ok(value),
            // The device numbers of the other process.
            (None, OtherProcess::HasStored) => Ok(vec![2, 3]),
            (None, OtherProcess::IsLate) => {
                Err(KeyValueError { code: Code(4), source: "rank 1 is late".into() })
            }
            (None, OtherProcess::Panics) => panic!("expected in this test"),
        }
    }

    fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KeyValueError> {
        Ok(self.values.lock().unwrap().get(key).cloned())
    }
}

/// Opens a client as the first of two processes.
fn join(other: OtherProcess) -> (Result<Client, PjrtError>, Arc<Store>) {
    let store = Arc::new(Store { values: Mutex::default(), other });
    let visible = PluginOption { name: "visible_devices".into(), value: OptionValue::Ints(vec![0]) };
    let options = [("node_id", 0).into(), ("num_nodes", 2).into(), visible];
    (plugin().client_of_job(&options, store.clone()), store)
}

// The cases share one test, because the plugin counts the undeleted values of all clients of the process.
#[test]
fn the_plugin_uses_the_store_of_the_job() {
    let (client, store) = join(OtherProcess::HasStored);
    let client = client.unwrap();
    assert_eq!((client.devices(), client.local_devices(), client.processes()), (3, 1, 2));
    assert_eq!(store.values.lock().unwrap()[&b"made_up/0"[..]], [0]);

    let error = join(OtherProcess::IsLate).0.unwrap_err();
    assert!(matches!(error, PjrtError::Join { .. }), "{error}");
    assert_eq!(error.to_string(), "PJRT_Client_Create: rank 1 is late");

    let error = join(OtherProcess::Panics).0.unwrap_err();
    assert!(error.to_string().contains("a panic in the key-value store"), "{error}");
}
