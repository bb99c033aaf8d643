//! Parsing any text as a URL or path does not panic. The parsed parts are substrings of the text. The
//! displayed URL hides secrets.

use shardstream::SecretUrl;
use shardstream::store::ObjectUrl;

pub fn run(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let url = ObjectUrl::parse(text);
    let (directory, name) = url.split_last();
    assert!(text.starts_with(&[directory, name].concat()));
    assert!(
        text[..url.path_start()].contains(url.authority())
            && text[url.path_start()..].starts_with(url.path())
    );
    assert_eq!(url.is_local(), !matches!(url.local_path(), Ok(None)));
    assert!(url.is_path() || url.scheme().is_some());
    assert!(url.is_same_place(&url));
    let _ = url.file_name();
    let shown = url.to_string();
    assert_eq!(shown, SecretUrl::from(text).to_string());
    // The shown URL parses to the same parts, unless it hides a secret.
    let again = ObjectUrl::parse(&shown);
    assert_eq!(again.to_string(), shown);
    if shown == text {
        assert_eq!(again.path(), url.path());
        assert!(again.is_same_place(&url));
    }
}
