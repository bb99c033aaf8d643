//! URLs of servers in variables of the environment.

pub(super) fn has_scheme(value: &str) -> bool {
    value.contains("://")
}

/// The URL of a server. If `value` has no scheme, the scheme is `http`.
pub(super) fn server_url(value: &str) -> String {
    if has_scheme(value) { value.to_owned() } else { format!("http://{value}") }
}
