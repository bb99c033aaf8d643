//! The emulated Hub, read by this crate and by Hugging Face's client `huggingface_hub`.
//!
//! The tests use the same Python interpreter as the other tests. For the tests of this file, the interpreter
//! also needs `huggingface_hub==2.4.0`.

use super::{at, url};
use crate::support::hub::Hub;
use crate::support::python::stdout_of;
use crate::support::{noise, root};
use serde_json::Value;
use shardstream::store::HttpHeaders;
use std::env;
use std::process::Command;

const TOKEN: &str = "hf_s3cret";

#[test]
#[ignore = "needs Python with huggingface_hub"]
fn files_and_listings_match_huggingface_hub() {
    let name = env::var("SHARDSTREAM_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let hub = Hub::start();
    let (large, small) = (noise(100_000), noise(500));
    let odd = "deep ü+/a b#?%2F[1].tar";
    let files = [("train/0.tar", &large[..]), ("train/1.tar", &small), (odd, &large), ("README.md", b"text")];
    let commit = hub.commit("main", &files);
    hub.commit("refs/pr/7", &files[..2]);
    hub.commit("a/b", &files[2..]);
    (hub.state().page, hub.state().token) = (2, Some(TOKEN.into()));
    let home = tempfile::tempdir().unwrap();
    for (revision, written) in
        [("main", "@main"), ("refs/pr/7", "@refs/pr/7"), ("a/b", "@a%2Fb"), (&commit, "")]
    {
        let mut command = Command::new(&name);
        command.arg(root().join("tests/scripts/hub.py")).arg(revision);
        command.env("HF_ENDPOINT", hub.endpoint()).env("HF_TOKEN", TOKEN).env("HF_HOME", home.path());
        command.env("HF_HUB_DISABLE_PROGRESS_BARS", "1").env("HF_HUB_DISABLE_TELEMETRY", "1");
        let said: Value = serde_json::from_slice(&stdout_of(command.output().unwrap())).unwrap();

        let token = HttpHeaders::new().bearer(|| async { Ok(TOKEN.to_owned()) });
        let store = at(&hub).headers(&hub.endpoint(), token).build().unwrap();
        let base = url("").replace("/n/", &format!("/n{written}/"));
        let listed = store.list(&base).unwrap();
        let theirs = said["files"].as_array().unwrap();
        assert_eq!(listed.len(), theirs.len(), "{revision}");
        for (info, file) in listed.iter().zip(theirs) {
            let path = info.url.strip_prefix(&base).unwrap();
            assert_eq!((path, Some(info.size)), (file["path"].as_str().unwrap(), file["size"].as_u64()));
            let hash = info.version.as_ref().unwrap().trim_matches('"');
            assert_eq!(hash, file["hash"].as_str().unwrap(), "of the listing: {path}");
            let stat = store.stat(&info.url).unwrap();
            assert_eq!(stat.version.unwrap().trim_matches('"'), file["etag"].as_str().unwrap(), "{path}");
            let content = store.open(&info.url).unwrap().read_all().unwrap();
            let sum = content.iter().fold(0u64, |sum, byte| (sum * 31 + u64::from(*byte)) % 1_000_000_007);
            assert_eq!(
                (content.len() as u64, sum),
                (file["length"].as_u64().unwrap(), file["sum"].as_u64().unwrap())
            );
        }
        let uri = format!("hf://datasets/o/n{written}/x/y.tar");
        assert_eq!(said["parsed"], serde_json::json!(["o/n", revision, "x/y.tar"]), "{uri}");
    }
}
