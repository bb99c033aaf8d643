//! The log of verified shards: a header line with the options, then one line of JSON for each shard.

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

const FORMAT: &str = "shardstream-verify-v3";
/// The beginning of the names of all formats.
const FORMATS: &str = "shardstream-verify-";

/// The first line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct LogHeader {
    format: String,
    options: String,
}

/// The reports of earlier runs, and the file to which this run adds its own.
#[derive(Debug)]
pub(super) struct VerifyLog {
    /// The last report of a shard counts.
    known: HashMap<ShardPlace, ShardReport>,
    file: Mutex<File>,
}

impl VerifyLog {
    /// Opens or creates the log of a verification with these options.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the file is of a run with other options, or not a log.
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
                // A line that a killed run did not write completely is ignored, and its shard verified again.
                let reports = lines.filter_map(|line| serde_json::from_str::<ShardReport>(line).ok());
                let place = |report: &ShardReport| ShardPlace { url: report.url.clone(), number: report.number };
                known.extend(reports.map(|report| (place(&report), report)));
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
            Some(Ok(header)) if header.format.starts_with(FORMATS) => {
                let message = format!(
                    "{} is of another version of this program: delete it, or give another file",
                    path.display()
                );
                return Err(Failure::Usage(message));
            }
            Some(_) => {
                let message = format!("{} exists, and is not a file of --resume", path.display());
                return Err(Failure::Usage(message));
            }
        }
        Ok(VerifyLog { known, file: Mutex::new(file) })
    }

    /// The report of a shard, if it still has this size and version. A shard without a version has none.
    pub(super) fn get(&self, place: &ShardPlace, bytes: u64, version: Option<&str>) -> Option<ShardReport> {
        let known = self.known.get(place)?;
        let is_same = known.bytes == bytes && version.is_some() && known.version.as_deref() == version;
        is_same.then(|| ShardReport { resumed: true, ..known.clone() })
    }

    /// Adds the report of a shard.
    pub(super) fn add(&self, report: &ShardReport) -> std::io::Result<()> {
        write(&mut self.file.lock().unwrap_or_else(PoisonError::into_inner), report)
    }
}

/// A shard in the list: its URL without secrets, and its number among the shards of the same URL, since URLs may
/// differ in their queries only.
///
/// The log has no hash of the whole URL: a password or a signature could be guessed by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ShardPlace {
    pub(super) url: String,
    pub(super) number: u64,
}

/// The places of all shards, in the order of the list.
pub(super) fn places<'a>(shards: impl IntoIterator<Item = &'a SecretUrl>) -> Vec<ShardPlace> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let place = |shard: &SecretUrl| {
        let url = shard.to_string();
        let count = counts.entry(url.clone()).or_default();
        *count += 1;
        ShardPlace { url, number: *count - 1 }
    };
    shards.into_iter().map(place).collect()
}

/// A hash of the entries of an index, which is the same in every run and version of the program.
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

/// Writes a line with one call, so that only the last line of a killed run can be incomplete.
fn write(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    file.write_all(&line)
}
