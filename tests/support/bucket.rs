//! An in-memory bucket behind the part of the XML API of Google Cloud Storage (and S3) that the clients use:
//! GET with ranges and If-Match, PUT, DELETE, copies, multipart uploads and listing, without authentication.
//! Writes may be conditional, and each object has a CRC-32C.

use super::server::{Reply, Request, Server};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Bucket {
    /// The objects by their keys.
    objects: BTreeMap<String, StoredObject>,
    generations: u64,
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    next_upload: usize,
}

struct StoredObject {
    content: Vec<u8>,
    etag: String,
    generation: u64,
    /// The value of `x-goog-hash`.
    hash: String,
}

/// Starts a server whose buckets, whatever their names, all have the same objects. A page of a listing has
/// two objects.
pub(crate) fn start() -> Server {
    start_with(|_| None)
}

/// Like [`start`], with an object for each of `keys`. The content of each object is its key.
pub(crate) fn start_holding(keys: &[&str]) -> Server {
    let mut bucket = Bucket::default();
    keys.iter().for_each(|key| drop(bucket.put(key, key.as_bytes().to_vec())));
    let bucket = Mutex::new(bucket);
    Server::start(move |request| bucket.lock().unwrap().answer(request))
}

/// Like [`start`], but if `fault` returns a reply for a request, the server sends that reply and the bucket
/// does not see the request.
pub(crate) fn start_with(fault: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Server {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    Server::start(move |request| fault(request).unwrap_or_else(|| bucket.lock().unwrap().answer(request)))
}

/// Like [`start`], but if `lose` selects a request, the bucket carries it out and the connection closes
/// without a reply.
#[allow(dead_code, reason = "not used by all programs of tests")]
pub(crate) fn start_losing(lose: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Server {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    Server::start(move |request| {
        let reply = bucket.lock().unwrap().answer(request);
        if lose(request) { Reply::raw("").then_closed() } else { reply }
    })
}

fn etag(content: &[u8]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in content {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("\"{hash:016x}\"")
}

/// The checksum header's value: `crc32c=` and the CRC-32C in base64.
fn hash(content: &[u8]) -> String {
    const TABLE: [u32; 256] = {
        let (mut table, mut byte) = ([0; 256], 0);
        while byte < 256 {
            let (mut sum, mut bit) = (byte as u32, 0);
            while bit < 8 {
                sum = (sum >> 1) ^ (if sum & 1 == 1 { 0x82f6_3b78 } else { 0 });
                bit += 1;
            }
            table[byte] = sum;
            byte += 1;
        }
        table
    };
    let step = |sum: u32, byte: &u8| (sum >> 8) ^ TABLE[usize::from(sum as u8 ^ byte)];
    let sum = u64::from(!content.iter().fold(!0, step)) << 4;
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = (0..6).rev().map(|digit| char::from(digits[(sum >> (6 * digit)) as usize & 63]));
    format!("crc32c={}==", text.collect::<String>())
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Bucket {
    fn answer(&mut self, request: &Request) -> Reply {
        let path = request.path().trim_start_matches('/');
        let key = path.split_once('/').map(|(_, key)| decoded(key)).unwrap_or_default();
        let parameters: BTreeMap<String, String> = url::form_urlencoded::parse(request.query().as_bytes())
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let upload = parameters.get("uploadId");
        if request.method == "PUT" && upload.is_none() && !self.may_put(request, &key) {
            return Reply::new(412, "<Error><Code>PreconditionFailed</Code></Error>");
        }
        match (request.method.as_str(), upload) {
            ("GET", _) if key.is_empty() => self.list(&parameters),
            ("GET" | "HEAD", _) => match self.objects.get(&key) {
                Some(StoredObject { content, etag, generation, hash }) => {
                    Reply::object(request, content, etag)
                        .with("x-goog-hash", hash.clone())
                        .with("x-goog-generation", generation.to_string())
                }
                None => Reply::new(404, "<Error><Code>NoSuchKey</Code></Error>"),
            },
            ("PUT", None) => {
                let content = match request.header("x-goog-copy-source") {
                    None => request.body.clone(),
                    Some(source) => {
                        let source = source.split_once('/').map(|(_, key)| decoded(key)).unwrap_or_default();
                        let Some(object) = self.objects.get(&source) else { return Reply::new(404, "") };
                        object.content.clone()
                    }
                };
                let tag = self.put(&key, content);
                Reply::new(200, "").with("ETag", tag)
            }
            ("PUT", Some(upload)) => {
                let number = parameters["partNumber"].parse().unwrap();
                let Some(parts) = self.uploads.get_mut(upload) else {
                    return Reply::new(404, "<Error><Code>NoSuchUpload</Code></Error>");
                };
                parts.insert(number, request.body.clone());
                Reply::new(200, "").with("ETag", etag(&request.body))
            }
            ("POST", None) => {
                self.next_upload += 1;
                let id = self.next_upload.to_string();
                self.uploads.insert(id.clone(), BTreeMap::new());
                let text = format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                );
                Reply::new(200, text)
            }
            ("POST", Some(upload)) => {
                let Some(parts) = self.uploads.remove(upload) else {
                    return Reply::new(404, "<Error><Code>NoSuchUpload</Code></Error>");
                };
                let content = parts.into_values().collect::<Vec<_>>().concat();
                let tag = self.put(&key, content);
                Reply::new(
                    200,
                    format!(
                        "<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
                    ),
                )
            }
            ("DELETE", Some(upload)) => {
                self.uploads.remove(upload);
                Reply::new(204, "")
            }
            ("DELETE", None) => match self.objects.remove(&key) {
                Some(_) => Reply::new(204, ""),
                None => Reply::new(404, "<Error><Code>NoSuchKey</Code></Error>"),
            },
            _ => Reply::new(501, ""),
        }
    }

    /// Stores an object and returns its ETag.
    fn put(&mut self, key: &str, content: Vec<u8>) -> String {
        self.generations += 1;
        let (etag, hash) = (etag(&content), hash(&content));
        let object = StoredObject { content, etag: etag.clone(), generation: self.generations, hash };
        self.objects.insert(key.to_owned(), object);
        etag
    }

    /// Whether the conditions of a write request are met.
    fn may_put(&self, request: &Request, key: &str) -> bool {
        let generation = self.objects.get(key).map_or(0, |object| object.generation);
        let expected = request.header("x-goog-if-generation-match");
        expected.is_none_or(|expected| expected == generation.to_string())
    }

    fn list(&self, parameters: &BTreeMap<String, String>) -> Reply {
        const PAGE: usize = 2;
        let prefix = parameters.get("prefix").map_or("", String::as_str);
        let after = parameters.get("continuation-token").map_or("", String::as_str);
        let mut found =
            self.objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after).peekable();
        let mut text = String::from("<ListBucketResult>");
        let mut last = "";
        for (key, StoredObject { content, etag, .. }) in found.by_ref().take(PAGE) {
            last = key;
            write!(
                text,
                "<Contents><Key>{}</Key><Size>{}</Size><ETag>{}</ETag>\
                 <LastModified>2026-11-20T12:00:00.000Z</LastModified></Contents>",
                escaped(key),
                content.len(),
                etag
            )
            .unwrap();
        }
        if found.peek().is_some() {
            write!(text, "<NextContinuationToken>{}</NextContinuationToken>", escaped(last)).unwrap();
        }
        Reply::new(200, text + "</ListBucketResult>")
    }
}
