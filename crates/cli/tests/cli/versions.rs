//! Commands that compare a shard with what an index or a log says of it: over a server that gives strong and
//! weak ETags, times of whole seconds, and an ETag once and a time once.

use crate::program::{output, run, write};
use crate::support::server::Naming::{Old, Strong, Unversioned, Weak, Young};
use crate::support::server::Server;
use std::fs;
use std::sync::{Arc, Mutex};

#[test]
fn shards_are_compared_by_one_rule() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("%d.tar"), 3, 3);
    let content = fs::read(dir.path().join("0.tar")).unwrap();
    // Whether both are the same, and whether they are different.
    for (then, now, is_same, is_different) in [
        (Strong("a"), Strong("a"), true, false),
        (Strong("a"), Strong("b"), false, true),
        (Weak("a"), Weak("a"), false, false),
        (Weak("a"), Weak("b"), false, true),
        (Strong("a"), Weak("a"), false, false),
        (Old(0), Old(0), true, false),
        (Old(0), Old(1), false, true),
        (Young(0), Old(0), false, false),
        (Strong("a"), Old(0), false, false),
        (Strong("a"), Unversioned, false, false),
    ] {
        let naming = Arc::new(Mutex::new(then));
        let server = Server::start({
            let (naming, content) = (Arc::clone(&naming), content.clone());
            move |request| naming.lock().unwrap().reply(request, &content)
        });
        let (dir, url) = (tempfile::tempdir().unwrap(), server.url("/0.tar"));
        let here = |arguments: &[&str]| output(dir.path(), arguments);
        here(&["index", "build", &url, "--to", "i.json"]);
        here(&["verify", &url, "--resume", "log"]);
        *naming.lock().unwrap() = now;
        let code = |arguments: &[&str]| run(dir.path(), arguments).code;
        let found = |code| Some(if is_different { code } else { 0 });
        let pair = format!("{then:?} {now:?}");
        assert_eq!(code(&["index", "check", "i.json"]), found(3), "{pair}");
        assert_eq!(code(&["verify", &url, "--index", "i.json"]), found(3), "{pair}");
        assert_eq!(code(&["plan", &url, "--index", "i.json"]), found(1), "{pair}");
        assert_eq!(code(&["reshard", &url, "--index", "i.json", "--to", "out/%d.tar"]), found(1), "{pair}");
        let verified = here(&["verify", &url, "--resume", "log"]);
        assert_eq!(verified.contains("verified before"), is_same, "{pair}: {verified}");
        let before = server.requests().len();
        here(&["index", "build", &url, "--to", "i.json", "--update"]);
        // The first request asks for the version alone.
        assert_eq!(server.requests().len() == before + 1, is_same, "{pair}");
    }
}
