//! Buckets of the same name on several servers, or in several accounts of one server, without revalidation.
//!
//! The clients take their settings from environment variables, so each read has a process of its own.

use crate::support::child::child;
use crate::support::noise;
use crate::support::server::{Reply, Server};
use shardstream::store::{Cache, Store};
use std::path::Path;
use std::sync::{Arc, Mutex};

const URL: &str = "SHARDSTREAM_TEST_URL";
const DIRECTORY: &str = "SHARDSTREAM_TEST_DIRECTORY";

/// Runs in a child process: prints a checksum of the object.
#[test]
#[ignore = "run by other tests, with environment variables that they set"]
fn read_in_child() {
    let cache = Cache::builder(std::env::var(DIRECTORY).unwrap()).revalidate(false).build().unwrap();
    let store = Store::builder().retries(0).cache(cache.clone()).build().unwrap();
    let content = store.open(&std::env::var(URL).unwrap()).unwrap().read_all().unwrap();
    cache.flush();
    println!("\nread {}", crc32c::crc32c(&content));
}

/// Reads the object at `url` in a child process with these environment variables. Returns the checksum of the
/// content.
fn checksum(directory: &Path, url: &str, variables: &[(&str, &str)]) -> u32 {
    let mut command = child(module_path!(), "read_in_child");
    for (name, _) in std::env::vars() {
        let of_cloud =
            ["AWS_", "GOOGLE_", "STORAGE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix));
        if of_cloud || name.to_ascii_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command.env(URL, url).env(DIRECTORY, directory).env("HOME", "/nowhere").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let sum = text.lines().find_map(|line| line.strip_prefix("read ")).unwrap_or_else(|| panic!("{text}"));
    sum.parse().unwrap()
}

/// A server that serves this content for every URL.
fn server(content: Vec<u8>) -> Server {
    Server::start(move |request| Reply::object(request, &content, "\"v1\""))
}

#[test]
fn buckets_of_two_endpoints_share_nothing() {
    for (url, name, skip) in [
        ("s3://bucket/a.tar", "AWS_ENDPOINT_URL", "AWS_SKIP_SIGNATURE"),
        ("s3://bucket/a.tar", "AWS_ENDPOINT", "AWS_SKIP_SIGNATURE"),
        ("gs://bucket/a.tar", "STORAGE_EMULATOR_HOST", "GOOGLE_SKIP_SIGNATURE"),
        ("gs://bucket/a.tar", "GOOGLE_BASE_URL", "GOOGLE_SKIP_SIGNATURE"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let contents = [noise(5000), noise(9000)[4000..].to_vec()];
        let servers = contents.clone().map(server);
        for round in 0..2 {
            for (server, content) in servers.iter().zip(&contents) {
                let before = server.requests().len();
                let found = checksum(directory.path(), url, &[(name, &server.url("")), (skip, "true")]);
                assert_eq!(found, crc32c::crc32c(content), "{name}");
                assert_eq!(server.requests().len() == before, round == 1, "{name}");
            }
        }
    }
}

#[test]
fn containers_of_two_accounts_share_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let content = Arc::new(Mutex::new(noise(5000)));
    let current = Arc::clone(&content);
    let server = Server::start(move |request| Reply::object(request, &current.lock().unwrap(), "\"v1\""));
    let read = |account| {
        let endpoint = server.url("");
        let variables = [("AZURE_STORAGE_ENDPOINT", endpoint.as_str()), ("AZURE_SKIP_SIGNATURE", "true")];
        let account = ("AZURE_STORAGE_ACCOUNT_NAME", account);
        checksum(directory.path(), "az://container/a.tar", &[variables[0], variables[1], account])
    };
    let first = read("one");
    *content.lock().unwrap() = noise(9000)[4000..].to_vec();
    let second = read("two");
    assert_ne!(first, second);
    assert_eq!((read("one"), read("two")), (first, second));
}
