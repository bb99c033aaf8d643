//! The token of the Hub, from the environment or from the file of `hf auth login`.

use crate::{ErrorKind, Result};
use std::env;
use std::path::PathBuf;

/// The environment variables that may have a token.
const VARIABLES: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// Where a token was found, or where it was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenOrigin {
    Variable(&'static str),
    File(PathBuf),
    /// The headers that the caller gave to the store.
    Caller,
    /// There is no token. If a file was looked for, this is its path.
    None(Option<PathBuf>),
}

/// Finds the token: in a variable, or else in a file.
///
/// # Errors
///
/// [`ErrorKind::Denied`] for a file that cannot be read.
pub(super) fn find() -> Result<(Option<String>, TokenOrigin)> {
    let in_variable = VARIABLES.into_iter().find_map(|name| Some((name, variable(name)?)));
    if let Some((name, token)) = in_variable {
        return Ok((Some(token), TokenOrigin::Variable(name)));
    }
    let Some(path) = file() else { return Ok((None, TokenOrigin::None(None))) };
    match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim() {
            "" => Ok((None, TokenOrigin::None(Some(path)))),
            token => Ok((Some(token.to_owned()), TokenOrigin::File(path))),
        },
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            Ok((None, TokenOrigin::None(Some(path))))
        }
        Err(error) => {
            let why = format!("the token file {} cannot be read: {error}", path.display());
            Err(ErrorKind::Denied(why.into()).into())
        }
    }
}

/// The file of the token.
fn file() -> Option<PathBuf> {
    if let Some(path) = variable("HF_TOKEN_PATH") {
        return Some(below_home(&path));
    }
    let home = match variable("HF_HOME") {
        Some(home) => below_home(&home),
        None => match variable("XDG_CACHE_HOME") {
            Some(caches) => PathBuf::from(caches).join("huggingface"),
            None => user_home()?.join(".cache").join("huggingface"),
        },
    };
    Some(home.join("token"))
}

/// The path `path`, with the user's home directory in place of a leading `~/`.
fn below_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), user_home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

fn user_home() -> Option<PathBuf> {
    variable(if cfg!(windows) { "USERPROFILE" } else { "HOME" }).map(PathBuf::from)
}

/// An environment variable that is not blank.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
