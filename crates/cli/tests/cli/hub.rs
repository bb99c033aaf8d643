//! Datasets of an emulated Hugging Face Hub. The program reads the Hub's URL and the token from the same
//! environment variables as other tools.

use crate::program::{Ran, demo, program};
use crate::support::Every;
use crate::support::hub::Hub;
use std::fs;
use std::path::Path;

const TOKEN: &str = "hf_s3cret";

/// The environment variables with the URL of the Hub and its token.
const VARIABLES: [&str; 6] =
    ["HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME"];

/// Runs the program. Of [`VARIABLES`], only the given variables are set. The output must not contain the
/// token.
fn run(hub: &Hub, directory: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let mut command = program(directory);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", hub.endpoint()).env("HOME", "/nowhere").envs(variables.iter().copied());
    let ran = Ran::from(command.args(arguments).output().unwrap());
    assert!(!ran.out.contains("s3cret") && !ran.err.contains("s3cret"), "{ran:?}");
    ran
}

/// Starts a Hub whose dataset has the shards of [`demo`] in the folder `train`.
fn hub_with_demo(directory: &Path) -> Hub {
    let hub = Hub::start();
    let names = (0..3).map(|number| format!("train-{number:06}.tar"));
    let files: Vec<_> = names
        .map(|name| (format!("train/{name}"), fs::read(directory.join("data").join(name)).unwrap()))
        .collect();
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, content)| (name.as_str(), &content[..])).collect();
    hub.commit("main", &files);
    hub.commit("v1", &files[..2]);
    hub.state().page = 2;
    hub
}

#[test]
fn commands_read_from_a_private_dataset() {
    let dir = demo();
    let hub = hub_with_demo(dir.path());
    hub.state().token = Some(TOKEN.into());
    let succeed = |arguments: &[&str]| {
        let ran = run(&hub, dir.path(), &[("HF_TOKEN", TOKEN)], arguments);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{arguments:?}: {ran:?}");
        ran.out
    };
    let all = "hf://datasets/o/n/train/*.tar";
    let listed = succeed(&["ls", "-l", all]);
    assert!(listed.contains("hf://datasets/o/n/train/train-000002.tar\n"), "{listed}");
    assert!(listed.ends_with("3 shards, 61.4 kB (61,440 bytes)\n"), "{listed}");
    assert!(
        succeed(&["ls", "hf://datasets/o/n@v1/train/"])
            .ends_with("train-000000.tar\nhf://datasets/o/n@v1/train/train-000001.tar\n")
    );
    succeed(&["index", "build", all, "--to", "i.json", "--checksums"]);
    let verified = succeed(&["verify", all, "--index", "i.json", "--resume", "log"]);
    assert!(verified.ends_with("3 shards of 12 samples, 61.4 kB: no damage found\n"), "{verified}");
    let again = succeed(&["verify", all, "--index", "i.json", "--resume", "log"]);
    assert!(again.contains(", 3 of them verified before: no damage found"), "{again}");
    succeed(&["cp", all, "copies/"]);
    for name in ["train-000000.tar", "train-000002.tar"] {
        let copied = fs::read(dir.path().join("copies").join(name)).unwrap();
        assert!(copied == fs::read(dir.path().join("data").join(name)).unwrap(), "{name}");
    }
    for file in ["i.json", "log"] {
        assert!(!fs::read_to_string(dir.path().join(file)).unwrap().contains("s3cret"), "{file}");
    }
    let [own, linked] = hub.requests();
    assert!(own.iter().every(|request| request.header("authorization") == Some("Bearer hf_s3cret")));
    assert!(linked.iter().every(|request| request.header("authorization").is_none()));
    // Nothing is written to the Hub.
    let ran = run(
        &hub,
        dir.path(),
        &[("HF_TOKEN", TOKEN)],
        &["cp", "data/train-000000.tar", "hf://datasets/o/n/a.tar"],
    );
    assert!(ran.code != Some(0) && ran.err.contains("cannot write to hf:// URLs"), "{ran:?}");
}

#[test]
fn the_token_is_found_where_other_tools_leave_it() {
    let dir = demo();
    let hub = hub_with_demo(dir.path());
    hub.state().token = Some(TOKEN.into());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["own", "home/token", "caches/huggingface/token", "user/.cache/huggingface/token"] {
        let file = dir.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{TOKEN}\r\n")).unwrap();
    }
    let url = "hf://datasets/o/n/train/train-000000.tar";
    let verify = |variables: &[(&str, &str)]| run(&hub, dir.path(), variables, &["ls", "-l", url]);
    for variables in [
        [("HF_TOKEN", TOKEN), ("HF_TOKEN_PATH", "/nowhere")],
        [("HUGGING_FACE_HUB_TOKEN", TOKEN), ("HF_TOKEN", "")],
        [("HF_TOKEN_PATH", &path("own")), ("HF_HOME", "/nowhere")],
        [("HF_HOME", &path("home")), ("HF_TOKEN", " ")],
        [("XDG_CACHE_HOME", &path("caches")), ("HF_TOKEN", "")],
        [("HOME", &path("user")), ("HF_TOKEN", "")],
        [("HF_HOME", "~/.cache/huggingface"), ("HOME", &path("user"))],
    ] {
        let ran = verify(&variables);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{variables:?}: {ran:?}");
    }
    for (variables, whys) in [
        (
            &[][..],
            &["private or gated, or there is none of this name", "no token was found", "hf auth login"][..],
        ),
        (&[("HF_TOKEN", "hf_s3cret2")], &["not read with this token", "the token of HF_TOKEN was sent"]),
        (&[("HF_TOKEN", "hf_s3cret é")], &["a bearer token is empty or has characters"]),
        (&[("HF_HOME", &path("data"))], &["no token was found", "data/token"]),
        (&[("HF_TOKEN_PATH", &path("data"))], &["the token file", "cannot be read"]),
    ] {
        let ran = verify(variables);
        assert!(ran.code != Some(0), "{ran:?}");
        for why in whys {
            assert!(ran.err.contains(why) || ran.out.contains(why), "{why:?} is not in {ran:?}");
        }
    }
    for bad in ["hub", "https://me:s3cret@hub", "ftp://hub"] {
        let ran = verify(&[("HF_ENDPOINT", bad)]);
        assert!(ran.err.contains("HF_ENDPOINT"), "{ran:?}");
    }
    let ran = verify(&[("HF_ENDPOINT", "http://hub.example"), ("HF_TOKEN", TOKEN)]);
    assert!(ran.err.contains("HF_ENDPOINT") && ran.err.contains("over https only"), "{ran:?}");
}

#[test]
fn the_log_has_the_commit_and_no_token() {
    let dir = demo();
    let hub = hub_with_demo(dir.path());
    hub.state().token = Some(TOKEN.into());
    let commit = hub.state().refs["main"].clone();
    let url = "hf://datasets/o/n/train/train-{000000..000002}.tar";
    let ran = run(&hub, dir.path(), &[("HF_TOKEN", TOKEN)], &["verify", url, "--log", "debug"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains(&commit), "{}", ran.err);
    assert!(!ran.err.contains("s1gned"), "{}", ran.err);
}
