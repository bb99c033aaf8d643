//! Clients of cloud stores against test servers: which requests they send to which server, and how they
//! report responses.
//!
//! The clients take their settings from environment variables, so each test reads and lists in a process of
//! its own.

use crate::support::Every;
use crate::support::child::child;
use crate::support::noise;
use crate::support::server::{Reply, Request, Server};
use shardstream::ErrorKind;
use shardstream::store::Store;

const URL: &str = "SHARDSTREAM_TEST_URL";

/// Runs in a child process: reads an object of the bucket that the environment variable names, and lists the
/// bucket.
#[test]
#[ignore = "run by other tests, with environment variables that they set"]
fn read_and_list_in_child() {
    let bucket = std::env::var(URL).unwrap();
    let store = Store::builder().retries(0).build().unwrap();
    let read = store.open(&format!("{bucket}/a.tar")).and_then(|body| body.read_all());
    let listed = store.list(&bucket);
    for (what, result) in
        [("reading", read.map(|bytes| bytes.len())), ("listing", listed.map(|list| list.len()))]
    {
        match result {
            Ok(number) => println!("{what} gave {number}"),
            Err(error) => println!("{what} failed as {}: {error:#}", kind(error.kind())),
        }
    }
}

fn kind(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Denied(_) => "Denied",
        ErrorKind::NotFound(_) => "NotFound",
        ErrorKind::Store(_) => "Store",
        ErrorKind::Io(_) => "Io",
        ErrorKind::Config(_) => "Config",
        _ => "something else",
    }
}

/// The child's output for reading and for listing.
pub(super) fn child_says(bucket: &str, environment: &[(&str, &str)]) -> [String; 2] {
    let mut command = child(module_path!(), "read_and_list_in_child");
    for (name, _) in std::env::vars() {
        let of_cloud =
            ["AWS_", "GOOGLE_", "GCE_", "STORAGE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix));
        if of_cloud || name.to_ascii_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command.env(URL, bucket).env("HOME", "/nowhere").envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    ["reading ", "listing "].map(|what| {
        let at = text.find(what).unwrap_or_else(|| panic!("nothing of {what}: {text}"));
        text[at..].lines().next().unwrap().to_owned()
    })
}

/// Environment variables with the endpoint and the credentials of an account at `server`.
fn s3(server: &Server) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", server.url("")),
        ("AWS_ACCESS_KEY_ID", "key".into()),
        ("AWS_SECRET_ACCESS_KEY", "s3cret".into()),
        ("AWS_SESSION_TOKEN", "s3cret-token".into()),
    ]
}

fn s3_says(server: &Server, more: &[(&str, &str)]) -> [String; 2] {
    let account = s3(server);
    let account = account.iter().map(|(name, value)| (*name, value.as_str()));
    child_says("s3://bucket", &account.chain(more.iter().copied()).collect::<Vec<_>>())
}

/// The child's output for a bucket at `server`, which also issues tokens.
fn gs_says(server: &Server, more: &[(&str, &str)]) -> [String; 2] {
    let (url, host) = (server.url(""), server.url("").replace("http://", ""));
    let account = [("GOOGLE_BASE_URL", url.as_str()), ("GCE_METADATA_HOST", &host)];
    child_says("gs://bucket", &[&account[..], more].concat())
}

/// Serves an object, an empty listing, and tokens.
fn bucket(request: &Request) -> Reply {
    match request.path() {
        path if path.ends_with("/token") => {
            Reply::new(200, r#"{"access_token": "s3cret-token", "expires_in": 3600}"#)
        }
        path if path.ends_with("tar") => Reply::object(request, &noise(100), "\"v1\""),
        _ => Reply::new(200, "<ListBucketResult></ListBucketResult>"),
    }
}

fn is_token(request: &Request) -> bool {
    request.path().ends_with("/token")
}

#[test]
fn credentials_do_not_follow_a_redirect_to_another_server() {
    let other = Server::start(bucket);
    let elsewhere = other.url("");
    let server = Server::start(move |request| {
        Reply::new(307, "<Error><Code>TemporaryRedirect</Code></Error>")
            .with("Location", format!("{elsewhere}{}", request.target))
            .with("x-amz-bucket-region", "eu-west-1")
    });
    assert_eq!(s3_says(&server, &[]), ["reading gave 100", "listing gave 0"]);
    assert_eq!(other.requests().len(), 2);
    for request in server.requests() {
        assert!(request.header("authorization").is_some(), "{request:?}");
        assert_eq!(request.header("x-amz-security-token"), Some("s3cret-token"));
    }
    for request in other.requests() {
        let text = format!("{request:?}");
        assert!(!text.contains("s3cret") && request.header("authorization").is_none(), "{text}");
        assert_eq!(request.header("referer"), None);
    }
}

/// S3 redirects requests for a new bucket until all its servers know the bucket's region.
#[test]
fn a_refusal_after_a_redirect_says_what_is_missing() {
    let other = Server::start(|_| Reply::new(403, "<Error><Code>AccessDenied</Code></Error>"));
    let elsewhere = other.url("");
    let server = Server::start(move |request| {
        Reply::new(307, "")
            .with("Location", format!("{elsewhere}{}", request.target))
            .with("x-amz-bucket-region", "eu-west-1")
    });
    for text in s3_says(&server, &[]) {
        assert!(text.contains("failed as Denied") && text.contains("no credentials"), "{text}");
        assert!(
            text.contains("redirected from 127.0.0.1") && text.contains("AWS_REGION=eu-west-1"),
            "{text}"
        );
    }
}

#[test]
fn a_bucket_in_another_region_is_named_with_what_to_set() {
    let moved = || Reply::new(301, "<Error><Code>PermanentRedirect</Code></Error>");
    let of_header = move |_: &Request| moved().with("x-amz-bucket-region", "eu-west-1");
    let of_document = |_: &Request| {
        let code = "<Code>AuthorizationHeaderMalformed</Code><Message>Wrong</Message>";
        Reply::new(400, format!("<?xml version=\"1.0\"?><Error>{code}<Region>eu-west-1</Region></Error>"))
    };
    for server in [Server::start(of_header), Server::start(of_document)] {
        for text in s3_says(&server, &[]) {
            assert!(text.contains("failed as Store") && text.contains("set AWS_REGION=eu-west-1"), "{text}");
            assert!(!text.contains('<'), "{text}");
        }
    }
}

#[test]
fn requester_pays_is_sent_when_set() {
    let server = Server::start(|request| match request.header("x-amz-request-payer") {
        Some("requester") => bucket(request),
        _ => Reply::new(403, "<Error><Code>AccessDenied</Code></Error>").with("x-amz-request-id", "1"),
    });
    for text in s3_says(&server, &[]) {
        assert!(text.contains("failed as Denied") && text.contains("AWS_REQUEST_PAYER"), "{text}");
    }
    let paid = [("AWS_REQUEST_PAYER", "requester")];
    assert_eq!(s3_says(&server, &paid), ["reading gave 100", "listing gave 0"]);
}

#[test]
fn the_billing_project_is_sent_when_set() {
    let server = Server::start(|request| match request.header("x-goog-user-project") {
        None if !is_token(request) => Reply::new(400, "<Error><Code>UserProjectMissing</Code></Error>"),
        Some(project) if project != "payer" => Reply::new(400, ""),
        _ => bucket(request),
    });
    for text in gs_says(&server, &[]) {
        assert!(text.contains("failed as Denied") && text.contains("GOOGLE_USER_PROJECT"), "{text}");
    }
    let paid = [("GOOGLE_USER_PROJECT", "payer")];
    assert_eq!(gs_says(&server, &paid), ["reading gave 100", "listing gave 0"]);
    // The header of the requester's project is not sent to the token server.
    let requests = server.requests();
    let tokens = requests.iter().filter(|request| is_token(request));
    assert!(tokens.every(|request| request.header("x-goog-user-project").is_none()));
}

#[test]
fn listing_and_reading_fail_with_the_same_kinds() {
    for (status, code, expected) in [
        (403, "AccessDenied", "Denied"),
        (401, "InvalidToken", "Denied"),
        (404, "NoSuchBucket", "NotFound"),
        (400, "InvalidArgument", "Store"),
    ] {
        let server = Server::start(move |request| match is_token(request) {
            true => bucket(request),
            false => Reply::new(
                status,
                format!(
                    "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Not so.</Message></Error>"
                ),
            ),
        });
        for says in [s3_says(&server, &[]), gs_says(&server, &[])] {
            for text in says {
                assert!(text.contains(&format!("failed as {expected}")), "{status}: {text}");
                assert!(text.contains(&format!("{code}: Not so.")) && !text.contains('<'), "{text}");
            }
        }
    }
}

/// An address at which no server listens.
fn refused_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn missing_credentials_are_denied_and_say_what_to_set() {
    let server = Server::start(bucket);
    let (url, refused) = (server.url(""), refused_address());
    let metadata = format!("http://{refused}");
    let amazon =
        child_says("s3://bucket", &[("AWS_ENDPOINT_URL", &url), ("AWS_METADATA_ENDPOINT", &metadata)]);
    let google = child_says(
        "gs://bucket",
        &[("GOOGLE_BASE_URL", &url), ("GCE_METADATA_HOST", &refused), ("GCE_METADATA_IP", &refused)],
    );
    for (says, names) in [
        (amazon, &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SKIP_SIGNATURE=true"][..]),
        (google, &["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE=true"]),
    ] {
        for text in says {
            assert!(text.contains("failed as Denied") && text.contains("no credentials"), "{text}");
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        }
    }
    assert_eq!(server.requests().len(), 0);
}

/// The credentials file cannot be read, or the machine's own credentials are refused.
#[test]
fn unusable_credentials_are_denied_and_say_what_to_set() {
    let refusing = Server::start(|request| match is_token(request) {
        true => Reply::new(404, "no such account"),
        false => bucket(request),
    });
    let refused = format!("http://{}", refused_address());
    let amazon = [
        ("AWS_ENDPOINT_URL", refused.as_str()),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/a"),
    ];
    let google =
        [("GOOGLE_BASE_URL", refused.as_str()), ("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")];
    let [amazon, _] = child_says("s3://bucket", &amazon);
    assert!(amazon.contains("failed as Denied") && amazon.contains("/nowhere/token"), "{amazon}");
    assert!(amazon.contains("AWS_ACCESS_KEY_ID") && amazon.contains("AWS_SKIP_SIGNATURE"), "{amazon}");
    for text in [child_says("gs://bucket", &google), gs_says(&refusing, &[])].concat() {
        assert!(text.contains("failed as Denied"), "{text}");
        assert!(
            text.contains("GOOGLE_APPLICATION_CREDENTIALS") && text.contains("GOOGLE_SKIP_SIGNATURE"),
            "{text}"
        );
    }
    assert!(refusing.requests().iter().every(is_token));
    for text in child_says("az://bucket", &[]) {
        assert!(text.contains("failed as Denied") && text.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{text}");
    }
}

/// The bucket's server refuses connections.
#[test]
fn a_listing_gives_up_on_refused_connections() {
    let url = format!("http://{}", refused_address());
    let account = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "s3cret"),
    ];
    for text in child_says("s3://bucket", &account) {
        assert!(text.contains("failed as Io"), "{text}");
    }
}

/// Values that no client can use. Scripts and deployment templates sometimes produce such values.
#[test]
fn a_bad_variable_is_an_error_that_names_it() {
    let account = [
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "s3cret"),
        ("GOOGLE_SKIP_SIGNATURE", "true"),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_SKIP_SIGNATURE", "true"),
    ];
    for (bucket, name, value, said) in [
        ("s3://bucket", "AWS_ENDPOINT_URL", "minio:9000", "such as http://minio:9000"),
        ("s3://bucket", "AWS_ENDPOINT_URL", "http://", "begins with http:// or https://"),
        ("s3://bucket", "AWS_ENDPOINT", " http://minio:9000", "a space"),
        ("s3://bucket", "AWS_ENDPOINT_URL_S3", "http://minio:99999", "port"),
        ("s3://bucket", "AWS_REGION", "us east", "name of a region"),
        ("s3://bucket", "AWS_SKIP_SIGNATURE", "ture", "true or false"),
        ("s3://bucket", "AWS_SESSION_TOKEN", "s3cret\n", "line break"),
        ("s3://bucket", "AWS_READ_TIMEOUT", "30", "such as 30s"),
        ("s3://bucket", "AWS_PROXY_URL", "ftp://proxy", "a proxy"),
        ("gs://bucket", "GOOGLE_BASE_URL", "127.0.0.1:4443", "such as http://127.0.0.1:4443"),
        ("gs://bucket", "STORAGE_EMULATOR_HOST", "local host:4443", "a host and a port"),
        ("gs://bucket", "GCE_METADATA_HOST", "http://metadata", "a host and a port"),
        ("gs://bucket", "GOOGLE_ALLOW_HTTP", "si", "true or false"),
        ("az://bucket", "AZURE_STORAGE_ENDPOINT", "127.0.0.1:10000", "such as http://127.0.0.1:10000"),
        ("az://bucket", "AZURE_STORAGE_ACCOUNT_NAME", "https://account", "without https://"),
        ("az://bucket", "AZURITE_BLOB_STORAGE_URL", "127.0.0.1", "such as http://127.0.0.1"),
    ] {
        for text in child_says(bucket, &[&account[..], &[(name, value)]].concat()) {
            assert!(text.contains("failed as Config") && text.contains(name), "{name}={value:?}: {text}");
            assert!(text.contains(said) && !text.contains("s3cret"), "{name}={value:?}: {text}");
        }
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let server = Server::start(bucket);
    let names = ["AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_PROXY_URL", "AWS_ALLOW_HTTP", "AWS_TIMEOUT"];
    let empty = names.map(|name| (name, ""));
    assert_eq!(s3_says(&server, &empty), ["reading gave 100", "listing gave 0"]);
    let empty =
        ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_USER_PROJECT", "STORAGE_EMULATOR_HOST"].map(|name| (name, ""));
    assert_eq!(gs_says(&server, &empty), ["reading gave 100", "listing gave 0"]);
}

/// Bucket names that cannot be part of a URL.
#[test]
fn an_invalid_bucket_name_is_an_error() {
    let server = Server::start(|_| Reply::new(404, ""));
    let account = s3(&server);
    let account: Vec<_> = account.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (url, azure) = (server.url(""), server.url("/account"));
    let google = [("GOOGLE_BASE_URL", url.as_str()), ("GOOGLE_SKIP_SIGNATURE", "true")];
    let azure = [
        ("AZURE_STORAGE_ENDPOINT", azure.as_str()),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_SKIP_SIGNATURE", "true"),
    ];
    for name in ["my bucket", "b\u{fc}cket", "a\"b", "<x>", "%zz", "a^b", ""] {
        for (scheme, environment) in [("s3", &account[..]), ("gs", &google), ("az", &azure)] {
            for text in child_says(&format!("{scheme}://{name}"), environment) {
                assert!(
                    text.contains(" failed as ") && !text.contains("panicked"),
                    "{scheme} {name}: {text}"
                );
            }
        }
    }
}

/// A page of an S3 listing, with one object and the token of the next page.
fn page(key: &str, next: &str) -> String {
    format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{next}\
         </NextContinuationToken><Contents><Key>{key}</Key><Size>1</Size>\
         <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag></Contents></ListBucketResult>"
    )
}

#[test]
fn a_listing_that_repeats_itself_is_an_error() {
    // One server always returns the same page. The other server has three pages, and the last page leads to
    // the first page again.
    let same = |request: &Request| Reply::new(200, page(&format!("k{}", request.number), "a+b/c=&amp;d"));
    let circle = |request: &Request| {
        let at = ["t1", "t2", "t0"].iter().position(|token| request.query().contains(token));
        let next = at.map_or(1, |at| (at + 2) % 3);
        Reply::new(200, page(&format!("k{next}"), &format!("t{next}")))
    };
    for (server, most) in [(Server::start(same), 2), (Server::start(circle), 12)] {
        let [_, listing] = s3_says(&server, &[]);
        assert!(listing.contains("failed as Store") && listing.contains("repeats itself"), "{listing}");
        let pages =
            server.requests().iter().filter(|request| request.query().contains("list-type=2")).count();
        assert!(pages <= most, "{pages} pages: {listing}");
    }
}

#[test]
fn a_listing_page_that_arrives_too_slowly_is_an_error() {
    let server = Server::start(|_| {
        Reply::new(200, page("k", "t").repeat(100)).dripping(1, std::time::Duration::from_millis(20))
    });
    let [_, listing] = s3_says(&server, &[("AWS_READ_TIMEOUT", "200ms")]);
    assert!(listing.contains("failed as Io") && listing.contains("stalled"), "{listing}");
}

#[test]
fn an_endless_listing_page_is_an_error() {
    let megabyte = vec![b' '; 1 << 20];
    let server = Server::start(move |_| Reply::new(200, megabyte.repeat(65)));
    let [_, listing] = s3_says(&server, &[]);
    assert!(listing.contains("exceeds the limit of 67108864 bytes"), "{listing}");
    assert_eq!(server.requests().iter().filter(|request| request.query().contains("list-type=2")).count(), 1);
}
