//! Tests that no form of a URL or text shows its secrets.

use super::*;
use proptest::prelude::*;

#[test]
fn the_shown_url_has_no_secrets() {
    for (url, expected) in [
        ("https://host/a.tar?sig=s3cret&x=1", "https://host/a.tar?[redacted]"),
        ("https://me:s3cret@host:80/a@b.tar?sig=s3cret", "https://[redacted]@host:80/a@b.tar?[redacted]"),
        ("https://s3cret@host/a.tar", "https://[redacted]@host/a.tar"),
        // URLs without a path, and URLs with an `@` in the query or with several `@`.
        ("https://host?sig=s3cret/", "https://host?[redacted]"),
        ("https://me:s3cret@host?sig=s3cret", "https://[redacted]@host?[redacted]"),
        ("https://me:s3cret@host", "https://[redacted]@host"),
        ("https://host?a@b=s3cret", "https://host?[redacted]"),
        ("https://me:s3cret@host?a@b/c@s3cret", "https://[redacted]@host?[redacted]"),
        ("https://me:s3@cret@host/a.tar#s3cret", "https://[redacted]@host/a.tar#[redacted]"),
        // Malformed URLs.
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
        // Buckets, where a `?` in a key is an ordinary character, and other stores.
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
        assert_eq!(shown(expected), expected, "redacting twice changes nothing");
        assert_eq!(format!("{:#?}", SecretUrl::from(url)), format!("{expected:?}"));
    }
}

#[test]
fn a_url_without_secrets_names_the_same_object() {
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
fn secrets_in_texts_are_redacted() {
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
    let redact = |text: &str, urls: &[&str]| {
        let mut sent = SentSecrets::default();
        urls.iter().for_each(|url| sent.add_url(*url));
        sent.redact(text)
    };
    let url = "https://me:pass%2Fword@h/a?x=1&sig=abc%3Ddef%3D";
    let message = "abc=def= and abc%3Ddef%3D of pass/word are no good: 1";
    assert_eq!(redact(message, &["gs://b", url]), "[redacted] and [redacted] of [redacted] are no good: 1");
    let url = "https://me:c2VjcmV0cGFzcw==@h/a";
    assert_eq!(redact("token c2VjcmV0cGFzcw== is not valid", &[url]), "token [redacted] is not valid");
}

/// A text from outside the crate may repeat a sent value in any encoding. Even a short value is hidden.
#[test]
fn sent_secrets_are_hidden_in_foreign_text() {
    let hidden = |sent: &SentSecrets, text: &str, secrets: &[&str]| {
        let shown = sent.redact(text);
        for secret in secrets {
            assert!(!shown.contains(secret), "{secret} of {text}: {shown}");
        }
        assert!(shown.contains(HIDDEN), "{text}: {shown}");
        assert!(!format!("{sent:?}").contains("abc4"));
        shown
    };
    let four = SentSecrets::of_url("https://me:abc4@h/a.tar");
    let shown = hidden(
        &four,
        "me:abc4 (bWU6YWJjNA==, YWJjNA) is wrong, ABC4 too, as is xabc4x",
        &["abc4", "ABC4", "YWJj"],
    );
    assert!(shown.ends_with("is wrong, [redacted] too, as is x[redacted]x"), "{shown}");
    // A short value is hidden where it is a whole word.
    let one = SentSecrets::of_url("https://me:e@h/a.tar?sig=f");
    let shown = hidden(&one, "the password \"e\" and f are wrong", &["\"e\"", " f "]);
    assert_eq!(shown, "the password \"[redacted]\" and [redacted] are wrong");
    assert_eq!(SentSecrets::of_url("https://c2VjcmV0cA==@h/a").redact("<c2VjcmV0cA>"), "<[redacted]>");
    // All encodings.
    let odd = SentSecrets::of_url("https://me:a%26b%3C%22%2F4%20c@h/a.tar");
    for text in
        ["a&b<\"/4 c", "a&amp;b&lt;\"/4 c", "a&amp;b&lt;&quot;/4 c", "a&b<\\\"/4 c", "a%26b%3c%22%2f4+c"]
    {
        assert_eq!(odd.redact(&format!("[{text}]")), "[[redacted]]", "{text}");
    }
    let mut headers = SentSecrets::default();
    headers.add_header("Bearer abc4");
    headers.add_header("Basic bWU6enl4dw==");
    headers.add_header("session=pqrs; other=uvwx");
    headers.add_header(
        "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;range, \
         Signature=0123abcd",
    );
    headers.add_form("grant_type=refresh_token&refresh_token=1%2F%2Fxyz&client_secret=klmn");
    hidden(
        &headers,
        "abc4, bWU6enl4dw, me:zyxw, pqrs, uvwx; AKIA 0123abcd 1//xyz klmn",
        &["abc4", "bWU6", "zyxw", "pqrs", "uvwx", "AKIA", "0123abcd", "xyz", "klmn"],
    );
    let plain = "AWS4-HMAC-SHA256 of host and range by grant_type refresh_token with the Bearer";
    assert_eq!(headers.redact(plain), plain);
    let page = SentSecrets::of_url("https://h/b?list-type=2&prefix=train&comp=list&sv=2021-08-06&sig=abc4");
    assert_eq!(page.redact("cannot list train: abc4"), "cannot list train: [redacted]");
}

/// Texts of the crate and of the user's code may have words that look like secrets.
#[test]
fn own_texts_keep_all_but_the_secrets_of_urls() {
    for text in
        ["next_token=50257", "set AWS_SKIP_SIGNATURE=true", "/k?sig=1", "Basic Training-2", "gs://b/k?a=b"]
    {
        assert_eq!(redact_urls(text), text);
    }
    assert_eq!(
        redact_urls("GET https://me:s3cret@h/?sig=s3cret failed"),
        "GET https://[redacted]@h/?[redacted] failed"
    );
}

#[test]
fn positions_are_converted_to_those_in_the_shown_text() {
    let url = SecretUrl::from("https://mé:s3cret@hé/{?s3cret");
    let shown = url.to_string();
    for at in ["hé", "{", "?"] {
        let position = |text: &str| text.find(at).unwrap();
        assert_eq!(
            url.shown_before(position(url.expose_secret())),
            shown[..position(&shown)].chars().count()
        );
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
        SentSecrets::of_url(&*text).redact(&text);
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
