//! What identifies the source of a copy in a saved record.

use crate::input_hash::InputHash;
use shardstream::SecretUrl;
use shardstream::store::ObjectUrl;

/// The parameters of signed URLs, in lower case: of CloudFront and the older ones of S3 and Google Cloud
/// Storage, and of Azure's shared access signatures.
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

/// The parts of a source's URL by which its record is found again: the URL without secrets, and a hash of the
/// parameters of its query that are not part of a signature, which changes each time. The query itself may
/// hold secrets, and is not saved.
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
    let has_some = parameters.peek().is_some_and(|first| !first.is_empty());
    parameters.for_each(|parameter| hash.text(parameter));
    (url.to_string(), has_some.then(|| hash.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_selects_an_object_and_a_signature_does_not() {
        let hash = |url: &str| identity(&SecretUrl::from(url)).1;
        assert!(hash("https://h/a?id=A").is_some() && hash("https://h/a?id=A") != hash("https://h/a?id=B"));
        let signed = "https://h/a?id=A&X-Amz-Signature=1&Expires=2#x";
        assert_eq!(hash(signed), hash("https://h/a?id=A"));
        for plain in ["https://h/a", "https://h/a?", "https://h/a?sv=1&sig=2", "gs://b/a?id=A", "a?id=A"] {
            assert_eq!(hash(plain), None, "{plain}");
        }
    }
}
