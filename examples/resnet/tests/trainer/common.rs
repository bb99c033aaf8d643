//! Helpers of the tests with the CPU plugin. The plugin is downloaded on the first run, so these tests are
//! ignored by default.
#![allow(dead_code, missing_docs, reason = "some features use only a part of this file")]

use resnet::artifact::Artifact;
use resnet::data::{DataOptions, Sets, ShardData, Split, Waiting};
use resnet::model::Model;
use resnet::schedule::{Decay, Schedule};
use resnet::{plugin, train};
use shardstream::Topology;
use shardstream_pjrt::{Client, Plugin};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use synthetic::{Counts, Shards};

pub fn plugin() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| plugin::cpu().expect("a CPU plugin").path).clone()
}

fn library() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(|| Plugin::load(plugin()).expect("the plugin loads"))
}

/// A client of the CPU plugin with this number of devices. All tests share the client.
pub fn client(devices: i64) -> Client {
    static CLIENTS: Mutex<BTreeMap<i64, Client>> = Mutex::new(BTreeMap::new());
    let mut clients = CLIENTS.lock().unwrap();
    match clients.entry(devices) {
        Entry::Occupied(entry) => entry.get().clone(),
        Entry::Vacant(entry) => entry.insert(another_client(devices)).clone(),
    }
}

/// A client with this number of devices, for one test.
pub fn another_client(devices: i64) -> Client {
    library().client(&[("cpu_device_count", devices).into()]).expect("the plugin opens its devices")
}

/// A lock that is held while a program runs on several devices. If two such programs ran at the same time,
/// the plugin would mix up their collective operations and end the process.
pub type DevicesLock = MutexGuard<'static, ()>;

/// Takes the lock. Returns `None` if the client has one device, whose programs need no lock.
pub fn lock_devices(client: &Client) -> Option<DevicesLock> {
    static LOCK: Mutex<()> = Mutex::new(());
    if client.devices() == 1 {
        return None;
    }
    Some(LOCK.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A compiled model, and its initial state.
struct Compiled {
    name: String,
    model: Model,
    initial: Vec<Vec<f32>>,
}

static IDLE: Mutex<Vec<Compiled>> = Mutex::new(Vec::new());

/// A model in its initial state. Only one test at a time uses the model. Dropping this value resets the model
/// for the next test, since compiling takes most of the time of these tests.
pub struct PooledModel {
    compiled: Option<Compiled>,
    _lock: Option<DevicesLock>,
}

/// A model on the devices of [`client`].
pub fn model(client: &Client, name: &str) -> PooledModel {
    let lock = lock_devices(client);
    let idle_model = {
        let mut idle = IDLE.lock().unwrap();
        let index = idle.iter().position(|compiled| compiled.name == name);
        index.map(|index| idle.swap_remove(index))
    };
    let compiled = idle_model.unwrap_or_else(|| {
        let model = Model::new(client, &Artifact::open(name).unwrap(), 1).unwrap();
        Compiled { name: name.to_owned(), initial: model.state(0).unwrap(), model }
    });
    PooledModel { compiled: Some(compiled), _lock: lock }
}

impl Deref for PooledModel {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.compiled.as_ref().unwrap().model
    }
}

impl DerefMut for PooledModel {
    fn deref_mut(&mut self) -> &mut Model {
        &mut self.compiled.as_mut().unwrap().model
    }
}

impl Drop for PooledModel {
    fn drop(&mut self) {
        let Some(mut compiled) = self.compiled.take() else { return };
        if !std::thread::panicking() {
            compiled.model.restore(&compiled.initial).unwrap();
            IDLE.lock().unwrap().push(compiled);
        }
    }
}

/// Shards of 640 synthetic images for training and 100 for validation, written on the first use. An epoch has
/// 10 steps of 64 images.
pub fn synthetic() -> &'static (Shards, Sets<ShardData>) {
    static DATA: OnceLock<(tempfile::TempDir, (Shards, Sets<ShardData>))> = OnceLock::new();
    let (_, data) = DATA.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let shards = synthetic::shards(dir.path(), Counts { train: 640, validation: 100 }).unwrap();
        let options = DataOptions {
            seed: 1,
            batch: 64,
            size: 32,
            classes: 10,
            workers: 2,
            keep_shards: false,
            shuffle: 256,
            streams: 0,
            prefetch: 2,
            topology: Topology::single(),
            skip_bad: None,
            indexes: Sets::default(),
            index_cache: None,
            memory: None,
            waiting: Waiting::default(),
        };
        let open = |shards: &str, split| ShardData::open(shards, split, &options).unwrap();
        let train = open(&shards.train, Split::Train);
        let validation = open(&shards.validation, Split::Validation);
        (dir, (shards, Sets { train, validation }))
    });
    data
}

pub fn options(epochs: u64, steps: u64, peak: f32) -> train::TrainOptions {
    let schedule = Schedule { peak, warmup: 2, decay: Decay::Cosine };
    train::TrainOptions {
        epochs,
        steps,
        log_steps: 2,
        schedule,
        weight_decay: 5e-4,
        label_smoothing: 0.0,
        momentum: 0.9,
        depth: 2,
        topology: Topology::single(),
    }
}

/// The lines about steps in a log, each with its epoch and without the rates.
pub fn losses(log: &str) -> Vec<String> {
    let mut epoch = "";
    let mut lines = Vec::new();
    for line in log.lines() {
        if let Some(title) = line.strip_suffix(": training") {
            epoch = title;
        } else if let Some((step, _)) = line.split_once("  rate ") {
            lines.push(format!("{epoch}{step}"));
        }
    }
    lines
}
