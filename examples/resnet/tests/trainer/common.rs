//! Helpers of the tests with the CPU plugin, which is downloaded on the first run. These tests are ignored
//! unless they are asked for.
#![allow(dead_code, missing_docs, reason = "each test program takes in all of it, and uses a part")]

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

/// The plugin's file.
pub fn plugin() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| plugin::cpu().expect("a CPU plugin").path).clone()
}

fn library() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(|| Plugin::load(plugin()).expect("the plugin loads"))
}

/// Devices of the CPU plugin, which divides the machine into any number of them. All tests share them.
pub fn client(devices: i64) -> Client {
    static CLIENTS: Mutex<BTreeMap<i64, Client>> = Mutex::new(BTreeMap::new());
    let mut clients = CLIENTS.lock().unwrap();
    match clients.entry(devices) {
        Entry::Occupied(there) => there.get().clone(),
        Entry::Vacant(place) => place.insert(another_client(devices)).clone(),
    }
}

/// Devices that this test does not share.
pub fn another_client(devices: i64) -> Client {
    library().client(&[("cpu_device_count", devices).into()]).expect("it has devices")
}

/// A lock that is held while a program runs on several devices. If two such programs run at the same time,
/// the plugin confuses their collectives and ends the process.
pub type Turn = MutexGuard<'static, ()>;

/// The lock, if a model on these devices needs it.
pub fn turn(client: &Client) -> Option<Turn> {
    static TURN: Mutex<()> = Mutex::new(());
    (client.devices() > 1).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A model and its initial state.
struct Compiled {
    name: String,
    model: Model,
    fresh: Vec<Vec<f32>>,
}

static IDLE: Mutex<Vec<Compiled>> = Mutex::new(Vec::new());

/// A model in its initial state, for one test. The next test reuses it, since compiling takes most of the
/// time of these tests.
pub struct Lent {
    compiled: Option<Compiled>,
    _turn: Option<Turn>,
}

/// A model on the devices of [`client`].
pub fn model(client: &Client, name: &str) -> Lent {
    let turn = turn(client);
    let found = {
        let mut idle = IDLE.lock().unwrap();
        idle.iter().position(|compiled| compiled.name == name).map(|at| idle.swap_remove(at))
    };
    let compiled = found.unwrap_or_else(|| {
        let model = Model::new(client, &Artifact::open(name).unwrap(), 1).unwrap();
        Compiled { name: name.to_owned(), fresh: model.state(0).unwrap(), model }
    });
    Lent { compiled: Some(compiled), _turn: turn }
}

impl Deref for Lent {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.compiled.as_ref().unwrap().model
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Model {
        &mut self.compiled.as_mut().unwrap().model
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut compiled) = self.compiled.take() else { return };
        if !std::thread::panicking() {
            compiled.model.restore(&compiled.fresh).unwrap();
            IDLE.lock().unwrap().push(compiled);
        }
    }
}

/// 640 + 100 of the built-in images, in shards that are written on first use: 10 steps of 64 per epoch.
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

/// The log's lines of steps, each with its epoch, without the rates.
pub fn losses(log: &str) -> Vec<String> {
    let mut epoch = "";
    let mut lines = Vec::new();
    for line in log.lines() {
        if let Some(started) = line.strip_suffix(": training") {
            epoch = started;
        } else if let Some((what, _)) = line.split_once("  rate ") {
            lines.push(format!("{epoch}{what}"));
        }
    }
    lines
}
