//! A file that another process fills.

use super::{Flight, blocking};
use crate::Result;
use crate::store::cache::directory::free;
use crate::store::cache::file::{Content, Written};
use crate::store::cache::progress::{Part, Progress, Rest};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often another process is asked how far it is.
const LOOK: Duration = Duration::from_millis(10);
/// How long another process may bring nothing, as one that was stopped does, before its readers continue
/// alone.
const PATIENCE: Duration = Duration::from_secs(60);

impl Flight {
    /// Tells how far another process is. Says whether that is all: if it has died, somebody else is to
    /// continue.
    pub(super) async fn watch(&self, file: File) -> Result<bool> {
        let (mut file, mut part) = (Some(file), None::<Part>);
        let (mut last, mut moved) = (None, Instant::now());
        loop {
            let (key, held) = (self.key.clone(), file.take());
            let known = part.clone();
            let looked = blocking(move || look(&key, held, known)).await;
            let (held, seen) = match looked {
                Ok(looked) => looked,
                Err(error) => {
                    self.cache.warn(&error);
                    return Ok(true);
                }
            };
            file = held;
            let now = match &seen {
                Seen::Bytes(_, written) => Some(*written),
                _ => None,
            };
            if now != last {
                (last, moved) = (now, Instant::now());
            }
            match seen {
                Seen::Nothing | Seen::Bytes(..) if moved.elapsed() > PATIENCE => {
                    self.end(Progress::Ended(part, last.unwrap_or_default(), Rest::default()));
                    return Ok(true);
                }
                Seen::Nothing => {}
                Seen::Bytes(seen, written) => {
                    part = Some(seen.clone());
                    self.sender.send_if_modified(|progress| {
                        let news = !matches!(progress, Progress::Growing(_, told) if *told == written);
                        *progress = Progress::Growing(seen, written);
                        news
                    });
                }
                Seen::Whole(seen) => {
                    self.tell(Progress::Whole(seen));
                    return Ok(true);
                }
                Seen::Dead => return Ok(false),
            }
            if self.while_followed(Box::pin(tokio::time::sleep(LOOK))).await.is_none() {
                return Ok(true);
            }
        }
    }
}

/// What can be seen of a file that another process fills.
enum Seen {
    Nothing,
    Bytes(Part, Written),
    Whole(Part),
    /// It is not whole, and nobody fills it.
    Dead,
}

/// Looks how far a file is, of which the head may have been read before.
fn look(key: &str, file: Option<File>, part: Option<Part>) -> io::Result<(Option<File>, Seen)> {
    let content = match (file, part) {
        (_, Some(part)) => part.content,
        (None, None) => return Ok((None, Seen::Dead)),
        (Some(file), None) => {
            let free = free(&file)?;
            match Content::of(file, key)? {
                Ok(content) => Arc::new(content),
                Err(file) => return Ok((Some(file), if free { Seen::Dead } else { Seen::Nothing })),
            }
        }
    };
    // In this order: it may be finished at any moment.
    let free = free(&content.file)?;
    let part = Part { content, ours: false };
    let seen = if part.content.is_whole()? {
        Seen::Whole(part)
    } else if free {
        Seen::Dead
    } else {
        let written = part.content.written()?;
        Seen::Bytes(part, written)
    };
    Ok((None, seen))
}
