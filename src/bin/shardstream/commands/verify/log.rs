//! Which shards were verified already: one line of JSON for each, behind one that says how they were.

use super::report::ShardReport;
use crate::failure::Failure;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use shardstream::{Index, SecretUrl};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const FORMAT: &str = "shardstream-verify-v2";

#[derive(Debug, Serialize, Deserialize)]
struct LogHeader {
    format: String,
    options: String,
}

/// The reports of an earlier run, and the file that those of this one are added to.
#[derive(Debug)]
pub(super) struct VerifyLog {
    /// By [`place_of`]; the last one of a shard counts.
    known: HashMap<String, ShardReport>,
    file: Mutex<File>,
}

impl VerifyLog {
    /// Opens or begins a log of shards that are verified with these options.
    pub(super) fn open(path: &Path, options: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let mut known = HashMap::new();
        match lines.next().map(serde_json::from_str::<LogHeader>) {
            None => {
                let header = LogHeader { format: FORMAT.into(), options: options.into() };
                write(&mut file, &header).map_err(failed)?;
            }
            Some(Ok(header)) if header.format == FORMAT && header.options == options => {
                // What a run that was killed did not write whole is verified again.
                let reports = lines.filter_map(|line| serde_json::from_str::<ShardReport>(line).ok());
                known.extend(reports.map(|report| (report.place.clone(), report)));
                if !text.ends_with('\n') {
                    file.write_all(b"\n").map_err(failed)?;
                }
            }
            Some(Ok(header)) if header.format == FORMAT => {
                let message = format!(
                    "{} is of a run with other options ({}): give another file",
                    path.display(),
                    header.options
                );
                return Err(Failure::Usage(message));
            }
            Some(_) => {
                let message = format!("{} is there, and no file of --resume", path.display());
                return Err(Failure::Usage(message));
            }
        }
        Ok(VerifyLog { known, file: Mutex::new(file) })
    }

    /// What is known of a shard that has this size and version now. One without a version is always read.
    pub(super) fn get(&self, place: &str, bytes: u64, version: Option<&str>) -> Option<ShardReport> {
        let known = self.known.get(place)?;
        let is_same = known.bytes == bytes && version.is_some() && known.version.as_deref() == version;
        is_same.then(|| ShardReport { resumed: true, ..known.clone() })
    }

    /// Adds what was found in a shard.
    pub(super) fn add(&self, report: &ShardReport) -> std::io::Result<()> {
        write(&mut self.file.lock().unwrap_or_else(PoisonError::into_inner), report)
    }
}

/// A hash of the whole URL of a shard, which may have secrets: shards may differ in their query alone.
pub(super) fn place_of(url: &SecretUrl) -> String {
    hexadecimal(Md5::digest(url.expose_secret()).into())
}

/// A hash of what an index says of its shards: the same in every run and version of the program.
pub(super) fn fingerprint(index: &Index) -> Result<String, Failure> {
    let mut hash = Md5::new();
    for shard in index {
        let failed = |error| Failure::Failed(format!("cannot write JSON: {error}"));
        hash.update(serde_json::to_vec(shard).map_err(failed)?);
    }
    Ok(hexadecimal(hash.finalize().into()))
}

fn hexadecimal(hash: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(hash))
}

/// Writes a line at once, so that one of a run that is killed is whole or the last.
fn write(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    file.write_all(&line)
}
