//! What refusals of the Hub mean, and what to do.

use super::token::TokenOrigin;
use crate::object_url::Repository;
use crate::response;
use crate::source::Refusal;
use crate::transport::Response;
use crate::{Error, ErrorKind};
use http::StatusCode;

/// Names the reason of a refusal.
const ERROR_CODE: &str = "x-error-code";

/// Reads a refusal of a request about `path` in a repository; the repository itself if it is empty.
pub(super) async fn refused(
    response: Response,
    repository: &Repository,
    path: &str,
    token: &TokenOrigin,
) -> Refusal {
    let code =
        response.headers.get(ERROR_CODE).and_then(|code| code.to_str().ok()).unwrap_or_default().to_owned();
    let status = response.status;
    let refusal = response::refused(response, "").await;
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) {
        return refusal;
    }
    let (is_missing, what) = meaning(&code, status, repository, path, token);
    // The text of its kind would repeat what was just said.
    let said = match Error::from(refusal).kind() {
        ErrorKind::NotFound(said) | ErrorKind::Denied(said) => said.to_string(),
        _ => status.to_string(),
    };
    let message = format!("{what} ({said})");
    Refusal::Other(match is_missing {
        true => ErrorKind::NotFound(message.into()).into(),
        false => ErrorKind::Denied(message.into()).into(),
    })
}

/// Whether it is that something is missing, rather than not allowed; and what to do.
fn meaning(
    code: &str,
    status: StatusCode,
    Repository { name, revision }: &Repository,
    path: &str,
    token: &TokenOrigin,
) -> (bool, String) {
    let has_token = !matches!(token, TokenOrigin::None(_));
    match code {
        "EntryNotFound" => (true, format!("the dataset {name} has no {path:?} in its revision {revision}")),
        "RevisionNotFound" => (true, format!("the dataset {name} has no revision {revision}")),
        "GatedRepo" => {
            let what = format!(
                "the dataset {name} is gated: accept its conditions on its page, as the owner of the token"
            );
            (false, format!("{what}; {}", found(token)))
        }
        _ if status == StatusCode::NOT_FOUND => {
            let what = format!("there is no dataset {name}, or it is private");
            (true, format!("{what}: check its name, and that the token may read it; {}", found(token)))
        }
        _ if status == StatusCode::UNAUTHORIZED && has_token => (
            false,
            format!("the dataset {name} is not read with this token, which may have ended; {}", found(token)),
        ),
        _ if status == StatusCode::UNAUTHORIZED => (
            false,
            format!(
                "the dataset {name} is private or gated, or there is none of this name; {}",
                found(token)
            ),
        ),
        _ => (false, format!("the token may not read the dataset {name}; {}", found(token))),
    }
}

/// Whether a token was found, and what to do if not.
fn found(token: &TokenOrigin) -> String {
    match token {
        TokenOrigin::Variable(name) => format!("the token of {name} was sent"),
        TokenOrigin::Caller => "the token that the store was given was sent".into(),
        TokenOrigin::File(path) => format!("the token in {} was sent", path.display()),
        TokenOrigin::None(path) => {
            let looked = path.as_ref().map(|path| format!(" and no file {}", path.display()));
            format!(
                "no token was found, in no variable HF_TOKEN{}: set it, or run `hf auth login`",
                looked.unwrap_or_default()
            )
        }
    }
}
