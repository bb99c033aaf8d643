//! A recording of what the devices do during a few steps, for XProf and TensorBoard.
//!
//! The plugin records it ([`Profiler`]). The file is `DIR/plugins/profile/step-N/rank-R.xplane.pb`, where
//! both look for it; all ranks of a job have the same `N`, the first step that is recorded.

use crate::pjrt::{Client, Profiler};
use shardstream::store::Store;
use shardstream::{SecretUrl, Topology};
use std::fmt;
use std::io::Write;
use std::str::FromStr;

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plugin cannot record.
    #[error("--profile: the plugin of the platform {platform} has no profiler: leave --profile out")]
    NoProfiler {
        /// As the plugin calls it.
        platform: String,
    },
    /// The plugin refused.
    #[error("the profiler failed")]
    Profiler(#[from] crate::pjrt::Error),
    /// The recording cannot be written.
    #[error("cannot write the profile {url}")]
    Write {
        /// Where.
        url: SecretUrl,
        /// Why.
        source: shardstream::Error,
    },
}

/// Which steps are recorded, both included, counted from 1 at the start of the process.
///
/// ```
/// use resnet::profile::Steps;
///
/// let steps: Steps = "10-14".parse().unwrap();
/// assert_eq!(steps.to_string(), "10-14");
/// assert!("14-10".parse::<Steps>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    first: u64,
    last: u64,
}

/// A text that is no [`Steps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected FIRST-LAST, two numbers of steps from 1, as in 10-14")]
pub struct ParseStepsError;

impl FromStr for Steps {
    type Err = ParseStepsError;

    fn from_str(text: &str) -> std::result::Result<Self, ParseStepsError> {
        let (first, last) = text.split_once('-').ok_or(ParseStepsError)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| ParseStepsError);
        let (first, last) = (number(first)?, number(last)?);
        if first == 0 || last < first {
            return Err(ParseStepsError);
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Records some steps of a training.
#[derive(Debug)]
pub struct Profile {
    client: Client,
    store: Store,
    dir: String,
    rank: usize,
    steps: Steps,
    /// Steps that this process has begun.
    begun: u64,
    /// The recording under way, and the number of its first step in the job.
    recording: Option<(Profiler, u64)>,
}

/// A recording that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    url: SecretUrl,
    bytes: usize,
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile: {:.1} MB -> {}", self.bytes as f64 / 1e6, self.url)
    }
}

impl Profile {
    /// Will write into `dir`, a directory or the URL of one, what the devices of `client` do in `steps`.
    ///
    /// # Errors
    ///
    /// [`Error::NoProfiler`] where the plugin cannot record: better known before the training than after.
    pub fn new(dir: &str, steps: Steps, client: &Client, topology: Topology) -> Result<Self> {
        if !client.plugin().has_profiler() {
            return Err(Error::NoProfiler { platform: client.platform()? });
        }
        let (dir, rank) = (dir.trim_end_matches('/').to_owned(), topology.rank());
        let store = Store::default();
        Ok(Self { client: client.clone(), store, dir, rank, steps, begun: 0, recording: None })
    }

    /// Whether the next step is the first one to record. The steps before it must have ended when it begins.
    pub fn starts_now(&self) -> bool {
        self.begun + 1 == self.steps.first
    }

    /// Says that step `number` of the job begins, and starts to record if it is the first one.
    pub fn begin(&mut self, number: u64) -> Result<()> {
        self.begun += 1;
        if self.begun == self.steps.first {
            self.recording = Some((self.client.plugin().start_profiler()?, number));
        }
        Ok(())
    }

    /// Whether the step that began last is the last one to record. It must have ended when
    /// [`finish`](Self::finish) is called.
    pub fn ends_now(&self) -> bool {
        self.recording.is_some() && self.begun >= self.steps.last
    }

    /// Ends the recording, if there is one, and writes it.
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        let Some((profiler, first)) = self.recording.take() else { return Ok(None) };
        let bytes = profiler.stop()?;
        let url = format!("{}/plugins/profile/step-{first}/rank-{}.xplane.pb", self.dir, self.rank);
        match self.write(&url, &bytes) {
            Ok(()) => Ok(Some(Saved { url: url.into(), bytes: bytes.len() })),
            Err(source) => Err(Error::Write { url: url.into(), source }),
        }
    }

    fn write(&self, url: &str, bytes: &[u8]) -> shardstream::Result<()> {
        let mut object = self.store.create(url)?;
        object.write_all(bytes)?;
        object.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pjrt::profiler_tests;

    #[test]
    fn steps_are_two_numbers_in_order() {
        for wrong in ["", "5", "0-3", "4-3", "a-b", "1-2-3", "-1"] {
            assert_eq!(wrong.parse::<Steps>(), Err(ParseStepsError), "{wrong}");
        }
        assert_eq!("3-3".parse(), Ok(Steps { first: 3, last: 3 }));
    }

    /// The steps, of `all` that are taken from step 100 on, after which the profile is finished; and where it
    /// is written.
    fn run(steps: &str, all: u64) -> (Vec<u64>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let client = profiler_tests::client(false);
        let url = dir.path().join("made/of it").display().to_string();
        let topology = Topology::new(2, 4).unwrap();
        let mut profile = Profile::new(&url, steps.parse().unwrap(), &client, topology).unwrap();
        let (mut started, mut written) = (vec![], vec![]);
        for step in 100..100 + all {
            if profile.starts_now() {
                started.push(step);
            }
            profile.begin(step).unwrap();
            if profile.ends_now() {
                started.push(step);
                written.extend(profile.finish().unwrap());
            }
        }
        written.extend(profile.finish().unwrap());
        for saved in &written {
            let path = saved.url.expose_secret().to_owned();
            assert_eq!(std::fs::read(path).unwrap(), [10, 3, b'a', b'b', b'c']);
        }
        let relative = |saved: Saved| saved.url.expose_secret().replace(&url, "");
        (started, written.into_iter().map(relative).collect())
    }

    #[test]
    fn the_steps_that_were_asked_for_are_recorded_once() {
        let file = "/plugins/profile/step-102/rank-2.xplane.pb".to_owned();
        assert_eq!(run("3-5", 9), (vec![102, 104], vec![file.clone()]));
        assert_eq!(run("3-3", 9), (vec![102, 102], vec![file.clone()]));
        assert_eq!(run("3-50", 9), (vec![102], vec![file]), "a training that ends before");
        assert_eq!(run("10-12", 9), (vec![], vec![]), "and one that ends before the first");
    }
}
