//! Secrets are hidden wherever they are in a URL.

use super::*;
use proptest::prelude::*;

#[test]
fn hides_secrets() {
    for (url, expected) in [
        ("https://host/a.tar?sig=s3cret&x=1", "https://host/a.tar?[redacted]"),
        ("https://me:s3cret@host:80/a@b.tar?sig=s3cret", "https://[redacted]@host:80/a@b.tar?[redacted]"),
        ("https://s3cret@host/a.tar", "https://[redacted]@host/a.tar"),
        // Without a path, and with an `@` in the query or several of them.
        ("https://host?sig=s3cret/", "https://host?[redacted]"),
        ("https://me:s3cret@host?sig=s3cret", "https://[redacted]@host?[redacted]"),
        ("https://me:s3cret@host", "https://[redacted]@host"),
        ("https://host?a@b=s3cret", "https://host?[redacted]"),
        ("https://me:s3cret@host?a@b/c@s3cret", "https://[redacted]@host?[redacted]"),
        ("https://me:s3@cret@host/a.tar#s3cret", "https://[redacted]@host/a.tar#[redacted]"),
        // Not as a URL should be.
        ("https://me:s3/cret@host/a.tar?s3cret", "https://[redacted]"),
        ("https://me:s3?cret@host/a.tar", "https://[redacted]"),
        ("https://me:s3cret", "https://me:[redacted]"),
        ("https://me@you:s3cret", "https://[redacted]"),
        ("HTTPS:\\\\me:s3cret@host\\a?s3cret", "HTTPS:\\\\[redacted]@host\\a?[redacted]"),
        ("https:/me:s3cret@host/a?s3cret", "https:/[redacted]@host/a?[redacted]"),
        ("http:me:s3cret@host/a?s3cret", "http:[redacted]@host/a?[redacted]"),
        ("https:////me:s3cret@host/a", "https:////[redacted]@host/a"),
        ("a.tar::pipe:curl -u s3cret", "a.tar::pipe:[redacted]"),
        ("{a.tar,pipe:curl -u s3cret}", "[redacted]"),
        (" https://me:s3cret@host/a?s3cret", " https://[redacted]@host/a?[redacted]"),
        ("https://proxy/https://me:s3cret@host/a", "https://proxy/https://[redacted]"),
        ("http://[::1]:80/a.tar?sig=s3cret", "http://[::1]:80/a.tar?[redacted]"),
        ("http://me:s3cret@[::1]/a.tar", "http://[redacted]@[::1]/a.tar"),
        // Buckets, whose names have no `?`, and other places.
        ("gs://bucket/why?.tar", "gs://bucket/why?.tar"),
        ("s3://bucket/a@b:c?d=e.tar", "s3://bucket/a@b:c?d=e.tar"),
        ("s3://AKIA:s3/cr:et@bucket/a.tar", "s3://[redacted]"),
        ("s3://AKIA:s3cret@bucket/a.tar", "s3://[redacted]@bucket/a.tar"),
        ("abfss://box@account.dfs.core.windows.net/a.tar", "abfss://box@account.dfs.core.windows.net/a.tar"),
        ("az://box/a.tar?sig=s3cret", "az://box/a.tar?[redacted]"),
        ("gcs://bucket/a.tar?sig=s3cret", "gcs://bucket/a.tar?[redacted]"),
        ("odd://me:s3cret@host/a", "odd://[redacted]@host/a"),
        ("odd://s3cret@host/a?s3cret", "odd://[redacted]@host/a?[redacted]"),
        ("pipe:curl -H 'Authorization: Bearer s3cret' https://host/a", "pipe:[redacted]"),
        // Paths.
        ("what?.tar", "what?.tar"),
        ("imagenet-{000..146}@224px.tar", "imagenet-{000..146}@224px.tar"),
        ("{train,val}@v2/000.tar", "{train,val}@v2/000.tar"),
        ("a:b@c/d?e=f.tar", "a:b@c/d?e=f.tar"),
        ("C:\\data\\a?.tar", "C:\\data\\a?.tar"),
        ("file:///data/a@b?c.tar", "file:///data/a@b?c.tar"),
        ("file:a?b@c.tar", "file:a?b@c.tar"),
        ("/data/{a,b}?@c.tar", "/data/{a,b}?@c.tar"),
        ("", ""),
        // Patterns.
        (
            "gs://b/0.tar::https://me:s3cret@h/{0..9}.tar?s3cret",
            "gs://b/0.tar::https://[redacted]@h/{0..9}.tar?[redacted]",
        ),
        ("https://h/a?s3cret::gs://b/?.tar", "https://h/a?[redacted]::gs://b/?.tar"),
        ("https://h/a?s3cret::s3cret", "https://h/a?[redacted]"),
        ("${BASE}/{0..9}.tar?sig=s3cret", "${BASE}/{0..9}.tar?[redacted]"),
        ("${SCHEME}://me:s3cret@h/a?s3cret", "${SCHEME}://[redacted]@h/a?[redacted]"),
        ("${SCHEME}://me:s3?cret@h/a", "${SCHEME}://[redacted]"),
        ("http{s,}://me:s3cret@h/a", "http{s,}://[redacted]@h/a"),
        ("{gs://b,https://me:s3cret@h}/a?s3cret", "{gs://[redacted]@h}/a?[redacted]"),
        ("https://{a/b,me:s3cret@c/d}.tar", "https://[redacted]"),
        ("https\\://me:s3cret@h/a?s3cret", "https\\://[redacted]@h/a?[redacted]"),
        ("https://me:s3cret\\@h/a", "https://[redacted]"),
    ] {
        assert_eq!(shown(url), expected, "{url}");
        assert_eq!(shown(expected), expected, "what is shown is shown as it is");
        assert_eq!(format!("{:#?}", SecretUrl::from(url)), format!("{expected:?}"));
    }
}

#[test]
fn what_is_saved_names_the_same_place() {
    for (url, expected) in [
        ("https://me:s3cret@h/a.tar?sig=x", "https://h/a.tar"),
        ("https://h/a.tar?", "https://h/a.tar"),
        ("https://h/a.tar#x", "https://h/a.tar"),
        ("https://h:80/a.tar", "https://h:80/a.tar"),
        ("gs://b/a?.tar", "gs://b/a?.tar"),
    ] {
        assert_eq!(without_secrets(url), expected);
    }
}

#[test]
fn texts_are_searched_for_urls() {
    for (text, expected) in [
        (
            "GET http://h/k?sig=s3cret failed, \"https://u:s3cret@h/\"",
            "GET http://h/k?[redacted] failed, \"https://[redacted]@h/\"",
        ),
        ("error for url (https://h/k?sig=s3cret)", "error for url (https://h/k?[redacted]"),
        ("no /k?sig=s3cret here", "no /k?[redacted] here"),
        ("access_token=s3cret and what?", "access_token=[redacted] and what?"),
        ("gs://b/k?a=b is not there\n", "gs://b/k?a=b is not there\n"),
        ("a=b, ü", "a=b, ü"),
        (
            "Some(\"X-Amz-Algorithm=AWS4&X-Amz-Credential=AKIA&X-Amz-Signature=s3cret\")",
            "Some(\"X-Amz-Algorithm=AWS4&X-Amz-Credential=[redacted]\")",
        ),
        ("Authorization: Basic bWU6czNjcmV0, please", "Authorization: Basic [redacted] please"),
        ("'Bearer s3cret-token' is a Bearer token", "'Bearer [redacted]' is a Bearer token"),
        ("Basic authentication and Basic Authentication", "Basic authentication and Basic Authentication"),
    ] {
        assert_eq!(redact_text(text), expected);
    }
    let url = "https://me:pass%2Fword@h/a?x=1&sig=abc%3Ddef%3D";
    let told = "abc=def= and abc%3Ddef%3D of pass/word are no good: 1";
    assert_eq!(
        redact_answer(told, &["gs://b", url]),
        "[redacted] and [redacted] of [redacted] are no good: 1"
    );
    let url = "https://me:c2VjcmV0cGFzcw==@h/a";
    assert_eq!(redact_answer("token c2VjcmV0cGFzcw== is not valid", &[url]), "token [redacted] is not valid");
}

#[test]
fn places_are_those_of_what_is_shown() {
    let url = SecretUrl::from("https://mé:s3cret@hé/{?s3cret");
    let shown = url.to_string();
    for at in ["hé", "{", "?"] {
        let place = |text: &str| text.find(at).unwrap();
        assert_eq!(url.shown_before(place(url.expose_secret())), shown[..place(&shown)].chars().count());
    }
    assert_eq!(url.shown_before(10), 8);
}

proptest! {
    #[test]
    fn never_panics_and_keeps_no_secret(
        text in r"(https?|gs|s3|az|odd|\$\{X\}|\{|\}|,|:|::|/|//|\\|@|\?|#|=|&|\[|\]|é|pipe:|file:| ){0,14}",
    ) {
        let url = SecretUrl::from(&*text);
        let (shown, _) = (url.to_string(), without_secrets(&text));
        prop_assert_eq!(&shown, &SecretUrl::from(&*shown).to_string());
        for at in 0..=text.len() {
            url.shown_before(at);
        }
        redact_answer(&text, &[&text]);
    }

    #[test]
    fn no_well_formed_url_shows_its_secrets(
        user in "[a-z]{0,3}",
        host in "[a-z]{1,3}(:[0-9]{1,4})?",
        path in "(/[a-z@{},]{0,5}){0,3}",
        mark in "[?#]",
    ) {
        for scheme in ["http", "https", "HTTPS", "odd"] {
            let url = format!("{scheme}://{user}:S3CRET@{host}{path}{mark}sig=S3CRET@S3CRET/S3CRET");
            let shown = SecretUrl::from(url).to_string();
            prop_assert!(!shown.contains("S3CRET"), "{}", shown);
            prop_assert!(shown.ends_with(&format!("@{host}{path}{mark}{HIDDEN}")), "{}", shown);
        }
    }
}
