//! Compiles the programs of a network, or loads what an earlier process compiled.

mod cache;
mod key;
mod marker;

pub use cache::{Cache, LIMIT};
pub use key::{Key, Target};

use crate::pjrt::{Client, Code, CompileOptions, Error, Executable, Result, Signature, Span};
use cache::{Entry, Stored};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Where compiled programs are kept, as the command line says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: each start compiles.
    Off,
    /// In this directory.
    Dir(PathBuf),
}

impl FromStr for Place {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(if text == "off" { Self::Off } else { Self::Dir(text.into()) })
    }
}

/// A program to compile.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// For the log.
    pub name: &'static str,
    /// StableHLO.
    pub code: &'a [u8],
    /// Its parameters.
    pub signature: Signature,
    /// Over how many devices it runs.
    pub options: &'a CompileOptions,
    /// Over which devices it runs.
    pub span: Span,
}

/// Compiles programs for the devices of a client.
#[derive(Debug)]
pub struct Compiler<'a> {
    client: &'a Client,
    cache: Option<Cache>,
    report: Report,
}

impl<'a> Compiler<'a> {
    /// Without a cache, which compiles each program.
    pub fn new(client: &'a Client) -> Self {
        Self { client, cache: None, report: Report::default() }
    }

    /// Loads from this cache what is in it, and puts into it what is not.
    pub fn with_cache(client: &'a Client, cache: Option<Cache>) -> Self {
        Self { cache, ..Self::new(client) }
    }

    /// The devices that it compiles for.
    pub fn client(&self) -> &'a Client {
        self.client
    }

    /// What was done so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The program, from the cache or compiled. Only what the plugin says of the compilation is an error;
    /// what is wrong with the cache is a warning of the report.
    pub fn compile(&mut self, program: &Program<'_>) -> Result<Executable> {
        let begun = Instant::now();
        let key = match &self.cache {
            Some(cache) => cache.key(self.client, program)?,
            None => None,
        };
        let key = key.filter(|key| !self.crashed_before(key));
        if let Some(executable) = key.as_ref().and_then(|key| self.load(program, key)) {
            self.report.loaded.add(program.name, begun);
            return Ok(executable);
        }
        let Program { name, code, signature, options, span } = program;
        let executable = self.client.compile_for(*span, code, signature.clone(), options)?;
        self.report.compiled.add(name, begun);
        if let Some(key) = &key {
            self.keep(name, key, &executable);
        }
        Ok(executable)
    }

    /// Whether a process died while it loaded this program. Then it is neither loaded nor kept, so that a
    /// plugin that always crashes does so once.
    fn crashed_before(&mut self, key: &Key) -> bool {
        let Some(cache) = &self.cache else { return false };
        let Some(marker) = cache.discard_crashed(key) else { return false };
        self.report.warnings.push(format!(
            "a process died while it loaded the compiled program {}: that file is removed, and the program is \
             compiled at each start for a day, or until you remove {}",
            cache.path(key).display(),
            marker.display()
        ));
        true
    }

    fn load(&mut self, program: &Program<'_>, key: &Key) -> Option<Executable> {
        let cache = self.cache.as_ref()?;
        let reason = match cache.get(key) {
            Ok(None) => return None,
            Ok(Some(Entry { outputs, executable })) => {
                let _marker = cache.mark_load(key);
                match self.client.load(&executable, program.signature.clone(), program.options, program.span)
                {
                    Ok(loaded) if loaded.outputs() == outputs => return Some(loaded),
                    Ok(loaded) => format!("it has {} results, and had {outputs}", loaded.outputs()),
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

    /// Puts an executable into the cache. The first failure ends the attempts.
    fn keep(&mut self, name: &str, key: &Key, executable: &Executable) {
        let Some(cache) = &self.cache else { return };
        let begun = Instant::now();
        let stored = match executable.serialize() {
            Ok(bytes) => cache.put(key, &Entry { outputs: executable.outputs(), executable: bytes }),
            Err(Error::Missing { .. } | Error::Call { code: Code::UNIMPLEMENTED, .. }) => {
                self.report.unsupported = true;
                self.cache = None;
                return;
            }
            Err(error) => Err(error.to_string()),
        };
        match stored {
            Ok(Stored { bytes, removed, freed }) => {
                self.report.kept += bytes;
                self.report.keeping += begun.elapsed();
                self.report.removed += removed;
                self.report.freed += freed;
            }
            Err(reason) => {
                let dir = cache.dir().display();
                self.report
                    .warnings
                    .push(format!("cannot keep the compiled program {name} in {dir}: {reason}"));
                self.cache = None;
            }
        }
    }
}

/// What a [`Compiler`] did, as lines for the log.
#[derive(Debug, Default)]
pub struct Report {
    compiled: Timed,
    loaded: Timed,
    /// Bytes that were put into the cache, and the time that it took.
    kept: u64,
    keeping: Duration,
    /// Programs that were removed for them.
    removed: u64,
    freed: u64,
    /// Whether the plugin cannot serialize programs.
    unsupported: bool,
    warnings: Vec<String>,
}

#[derive(Debug, Default)]
struct Timed {
    names: Vec<&'static str>,
    time: Duration,
}

impl Timed {
    fn add(&mut self, name: &'static str, begun: Instant) {
        self.names.push(name);
        self.time += begun.elapsed();
    }

    /// "init, step compiled in 1.2 s"
    fn told(&self, how: &str) -> Option<String> {
        let names = self.names.join(", ");
        (!self.names.is_empty()).then(|| format!("{names} {how} in {:.1} s", self.time.as_secs_f64()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let parts = [self.compiled.told("compiled"), self.loaded.told("loaded from the cache")];
        write!(f, "programs: {}", parts.into_iter().flatten().collect::<Vec<_>>().join("; "))?;
        let mb = |bytes: u64| bytes as f64 / 1e6;
        if self.unsupported {
            f.write_str("; the plugin cannot serialize them for the cache")?;
        }
        if self.kept > 0 {
            write!(f, "; {:.1} MB put into the cache in {:.1} s", mb(self.kept), self.keeping.as_secs_f64())?;
        }
        if self.removed > 0 {
            write!(
                f,
                "; {} older ones of {:.1} MB removed from it, whose limit is {:.1} GB",
                self.removed,
                mb(self.freed),
                mb(LIMIT) / 1e3
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_no_directory() {
        assert_eq!("off".parse(), Ok(Place::Off));
        assert_eq!("./off".parse(), Ok(Place::Dir("./off".into())));
    }

    #[test]
    fn the_log_says_what_was_compiled_and_what_was_loaded() {
        let timed =
            |names: &[&'static str], ms| Timed { names: names.to_vec(), time: Duration::from_millis(ms) };
        let mut report = Report { compiled: timed(&["init", "step"], 12_340), ..Report::default() };
        assert_eq!(report.to_string(), "programs: init, step compiled in 12.3 s");
        report.loaded = timed(&["eval"], 60);
        report.kept = 2_500_000;
        report.warnings.push("the disk is full".into());
        assert_eq!(
            report.to_string(),
            "warning: the disk is full\nprograms: init, step compiled in 12.3 s; eval loaded from the cache \
             in 0.1 s; 2.5 MB put into the cache in 0.0 s"
        );
    }
}
