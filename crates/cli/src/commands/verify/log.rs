//! The log of verified shards (`--resume`): a line of JSON with the options, and a line of JSON per shard.

use super::report::ShardReport;
use crate::failure::Failure;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use shardstream::store::{ObjectVersion, private_file};
use shardstream::{Index, SecretUrl};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const FORMAT: &str = "shardstream-verify-v3";
/// Prefix of the names of all formats of the log.
const FORMATS: &str = "shardstream-verify-";

/// The first line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct LogHeader {
    format: String,
    options: String,
    /// A random text that is hashed with each URL, so that hashes of different logs cannot be compared.
    #[serde(default)]
    salt: String,
}

/// The reports of earlier runs, and the file to which this run adds its reports.
#[derive(Debug)]
pub(super) struct VerifyLog {
    /// The last report of each shard, by its [place](VerifyLog::place).
    earlier: HashMap<String, ShardReport>,
    salt: String,
    file: Mutex<File>,
}

impl VerifyLog {
    /// Opens or creates the log of a verification with these options.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the file is the log of a run with other options, or is not a log.
    pub(super) fn open(path: &Path, options: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut file = private_file().read(true).append(true).create(true).open(path).map_err(failed)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let mut earlier = HashMap::new();
        let mut salt = random();
        match lines.next().map(serde_json::from_str::<LogHeader>) {
            None => {
                let header = LogHeader { format: FORMAT.into(), options: options.into(), salt: salt.clone() };
                write(&mut file, &header).map_err(failed)?;
            }
            Some(Ok(header)) if header.format == FORMAT && header.options == options => {
                // An incomplete line of a killed run is ignored: its shard is verified again.
                let reports = lines.filter_map(|line| serde_json::from_str::<ShardReport>(line).ok());
                earlier.extend(reports.filter_map(|report| Some((report.place.clone()?, report))));
                salt = header.salt;
                if !text.ends_with('\n') {
                    file.write_all(b"\n").map_err(failed)?;
                }
            }
            Some(Ok(header)) if header.format == FORMAT => {
                let message = format!(
                    "{} is the log of a run with other options ({}): give another file",
                    path.display(),
                    header.options
                );
                return Err(Failure::Usage(message));
            }
            Some(Ok(header)) if header.format.starts_with(FORMATS) => {
                let message = format!(
                    "{} is the log of another version of this program: delete it, or give another file",
                    path.display()
                );
                return Err(Failure::Usage(message));
            }
            Some(_) => {
                let message =
                    format!("{} exists, and is not a log of --resume: give another file", path.display());
                return Err(Failure::Usage(message));
            }
        }
        Ok(VerifyLog { earlier, salt, file: Mutex::new(file) })
    }

    /// The place of a shard: a salted hash of its URL, by which the log finds the shard's report.
    ///
    /// The hash leaves out the user information, and query parameters whose names say that they are
    /// signatures or tokens. So the log does not help to guess a password, and a URL that was signed again
    /// has the same place.
    ///
    /// `None` if the query or the fragment is not a list of named parameters. The query or the fragment could
    /// then be a secret, or could distinguish two shards. Such a shard is verified again.
    pub(super) fn place(&self, url: &SecretUrl) -> Option<String> {
        let mut hash = Md5::new_with_prefix(&self.salt);
        let (whole, shown) = (url.expose_secret(), url.to_string());
        hash.update(&shown);
        // If nothing of the URL is hidden, a `?` in it is part of a name.
        if whole != shown && let Some((_, query)) = whole.split_once(['?', '#']) {
            for pair in query.split('&') {
                let (name, _) = pair.split_once('=').filter(|_| !pair.contains(['#', '@']))?;
                if !is_secret(name) {
                    hash.update(pair);
                    hash.update("&");
                }
            }
        }
        Some(hexadecimal(hash.finalize().into()))
    }

    /// The report of a shard in the log, if the shard has not changed since the report was written.
    pub(super) fn get(&self, place: &str, object: &ObjectVersion) -> Option<ShardReport> {
        let report = self.earlier.get(place)?;
        let verified = ObjectVersion::new(Some(report.bytes), report.version.as_deref());
        if !verified.compare(object).is_same() {
            return None;
        }
        Some(ShardReport { resumed: true, ..report.clone() })
    }

    /// Adds the report of a shard.
    pub(super) fn add(&self, report: &ShardReport) -> std::io::Result<()> {
        write(&mut self.file.lock().unwrap_or_else(PoisonError::into_inner), report)
    }
}

/// Whether the name of a query parameter says that its value is secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let ends = ["sig", "signature", "token", "secret", "password", "credential", "access_key", "api_key"];
    ends.iter().any(|end| name.ends_with(end))
}

/// A random text. The standard library seeds a [`RandomState`] from the operating system.
fn random() -> String {
    let number = |seed: u64| RandomState::new().hash_one(seed);
    format!("{:016x}{:016x}", number(0), number(1))
}

/// A hash of the entries of an index. It is the same in every run and version of the program.
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
