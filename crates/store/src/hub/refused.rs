//! Explains refusals of the Hub, and what to do about them.

use super::token::TokenOrigin;
use crate::object_url::Repository;
use crate::response;
use crate::source::Refusal;
use crate::transport::Response;
use crate::{Error, ErrorKind};
use http::StatusCode;

/// The header with the reason of a refusal.
const ERROR_CODE: &str = "x-error-code";

/// Converts a response that refuses a request into an error with an explanation. The request was for `path`
/// in a repository, or for the repository itself if `path` is empty.
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
    // The text of the whole error would repeat words of `what`, so only the details are shown.
    let details = match Error::from(refusal).kind() {
        ErrorKind::NotFound(details) | ErrorKind::Denied(details) => details.to_string(),
        _ => status.to_string(),
    };
    let message = format!("{what} ({details})");
    Refusal::Other(match is_missing {
        true => ErrorKind::NotFound(message.into()).into(),
        false => ErrorKind::Denied(message.into()).into(),
    })
}

/// Returns whether the file, revision or dataset is missing (rather than refused), and a message that says
/// what to do.
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
            (false, format!("{what}; {}", token_origin(token)))
        }
        _ if status == StatusCode::NOT_FOUND => {
            let what = format!("there is no dataset {name}, or it is private");
            (true, format!("{what}: check its name, and that the token may read it; {}", token_origin(token)))
        }
        _ if status == StatusCode::UNAUTHORIZED && has_token => (
            false,
            format!(
                "the dataset {name} is not read with this token, which may have expired; {}",
                token_origin(token)
            ),
        ),
        _ if status == StatusCode::UNAUTHORIZED => (
            false,
            format!(
                "the dataset {name} is private or gated, or there is none of this name; {}",
                token_origin(token)
            ),
        ),
        _ => (false, format!("the token may not read the dataset {name}; {}", token_origin(token))),
    }
}

/// Where the token was found, or how to set one.
fn token_origin(token: &TokenOrigin) -> String {
    match token {
        TokenOrigin::Variable(name) => format!("the token of {name} was sent"),
        TokenOrigin::Caller => "the token that the store was given was sent".into(),
        TokenOrigin::File(path) => format!("the token in {} was sent", path.display()),
        TokenOrigin::None(path) => {
            let file = path.as_ref().map(|path| format!(" and no file {}", path.display()));
            format!(
                "no token was found: there is no variable HF_TOKEN{}; set it, or run `hf auth login`",
                file.unwrap_or_default()
            )
        }
    }
}
