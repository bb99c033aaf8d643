//! Records a profile of the devices during a few steps, for XProf and TensorBoard.
//!
//! The plugin makes the recording ([`shardstream_pjrt::Profiler`]). The file is
//! `DIR/plugins/profile/step-N/rank-R.xplane.pb`, where XProf and TensorBoard expect it. `N` is the first
//! recorded step, the same on all ranks of a job.

use shardstream::store::Store;
use shardstream::{SecretUrl, Topology};
use shardstream_pjrt::{Client, PjrtError};
use std::fmt;
use std::io::Write;
use std::str::FromStr;

/// An error of recording a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The plugin cannot record.
    #[error("--profile: the plugin of the platform {platform} has no profiler: leave --profile out")]
    NoProfiler {
        /// The plugin's name of the platform.
        platform: String,
    },
    /// The plugin's profiler failed.
    #[error("the profiler failed")]
    Profiler(#[from] PjrtError),
    /// The recording cannot be written.
    #[error("cannot write the profile {url}")]
    Write {
        /// The file or object.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
}

/// The first and last recorded step, counted from 1 at the start of the process.
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

/// The error for a text that is not a [`Steps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected FIRST-LAST, two numbers of steps from 1, as in 10-14")]
pub struct ParseStepsError;

impl FromStr for Steps {
    type Err = ParseStepsError;

    fn from_str(text: &str) -> Result<Self, ParseStepsError> {
        let (first, last) = text.split_once('-').ok_or(ParseStepsError)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| ParseStepsError);
        let steps = Self { first: number(first)?, last: number(last)? };
        if steps.first == 0 || steps.last < steps.first {
            return Err(ParseStepsError);
        }
        Ok(steps)
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Stops a recording, and returns it.
type StopRecording = Box<dyn FnOnce() -> Result<Vec<u8>, PjrtError>>;

/// Records a few steps of a training.
pub struct Profile {
    start: Box<dyn Fn() -> Result<StopRecording, PjrtError>>,
    store: Store,
    dir: String,
    rank: usize,
    steps: Steps,
    /// Number of steps that this process has begun.
    begun: u64,
    /// The running recording, and the number of its first step in the job.
    recording: Option<(StopRecording, u64)>,
}

/// A recording that was written. Its `Display` is the line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedProfile {
    url: SecretUrl,
    bytes: usize,
}

impl fmt::Display for SavedProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile: {:.1} MB -> {}", self.bytes as f64 / 1e6, self.url)
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("steps", &self.steps)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

impl Profile {
    /// Prepares a recording of the devices of `client` during `steps`. The recording is written to `dir`, a
    /// directory or a URL.
    ///
    /// # Errors
    ///
    /// [`ProfileError::NoProfiler`] if the plugin has no profiler. The error is returned here, before the
    /// training starts.
    pub fn new(dir: &str, steps: Steps, client: &Client, topology: Topology) -> Result<Self, ProfileError> {
        if !client.plugin().has_profiler() {
            return Err(ProfileError::NoProfiler { platform: client.platform()? });
        }
        let plugin = client.plugin();
        let start = move || -> Result<StopRecording, PjrtError> {
            let profiler = plugin.start_profiler()?;
            Ok(Box::new(|| profiler.stop()))
        };
        Ok(Self::with_profiler(dir, steps, Box::new(start), topology))
    }

    /// Like [`new`](Self::new), with a function that starts the profiler.
    fn with_profiler(
        dir: &str,
        steps: Steps,
        start: Box<dyn Fn() -> Result<StopRecording, PjrtError>>,
        topology: Topology,
    ) -> Self {
        Self {
            start,
            store: Store::default(),
            dir: dir.trim_end_matches('/').to_owned(),
            rank: topology.rank(),
            steps,
            begun: 0,
            recording: None,
        }
    }

    /// Whether the next step is the first step to record. The caller must wait until all earlier steps have
    /// ended before it calls [`begin`](Self::begin).
    pub fn starts_now(&self) -> bool {
        self.begun + 1 == self.steps.first
    }

    /// Must be called before each step, with the step's `number` in the job. Starts the recording before the
    /// first step to record.
    pub fn begin(&mut self, number: u64) -> Result<(), ProfileError> {
        self.begun += 1;
        if self.begun == self.steps.first {
            self.recording = Some(((self.start)()?, number));
        }
        Ok(())
    }

    /// Whether the newest step is the last step to record. The caller must wait until that step has ended
    /// before it calls [`finish`](Self::finish).
    pub fn ends_now(&self) -> bool {
        self.recording.is_some() && self.begun >= self.steps.last
    }

    /// Ends the recording, if there is one, and writes it.
    pub fn finish(&mut self) -> Result<Option<SavedProfile>, ProfileError> {
        let Some((stop, first)) = self.recording.take() else { return Ok(None) };
        let bytes = stop()?;
        let url = format!("{}/plugins/profile/step-{first}/rank-{}.xplane.pb", self.dir, self.rank);
        match self.write(&url, &bytes) {
            Ok(()) => Ok(Some(SavedProfile { url: url.into(), bytes: bytes.len() })),
            Err(source) => Err(ProfileError::Write { url: url.into(), source }),
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

    #[test]
    fn steps_are_two_numbers_in_order() {
        for wrong in ["", "5", "0-3", "4-3", "a-b", "1-2-3", "-1"] {
            assert_eq!(wrong.parse::<Steps>(), Err(ParseStepsError), "{wrong}");
        }
        assert_eq!("3-3".parse(), Ok(Steps { first: 3, last: 3 }));
    }

    /// Runs `count` steps, from step 100. Returns the steps at which recordings start and end, and the files
    /// that are written.
    fn run(steps: &str, count: u64) -> (Vec<u64>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let start = || -> Result<StopRecording, PjrtError> { Ok(Box::new(|| Ok(b"recording".to_vec()))) };
        let url = dir.path().join("made/of it").display().to_string();
        let topology = Topology::new(2, 4).unwrap();
        let mut profile = Profile::with_profiler(&url, steps.parse().unwrap(), Box::new(start), topology);
        let mut starts_and_ends = vec![];
        let mut written = vec![];
        for step in 100..100 + count {
            if profile.starts_now() {
                starts_and_ends.push(step);
            }
            profile.begin(step).unwrap();
            if profile.ends_now() {
                starts_and_ends.push(step);
                written.extend(profile.finish().unwrap());
            }
        }
        written.extend(profile.finish().unwrap());
        for saved in &written {
            let path = saved.url.expose_secret().to_owned();
            assert_eq!(std::fs::read(path).unwrap(), b"recording");
        }
        let relative = |saved: SavedProfile| saved.url.expose_secret().replace(&url, "");
        (starts_and_ends, written.into_iter().map(relative).collect())
    }

    #[test]
    fn the_given_steps_are_recorded_once() {
        let file = "/plugins/profile/step-102/rank-2.xplane.pb".to_owned();
        assert_eq!(run("3-5", 9), (vec![102, 104], vec![file.clone()]));
        assert_eq!(run("3-3", 9), (vec![102, 102], vec![file.clone()]));
        assert_eq!(
            run("3-50", 9),
            (vec![102], vec![file]),
            "a training that ends before the last step to record"
        );
        assert_eq!(run("10-12", 9), (vec![], vec![]), "a training that ends before the first step to record");
    }
}
