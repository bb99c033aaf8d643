//! Compiles the programs of a network, or loads the executables that an earlier process compiled.

mod cache;
mod key;
mod marker;
mod program;
mod report;

pub use cache::{Cache, LIMIT};
pub use key::{Key, Target};
pub use program::Program;
pub use report::CompileReport;

use cache::{CacheEntry, StoreOutcome};
use shardstream_pjrt::{Client, Code, Executable, PjrtError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

/// The value of the option `--compile-cache`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheLocation {
    /// No cache: each start compiles the programs.
    Off,
    /// The directory of the cache.
    Dir(PathBuf),
}

impl FromStr for CacheLocation {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "off" { Self::Off } else { Self::Dir(text.into()) })
    }
}

/// Compiles programs for the devices of a client.
#[derive(Debug)]
pub struct Compiler<'a> {
    client: &'a Client,
    cache: Option<Cache>,
    report: CompileReport,
}

impl<'a> Compiler<'a> {
    /// A compiler without a cache.
    pub fn new(client: &'a Client) -> Self {
        Self { client, cache: None, report: CompileReport::default() }
    }

    /// A compiler that loads programs from `cache`, and adds the programs that it compiles.
    pub fn with_cache(client: &'a Client, cache: Option<Cache>) -> Self {
        Self { cache, ..Self::new(client) }
    }

    /// The client for whose devices the programs are compiled.
    pub fn client(&self) -> &'a Client {
        self.client
    }

    /// A report of the programs that have been compiled and loaded so far.
    pub fn report(&self) -> &CompileReport {
        &self.report
    }

    /// Loads the program from the cache, or compiles it. Fails only if the compilation fails; errors of the
    /// cache are warnings in the report.
    pub fn compile(&mut self, program: &Program<'_>) -> Result<Executable, PjrtError> {
        let start = Instant::now();
        let key = match &self.cache {
            Some(cache) => cache.key(self.client, program)?,
            None => None,
        };
        let key = key.filter(|key| !self.crashed_before(key));
        if let Some(executable) = key.as_ref().and_then(|key| self.load(program, key)) {
            self.report.loaded.add(program.name, start);
            return Ok(executable);
        }
        let Program { name, code, signature, options, span } = program;
        let executable = self.client.compile_for(*span, code, signature.clone(), options)?;
        self.report.compiled.add(name, start);
        if let Some(key) = &key {
            self.keep(name, key, &executable);
        }
        Ok(executable)
    }

    /// Whether a process died while it loaded this program. If a process died, turns the cache off for this
    /// program and for later programs, since the plugin is likely to crash on other programs as well.
    fn crashed_before(&mut self, key: &Key) -> bool {
        let Some(cache) = &self.cache else { return false };
        let Some(marker) = cache.discard_crashed(key) else { return false };
        self.report.warnings.push(format!(
            "a process died or was killed while it loaded the compiled program {}: the cache is not used, \
             and each start compiles the programs, for a day or until you remove {}",
            cache.path(key).display(),
            marker.with_extension("loading-*").display()
        ));
        self.cache = None;
        true
    }

    fn load(&mut self, program: &Program<'_>, key: &Key) -> Option<Executable> {
        let cache = self.cache.as_ref()?;
        let reason = match cache.get(key) {
            Ok(None) => return None,
            Ok(Some(CacheEntry { outputs, executable })) => {
                let _marker = cache.mark_load(key);
                match self.client.load(&executable, program.signature.clone(), program.options, program.span)
                {
                    Ok(loaded) if loaded.outputs() == outputs => return Some(loaded),
                    Ok(loaded) => format!("it has {} results instead of {outputs}", loaded.outputs()),
                    Err(error) => format!("the plugin refuses it: {error}"),
                }
            }
            Err(reason) => reason,
        };
        self.report.warnings.push(format!(
            "the compiled program in {} cannot be used, and is compiled again: {reason}",
            cache.path(key).display()
        ));
        None
    }

    /// Adds an executable to the cache. After the first failure, no more executables are added.
    fn keep(&mut self, name: &str, key: &Key, executable: &Executable) {
        let Some(cache) = &self.cache else { return };
        let start = Instant::now();
        let stored = match executable.serialize() {
            Ok(bytes) => cache.put(key, &CacheEntry { outputs: executable.outputs(), executable: bytes }),
            Err(PjrtError::Missing { .. } | PjrtError::Call { code: Code::UNIMPLEMENTED, .. }) => {
                self.report.unsupported = true;
                self.cache = None;
                return;
            }
            Err(error) => Err(error.to_string()),
        };
        match stored {
            Ok(StoreOutcome { bytes, removed, freed }) => {
                self.report.kept += bytes;
                self.report.keeping += start.elapsed();
                self.report.removed += removed;
                self.report.freed += freed;
            }
            Err(reason) => {
                let dir = cache.dir().display();
                let warning = format!("cannot keep the compiled program {name} in {dir}: {reason}");
                self.report.warnings.push(warning);
                self.cache = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_not_the_name_of_a_directory() {
        assert_eq!("off".parse(), Ok(CacheLocation::Off));
        assert_eq!("./off".parse(), Ok(CacheLocation::Dir("./off".into())));
    }
}
