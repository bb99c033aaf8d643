//! Secrets of URLs are not in what the program says of a mistake, nor in the files that it leaves.

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

/// Command lines with a mistake, whose arguments clap repeats.
fn mistakes(url: &str) -> Vec<Vec<String>> {
    let of = |arguments: &[&str]| arguments.iter().map(|argument| argument.replace("URL", url)).collect();
    vec![
        // No command.
        of(&["URL"]),
        of(&["infoo", "URL"]),
        // Unknown options, and options of no value.
        of(&["info", "--URL"]),
        of(&["info", "--unknown=URL"]),
        of(&["info", "-URL"]),
        of(&["info", "URL", "--fast=URL"]),
        of(&["info", "URL", "--quiet=URL"]),
        // Values of the wrong type.
        of(&["info", "URL", "--retries", "URL"]),
        of(&["info", "URL", "--retries=URL"]),
        of(&["info", "URL", "--progress=URL"]),
        of(&["info", "URL", "--transport", "URL"]),
        of(&["info", "URL", "--log=URL"]),
        of(&["info", "URL", "--cache-size=URL", "--cache", "x"]),
        of(&["verify", "URL", "--min-side=URL"]),
        of(&["verify", "URL", "--threads=URL"]),
        // Too many values, missing ones, options twice, and options without the one that they need.
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
fn mistakes_of_the_command_line_are_told_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = 0;
    for url in URLS {
        for arguments in mistakes(url) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = run(dir.path(), &arguments);
            assert!(!format!("{ran:?}").contains("s3cret"), "{arguments:?}: {ran:?}");
            wrong += usize::from(ran.code == Some(2));
        }
    }
    assert!(wrong > 90, "{wrong} mistakes are none");
    // What is no secret is shown as it is.
    let ran = run(dir.path(), &["info", "a.tar", "--retries=many"]);
    assert!(ran.err.contains("'many'") && ran.err.contains("--retries"), "{ran:?}");
    assert!(output(dir.path(), &["--version"]).starts_with("shardstream "));
}

/// The log of a verification is the same whatever the secrets are, so that none can be guessed from it.
#[test]
fn the_log_of_a_verification_does_not_depend_on_secrets() {
    let dir = demo();
    let shards: Vec<Vec<u8>> = (0..2)
        .map(|number| fs::read(dir.path().join(format!("data/train-{number:06}.tar"))).unwrap())
        .collect();
    let server = Server::start(move |request| match request.query().split('&').next() {
        Some("shard=0") => Reply::object(request, &shards[0], "\"0\""),
        Some("shard=1") => Reply::object(request, &shards[1], "\"1\""),
        _ => Reply::new(404, ""),
    });
    let urls = |password: &str, signature: &str| {
        let host = server.url("/a.tar").replace("http://", &format!("http://me:{password}@"));
        [0, 1].map(|shard| format!("{host}?shard={shard}&sig={signature}"))
    };
    let verify = |log: &str, [first, second]: &[String; 2]| {
        output(dir.path(), &["verify", first, second, "--resume", log])
    };
    let (one, other) = (urls("s3cret", "s3cret"), urls("hunter2", "0123"));
    verify("one", &one);
    verify("other", &other);
    let [first, second] = ["one", "other"].map(|log| {
        let mut lines: Vec<String> =
            fs::read_to_string(dir.path().join(log)).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    });
    assert_eq!(first, second);
    assert_eq!(first.len(), 3);
    assert!(!first.concat().contains("s3cret"), "{first:?}");
    // Two shards whose URLs differ in the query only are known again, also by other credentials.
    let again = verify("one", &other);
    assert!(again.contains(", 2 of them verified before: no damage found"), "{again}");
    // A log of an earlier version is refused.
    let old = r#"{"format":"shardstream-verify-v2","options":""}"#;
    fs::write(dir.path().join("old"), format!("{old}\n")).unwrap();
    let ran = run(dir.path(), &["verify", "data", "--resume", "old"]);
    assert!(ran.code == Some(2) && ran.err.contains("another version of this program"), "{ran:?}");
}
