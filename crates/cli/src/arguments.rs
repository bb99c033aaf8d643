//! Parses the command line. Error messages show no secrets of URLs.

use clap::Parser;
use clap::error::ErrorKind;
use shardstream::SecretUrl;
use std::ffi::OsString;

/// Parses the arguments of this process. Ends the process if they are invalid, and after `--help` and
/// `--version`.
///
/// clap repeats arguments in its messages. Invalid arguments are therefore parsed a second time without the
/// secrets of their URLs, and the message of this second parse is printed.
pub(crate) fn parse<T: Parser>() -> T {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let error = match T::try_parse_from(&arguments) {
        Ok(program) => return program,
        Err(error) => error,
    };
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    let without_secrets = arguments.iter().map(|argument| without_secrets(&argument.to_string_lossy()));
    match T::try_parse_from(without_secrets) {
        Err(error) => error.exit(),
        // The second parse succeeds if only a hidden part was invalid, such as text that is not UTF-8. Print
        // the first error without its arguments.
        Ok(_) => T::command().error(error.kind(), error.kind().to_string()).exit(),
    }
}

/// Hides the secrets of the URL in an argument: `URL`, `--option=URL`, `name=URL`.
fn without_secrets(argument: &str) -> String {
    let dashes = argument.len() - argument.trim_start_matches('-').len();
    // The `=` of `--option=value`. A `=` after a `:` is part of a URL, as in `--https://host/?a=b`.
    let option = argument.find('=').filter(|at| dashes > 0 && !argument[..*at].contains(':'));
    let command = argument.to_ascii_lowercase().find("pipe:");
    let start = command.or(option.map(|at| at + 1)).unwrap_or(dashes);
    let (before, url) = argument.split_at(start);
    format!("{}{}", SecretUrl::from(before), SecretUrl::from(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_without_secrets() {
        for (argument, expected) in [
            ("https://me:s3cret@h/a.tar", "https://[redacted]@h/a.tar"),
            ("--list=https://me:s3cret@h/a?s3cret", "--list=https://[redacted]@h/a?[redacted]"),
            ("--list=https:/me:s3cret@h/a", "--list=https:/[redacted]@h/a"),
            ("--https://me:s3cret@h/a?b=s3cret#s3cret", "--https://[redacted]@h/a?[redacted]"),
            ("-https:/me:s3cret@h/a?b=s3cret", "-https:/[redacted]@h/a?[redacted]"),
            ("-ohttps://me:s3cret@h/a", "-ohttps://[redacted]@h/a"),
            ("jpg=https://me:s3cret@h/a?s3cret", "jpg=https://[redacted]@h/a?[redacted]"),
            ("--x=pipe:curl -u s3cret", "--x=pipe:[redacted]"),
            ("https://me:s3 cret's@h/a b", "https://[redacted]@h/a b"),
            ("--samples=10", "--samples=10"),
            ("a b?.tar", "a b?.tar"),
        ] {
            assert_eq!(without_secrets(argument), expected);
        }
    }
}
