//! Python with `webdataset`, the reference implementation of the format.
//!
//! The interpreter is `SHARDSTREAM_TEST_PYTHON`, or `python3`. The tests that need Python are ignored by
//! default. To set up an interpreter:
//!
//! ```text
//! python3 -m venv venv && venv/bin/pip install webdataset==1.0.2 wids==0.1.11 numpy pillow msgpack
//! SHARDSTREAM_TEST_PYTHON=venv/bin/python cargo test --test suite -- --include-ignored differential
//! ```

use super::{Content, root};
use serde_json::Value as Json;
use std::path::Path;
use std::process::{Command, Output};

/// The reference release of `webdataset`.
const VERSION: &str = "1.0.2";
/// The reference release of `wids`.
const WIDS_VERSION: &str = "0.1.11";

const UTF8: [(&str, &str); 3] = [("LC_ALL", "C.UTF-8"), ("PYTHONCOERCECLOCALE", "0"), ("PYTHONUTF8", "1")];
const ASCII: [(&str, &str); 3] = [("LC_ALL", "C"), ("PYTHONCOERCECLOCALE", "0"), ("PYTHONUTF8", "0")];

/// An interpreter with the reference release of `webdataset`.
pub struct Python {
    program: String,
    locale: [(&'static str, &'static str); 3],
}

impl Python {
    /// Finds the interpreter.
    ///
    /// # Panics
    /// If the interpreter or a package is missing. The message says which.
    pub fn find() -> Self {
        let name = std::env::var("SHARDSTREAM_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
        let ask = "import webdataset, numpy, PIL, msgpack; print(webdataset.__version__)";
        let problem = match Command::new(&name).args(["-c", ask]).output() {
            Err(error) => format!("{name}: {error}"),
            Ok(output) if !output.status.success() => format!("{name} lacks some"),
            Ok(output) => match String::from_utf8_lossy(&output.stdout).trim() {
                VERSION => return Python { program: name, locale: UTF8 },
                other => format!("{name} has webdataset {other}"),
            },
        };
        panic!("needs Python with webdataset=={VERSION}, numpy, pillow and msgpack, but {problem}");
    }

    /// The same interpreter in a locale that only knows ASCII.
    pub fn in_c_locale(self) -> Self {
        Python { locale: ASCII, ..self }
    }

    /// Finds the interpreter. It must also have the reference release of `wids`.
    pub fn with_wids() -> Self {
        let new = Self::find();
        let ask = "import importlib.metadata as m, braceexpand; print(m.version('wids'))";
        let output = Command::new(&new.program).args(["-c", ask]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), WIDS_VERSION, "the release of wids");
        new
    }

    /// The samples that `wids` reads with an index. Also writes to `output` the index that `wids` makes from
    /// the shards.
    pub fn wids(&self, index: &Path, output: &Path, shards: &[&Path]) -> Content {
        shard(&self.run("index_wids.py", &[&[index, output], shards].concat()))
    }

    /// Runs a script of `tests/scripts`, and returns the JSON document that it printed.
    fn run(&self, script: &str, args: &[&Path]) -> Json {
        let script = root().join("tests/scripts").join(script);
        let output = Command::new(&self.program).arg(script).args(args).envs(self.locale).output().unwrap();
        serde_json::from_slice(&stdout_of(output)).unwrap()
    }

    /// The content that `webdataset` reads from each shard.
    pub fn read(&self, paths: &[&Path]) -> Vec<Content> {
        let shards = self.run("read.py", paths);
        shards.as_array().unwrap().iter().map(shard).collect()
    }

    /// The shards that `webdataset` finds in a YAML specification, sorted.
    pub fn specification(&self, file: &Path) -> Vec<String> {
        serde_json::from_value(self.run("specification.py", &[file])).unwrap()
    }

    /// The samples that `webdataset` decodes from a shard, as `decode.py` prints them.
    pub fn decode(&self, shard: &Path) -> Json {
        self.run("decode.py", &[shard])
    }

    /// Writes unusual shards into a folder, and returns what `webdataset` reads from each, as
    /// `differences.py` prints it.
    pub fn differences(&self, dir: &Path) -> Json {
        self.run("differences.py", &[dir])
    }

    /// Pillow's results for a file of requests in the format of `transforms.py`.
    pub fn transforms(&self, request: &Path) -> Json {
        self.run("transforms.py", &[request])
    }

    /// Writes various shards into a folder, with `webdataset` and `tarfile`.
    pub fn write(&self, dir: &Path) {
        self.run("write.py", &[dir]);
    }

    /// Writes various images and Pillow's results into a folder. Returns the cases, as `pictures.py` prints
    /// them.
    pub fn pictures(&self, dir: &Path) -> Json {
        self.run("pictures.py", &[dir])
    }

    /// Makes `webdataset` read a shard and write it again.
    pub fn rewrite(&self, from: &Path, to: &Path) {
        self.run("rewrite.py", &[from, to]);
    }
}

/// The standard output of a program that must succeed and print nothing to standard error.
pub fn stdout_of(output: Output) -> Vec<u8> {
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", output.status);
    output.stdout
}

fn shard(json: &Json) -> Content {
    let text = |json: &Json| json.as_str().unwrap().to_owned();
    let field = |pair: &Json| (text(&pair[0]), unhex(pair[1].as_str().unwrap()));
    let fields = |json: &Json| json.as_array().unwrap().iter().map(field).collect();
    json.as_array().unwrap().iter().map(|sample| (text(&sample[0]), fields(&sample[1]))).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
