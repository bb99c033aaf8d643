//! Follows a file that another process fills.

use super::{Flight, blocking};
use crate::Result;
use crate::cache::directory::is_unlocked;
use crate::cache::file::{CachedContent, Written};
use crate::cache::progress::{FlightFile, FlightProgress, Remainder};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two looks at the file.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum time without progress, for example of a suspended process, before the readers fetch the object
/// themselves.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Flight {
    /// Publishes the progress of another process. Returns whether the flight is over; if not, the other
    /// process has died, and the object must be claimed again.
    pub(super) async fn follow(&self, file: File) -> Result<bool> {
        let (mut headless, mut followed) = (Some(file), None::<FlightFile>);
        let (mut last, mut last_change) = (None, Instant::now());
        loop {
            let (key, file, known) = (self.key.clone(), headless.take(), followed.clone());
            let status = blocking(move || look(&key, file, known)).await;
            let (file, status) = match status {
                Ok(status) => status,
                Err(error) => {
                    self.cache.warn(&error);
                    return Ok(true);
                }
            };
            headless = file;
            let now = match &status {
                FileStatus::Growing(_, written) => Some(*written),
                _ => None,
            };
            if now != last {
                (last, last_change) = (now, Instant::now());
            }
            match status {
                FileStatus::Headless | FileStatus::Growing(..) if last_change.elapsed() > TIMEOUT => {
                    self.end(FlightProgress::Ended(followed, last.unwrap_or_default(), Remainder::default()));
                    return Ok(true);
                }
                FileStatus::Headless => {}
                FileStatus::Growing(file, written) => {
                    followed = Some(file.clone());
                    self.sender.send_if_modified(|progress| {
                        let changed = !matches!(progress, FlightProgress::Growing(_, old) if *old == written);
                        *progress = FlightProgress::Growing(file, written);
                        changed
                    });
                }
                FileStatus::Complete(file) => {
                    self.publish(FlightProgress::Complete(file));
                    return Ok(true);
                }
                FileStatus::Abandoned => return Ok(false),
            }
            if self.while_followed(Box::pin(tokio::time::sleep(POLL_INTERVAL))).await.is_none() {
                return Ok(true);
            }
        }
    }
}

/// The status of a file that another process fills.
enum FileStatus {
    /// The file has no head yet.
    Headless,
    Growing(FlightFile, Written),
    Complete(FlightFile),
    /// The file is incomplete, and no process fills it.
    Abandoned,
}

/// Looks at a file. `known` is set once its head has been read; until then, the file is given back.
fn look(key: &str, file: Option<File>, known: Option<FlightFile>) -> io::Result<(Option<File>, FileStatus)> {
    let content = match (file, known) {
        (_, Some(known)) => known.content,
        (None, None) => return Ok((None, FileStatus::Abandoned)),
        (Some(file), None) => {
            let is_unlocked = is_unlocked(&file)?;
            match CachedContent::open(file, key)? {
                Ok(content) => Arc::new(content),
                Err(file) if is_unlocked => return Ok((Some(file), FileStatus::Abandoned)),
                Err(file) => return Ok((Some(file), FileStatus::Headless)),
            }
        }
    };
    // The lock first, since the file may be completed and unlocked at any moment.
    let is_unlocked = is_unlocked(&content.file)?;
    let file = FlightFile { content, filled_here: false };
    let status = if file.content.is_complete()? {
        FileStatus::Complete(file)
    } else if is_unlocked {
        FileStatus::Abandoned
    } else {
        let written = file.content.written()?;
        FileStatus::Growing(file, written)
    };
    Ok((None, status))
}
