//! Error messages and the files that the program writes contain no secrets of URLs.

use crate::program::{demo, output, run};
use crate::support::server::{Reply, Server};
use std::fs;

/// URLs whose secrets begin with the same text.
const URLS: [&str; 5] = [
    "https://me:s3cret@host/a.tar",
    "https://s3cret@host/a.tar?sig=s3cret#s3cret",
    "https:/me:s3cret@host/a.tar",
    "s3://AKIA:s3cret@bucket/a.tar",
    "pipe:curl -u me:s3cret https://host/a.tar",
];

/// Command lines with a mistake, for which clap's message would repeat the arguments.
fn wrong_command_lines(url: &str) -> Vec<Vec<String>> {
    let of = |arguments: &[&str]| arguments.iter().map(|argument| argument.replace("URL", url)).collect();
    vec![
        // No command.
        of(&["URL"]),
        of(&["infoo", "URL"]),
        // Unknown options, and values for options that take none.
        of(&["info", "--URL"]),
        of(&["info", "--unknown=URL"]),
        of(&["info", "-URL"]),
        of(&["info", "URL", "--fast=URL"]),
        of(&["info", "URL", "--quiet=URL"]),
        // Values of the wrong type.
        of(&["info", "URL", "--retries", "URL"]),
        of(&["info", "URL", "--retries=URL"]),
        of(&["info", "URL", "--progress=URL"]),
        of(&["info", "URL", "--log=URL"]),
        of(&["info", "URL", "--cache-size=URL", "--cache", "x"]),
        of(&["verify", "URL", "--min-side=URL"]),
        of(&["verify", "URL", "--threads=URL"]),
        // Too many values, missing values, repeated options, and options without the option that they
        // require.
        of(&["extract", "URL", "URL", "--to", "URL", "--to", "URL"]),
        of(&["index", "build", "URL"]),
        of(&["info", "URL", "--cache", "URL", "--cache", "URL"]),
        of(&["info", "URL", "--cache-size", "1G"]),
        of(&["index", "URL"]),
        of(&["completions", "URL"]),
        of(&["help", "URL"]),
        of(&["verify", "--resume", "URL", "--resume", "URL", "URL"]),
        of(&["reshard", "URL", "--rename", "URL"]),
    ]
}

#[test]
fn messages_about_wrong_arguments_have_no_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = 0;
    for url in URLS {
        for arguments in wrong_command_lines(url) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = run(dir.path(), &arguments);
            assert!(!format!("{ran:?}").contains("s3cret"), "{arguments:?}: {ran:?}");
            wrong += usize::from(ran.code == Some(2));
        }
    }
    assert!(wrong > 90, "{wrong} mistakes are none");
    // Texts that are not secrets are shown unchanged.
    let ran = run(dir.path(), &["info", "a.tar", "--retries=many"]);
    assert!(ran.err.contains("'many'") && ran.err.contains("--retries"), "{ran:?}");
    assert!(output(dir.path(), &["--version"]).starts_with("shardstream "));
}

/// The log does not depend on passwords and signatures, so nobody can use it to check guesses of them.
#[test]
fn the_log_of_a_verification_does_not_depend_on_secrets() {
    let dir = demo();
    let shards: Vec<Vec<u8>> = (0..2)
        .map(|number| fs::read(dir.path().join(format!("data/train-{number:06}.tar"))).unwrap())
        .collect();
    let server = Server::start(move |request| match request.query().split('&').next() {
        Some("shard=1") => Reply::object(request, &shards[1], "\"1\""),
        _ => Reply::object(request, &shards[0], "\"1\""),
    });
    let host = |password: &str| server.url("/a.tar").replace("http://", &format!("http://me:{password}@"));
    let verify = |urls: &[String]| {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        output(dir.path(), &[&["verify", "--resume", "log"], &urls[..]].concat())
    };
    let urls = |password: &str, signature: &str| {
        [0, 1].map(|shard| format!("{}?shard={shard}&X-Amz-Signature={signature}", host(password)))
    };
    verify(&urls("s3cret", "s3cret"));
    let log = dir.path().join("log");
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("s3cret") && !text.contains("shard="), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // If the URLs have other credentials, the shards are still recognized in the log.
    let again = verify(&urls("hunter2", "0123"));
    assert!(again.contains(", 2 of them verified before: no damage found"), "{again}");
    // A query without names may be a secret, or it may identify a shard. So the log does not contain the
    // query, and the shard is read again.
    let bare = [format!("{}?s3cret", host("s3cret"))];
    for _ in 0..2 {
        let again = verify(&bare);
        assert!(!again.contains("verified before"), "{again}");
    }
    // The hash of a shard differs from log to log.
    let one = [server.url("/a.tar")];
    verify(&one);
    let place = |name: &str| {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        last["place"].as_str().unwrap().to_owned()
    };
    output(dir.path(), &["verify", "--resume", "other", &one[0]]);
    assert_ne!(place("log"), place("other"));
    // A log of an earlier version is refused.
    let old = r#"{"format":"shardstream-verify-v2","options":""}"#;
    fs::write(dir.path().join("old"), format!("{old}\n")).unwrap();
    let ran = run(dir.path(), &["verify", "data", "--resume", "old"]);
    assert!(ran.code == Some(2) && ran.err.contains("another version of this program"), "{ran:?}");
}
