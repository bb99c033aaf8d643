//! URLs of servers, as variables of the environment give them.

pub(super) fn has_scheme(value: &str) -> bool {
    value.contains("://")
}

/// The URL of a server that may be named without a scheme: then it is `http`.
pub(super) fn server_url(value: &str) -> String {
    if has_scheme(value) { value.to_owned() } else { format!("http://{value}") }
}
