//! Identifies the source of a copy in a saved record.

use crate::input_hash::InputHash;
use shardstream::SecretUrl;
use shardstream::store::ObjectUrl;

/// Query parameters of signed URLs, in lower case: the parameters of CloudFront, of Azure's shared access
/// signatures, and of older signatures of S3 and Google Cloud Storage.
const SIGNATURE: [&str; 24] = [
    "awsaccesskeyid",
    "expires",
    "googleaccessid",
    "key-pair-id",
    "policy",
    "se",
    "sig",
    "signature",
    "sip",
    "ske",
    "skoid",
    "sks",
    "skt",
    "sktid",
    "skv",
    "sp",
    "spr",
    "sr",
    "srt",
    "ss",
    "st",
    "sv",
    "token",
    "x-id",
];

/// The parts of a source's URL that identify it in a record: the URL without secrets, and a hash of its query
/// parameters. Parameters of a signature are left out of the hash, because a signature changes each time. The
/// query itself is not saved, because it may have secrets.
pub(crate) fn identity(url: &SecretUrl) -> (String, Option<String>) {
    let query = match ObjectUrl::from(url).is_web() {
        true => url.expose_secret().split_once('?').map_or("", |(_, query)| query),
        false => "",
    };
    let query = query.split('#').next().unwrap_or_default();
    let is_signature = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
        name.starts_with("x-amz-") || name.starts_with("x-goog-") || SIGNATURE.contains(&&*name)
    };
    let mut parameters = query.split('&').filter(|parameter| !is_signature(parameter)).peekable();
    let mut hash = InputHash::default();
    let has_parameters = parameters.peek().is_some_and(|first| !first.is_empty());
    parameters.for_each(|parameter| hash.text(parameter));
    (url.to_string(), if has_parameters { Some(hash.finish()) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_identify_a_source_but_signatures_do_not() {
        let hash = |url: &str| identity(&SecretUrl::from(url)).1;
        assert!(hash("https://h/a?id=A").is_some() && hash("https://h/a?id=A") != hash("https://h/a?id=B"));
        let signed = "https://h/a?id=A&X-Amz-Signature=1&Expires=2#x";
        assert_eq!(hash(signed), hash("https://h/a?id=A"));
        for plain in ["https://h/a", "https://h/a?", "https://h/a?sv=1&sig=2", "gs://b/a?id=A", "a?id=A"] {
            assert_eq!(hash(plain), None, "{plain}");
        }
    }
}
