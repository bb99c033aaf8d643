//! The command line, whose mistakes are shown without the secrets of URLs.

use clap::Parser;
use clap::error::ErrorKind;
use shardstream::SecretUrl;
use std::ffi::OsString;

/// Parses the arguments of this process. Ends it after a mistake, and for `--help` and `--version`.
///
/// clap repeats arguments in its messages. So a command line with a mistake is parsed once more without the
/// secrets of its URLs, and that message is printed.
pub(crate) fn parse<T: Parser>() -> T {
    let given: Vec<OsString> = std::env::args_os().collect();
    let error = match T::try_parse_from(&given) {
        Ok(program) => return program,
        Err(error) => error,
    };
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    let without_secrets = given.iter().map(|argument| shown(&argument.to_string_lossy()));
    match T::try_parse_from(without_secrets) {
        Err(error) => error.exit(),
        // The mistake is in what is not shown, such as a text that is not UTF-8.
        Ok(_) => T::command().error(error.kind(), error.kind().to_string()).exit(),
    }
}

/// An argument without the secrets of the URL in it: `URL`, `--option=URL`, `name=URL`.
fn shown(argument: &str) -> String {
    let dashes = argument.len() - argument.trim_start_matches('-').len();
    // The value of an option: `--option=value`. A URL in place of an option may have a `=` too.
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
            assert_eq!(shown(argument), expected);
        }
    }
}
