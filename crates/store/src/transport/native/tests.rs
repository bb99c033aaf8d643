//! Responses as they arrive, cut into pieces in every way.

use super::connection::Wire;
use super::*;
use crate::ErrorKind;
use crate::read_buffer::size;
use crate::runtime;
use bytes::Bytes;
use futures::stream::TryStreamExt;
use http::header;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A wire that delivers its pieces one by one, with a pause before each, and then ends.
struct Script {
    pieces: VecDeque<Vec<u8>>,
    paused: bool,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.paused = !self.paused;
        if self.paused {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(mut piece) = self.pieces.pop_front() {
            let rest = piece.split_off(piece.len().min(into.remaining()));
            into.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Wire for Script {
    fn socket(&self) -> Option<&tokio::net::TcpStream> {
        None
    }
}

/// The status and the chunks of a response that arrives in these pieces, and the result at its end.
fn received(pieces: impl IntoIterator<Item = Vec<u8>>) -> Result<(u16, Vec<Bytes>, Result<()>)> {
    let script =
        Script { pieces: pieces.into_iter().filter(|piece| !piece.is_empty()).collect(), paused: false };
    let origin = HttpOrigin { tls: false, host: "script.invalid".into(), port: 1 };
    runtime::run(async {
        let mut connection = HttpConnection::new(origin, script);
        let head = connection.send(b"GET").await.map_err(|fault| fault.error)?;
        let mut body = ResponseBody::new(connection, head.framing, false);
        let mut chunks = Vec::new();
        let end = loop {
            match body.try_next().await {
                Ok(Some(chunk)) => chunks.push(chunk),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert!(body.try_next().await.unwrap().is_none(), "nothing comes after the end");
        Ok((head.status.as_u16(), chunks, end))
    })
}

#[test]
fn chunks_begin_where_the_kernel_copies_fast() {
    let body = vec![7; 3 * size()];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    let (_, chunks, end) = received([head, body]).unwrap();
    end.unwrap();
    assert!(chunks.len() == 3 && chunks.iter().all(|chunk| crate::aligned::is_aligned(chunk)));
}

fn whole(pieces: impl IntoIterator<Item = Vec<u8>>) -> (u16, Vec<u8>) {
    let (status, chunks, end) = received(pieces).unwrap();
    end.unwrap();
    (status, chunks.concat())
}

const RESPONSES: [(&str, u16, &str); 8] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 404", 200, "hello"),
    (
        "HTTP/1.1 206 \r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\n",
        206,
        "hello",
    ),
    ("HTTP/1.1 200 OK\r\n\r\nuntil it ends", 200, "until it ends"),
    ("HTTP/1.0 200 OK\nServer: old\n\nlines", 200, "lines"),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 404 \
         No\r\nContent-Length: 0\r\n\r\n",
        404,
        "",
    ),
    ("HTTP/1.1 204 Nothing\r\n\r\nnever read", 204, ""),
    ("HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", 304, ""),
];

#[test]
fn a_response_is_the_same_wherever_it_is_cut() {
    for (response, status, body) in RESPONSES {
        for cut in 0..=response.len() {
            let (before, after) = response.as_bytes().split_at(cut);
            let expected = (status, body.as_bytes().to_vec());
            assert_eq!(whole([before.to_vec(), after.to_vec()]), expected, "{response:?} cut at {cut}");
        }
        let bytes = response.bytes().map(|byte| vec![byte]);
        assert_eq!(whole(bytes), (status, body.as_bytes().to_vec()), "{response:?}");
    }
}

#[test]
fn a_response_that_ends_early_is_an_error_after_what_came() {
    for response in [RESPONSES[0].0, RESPONSES[2].0] {
        for length in 0..response.len() {
            match received([response.as_bytes()[..length].to_vec()]) {
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}"),
                Ok((_, chunks, end)) => {
                    let error = end.unwrap_err();
                    assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
                    assert!(b"hello".starts_with(&chunks.concat()));
                }
            }
        }
    }
    let (_, chunks, end) = received([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello".to_vec()]).unwrap();
    assert_eq!(chunks.concat(), b"hello");
    assert!(end.is_err());
}

/// Where two readers may see two different responses, this one sees none.
#[test]
fn what_could_be_read_in_two_ways_is_not_read() {
    for (head, word) in [
        ("Content-Length: 5\r\nContent-Length: 6", "lengths"),
        ("Content-Length: 5, 5", "length"),
        ("Content-Length: +5", "length"),
        ("Content-Length: 0x5", "length"),
        ("Content-Length: ", "length"),
        ("Content-Length: 99999999999999999999", "length"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "both"),
        ("Transfer-Encoding: gzip, chunked", "encoding"),
        ("Transfer-Encoding: identity", "encoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "encoding"),
        ("A: b\r\n folded", "header"),
        ("A : b", "header"),
        ("no header", "header"),
    ] {
        let error = received([format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nhello").into_bytes()]).unwrap_err();
        let text = format!("{error:#}");
        assert!(matches!(error.kind(), ErrorKind::Store(_)) && text.contains(word), "{head}: {text}");
    }
    for response in [
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "220 mail.example.com\r\n\r\n",
    ] {
        let error = received([response.as_bytes().to_vec()]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{response:?}: {error:?}");
    }
    let malformed = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n".to_vec();
    let (_, _, end) = received([malformed]).unwrap();
    assert!(matches!(end.unwrap_err().kind(), ErrorKind::Store(_)));
}

#[test]
fn heads_are_bounded() {
    let long = |value: usize| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(value)).into_bytes();
    assert!(received([long(60_000)]).is_ok());
    for endless in [long(70_000), b"HTTP/1.1 103 Early\r\n\r\n".repeat(4000)] {
        let error = received([endless]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooLarge { .. }), "{error:?}");
    }
    let many = |lines| format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(lines)).into_bytes();
    assert!(received([many(100)]).is_ok());
    assert!(matches!(received([many(101)]).unwrap_err().kind(), ErrorKind::Store(_)));
}

#[test]
fn chunks_are_as_large_as_buffers() {
    let content = vec![7; 2 * size() + 3];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()).into_bytes();
    let pieces: Vec<_> = [head, content].concat().chunks(50_000).map(<[u8]>::to_vec).collect();
    let (_, chunks, _) = received(pieces).unwrap();
    assert_eq!(chunks.iter().map(Bytes::len).collect::<Vec<_>>(), [size(), size(), 3]);
}

#[test]
fn requests_say_what_they_must() {
    let uri: Uri = "http://User@Example.COM:8080/a%2Fb?x=%7B1%7D".parse().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(header::RANGE, "bytes=0-9".parse().unwrap());
    headers.insert(header::HOST, "elsewhere".parse().unwrap());
    let request = head::request(&HttpOrigin::of(&uri).unwrap(), &uri, &headers);
    let agent = concat!("user-agent: shardstream/", env!("CARGO_PKG_VERSION"));
    let expected = [
        "GET /a%2Fb?x=%7B1%7D HTTP/1.1",
        "Host: example.com:8080",
        agent,
        "accept: */*",
        "range: bytes=0-9",
        "",
        "",
    ];
    assert_eq!(String::from_utf8(request).unwrap(), expected.join("\r\n"));
    for (uri, host) in
        [("https://a:443/", "a"), ("http://[::1]:80", "[::1]"), ("https://[::1]:80", "[::1]:80")]
    {
        assert_eq!(HttpOrigin::of(&uri.parse().unwrap()).unwrap().to_string(), host);
    }
    for uri in ["ftp://a/", "/a", "http://:80/"] {
        assert!(uri.parse::<Uri>().map_or(true, |uri| HttpOrigin::of(&uri).is_err()), "{uri}");
    }
}

proptest! {
    #[test]
    fn any_response_in_any_pieces(
        content in prop::collection::vec(any::<u8>(), 0..300),
        chunked in any::<bool>(),
        cuts in prop::collection::vec(1..50_usize, 0..30),
    ) {
        let mut response = match chunked {
            true => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()).into_bytes(),
        };
        if chunked {
            for chunk in content.chunks(70) {
                response.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                response.extend_from_slice(chunk);
                response.extend_from_slice(b"\r\n");
            }
            response.extend_from_slice(b"0\r\n\r\n");
        } else {
            response.extend_from_slice(&content);
        }
        let mut pieces = Vec::new();
        for cut in cuts {
            let rest = response.split_off(cut.min(response.len()));
            pieces.push(std::mem::replace(&mut response, rest));
        }
        pieces.push(response);
        prop_assert_eq!(whole(pieces), (200, content));
    }

    #[test]
    fn any_bytes_are_a_response_or_an_error(
        start in prop::sample::select(vec![
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ]),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = received([[start.as_bytes(), &bytes].concat()]);
    }
}
