//! Classifies the faults of connections.
//!
//! The errors of `reqwest` do not tell the reason for a fault, but the errors of `hyper` and `rustls` among
//! their causes do. So `Cargo.toml` pins the version of `reqwest`, and tests over real connections check that
//! these errors are still found (`what_could_be_read_in_two_ways_is_not_read`,
//! `a_failed_tls_handshake_is_not_retried` and `a_connection_closed_while_idle_is_no_fault` in
//! `tests/suite/store/transport.rs`).

use crate::environment::{certificate_hint, proxy_hint};
use crate::location::Failure;
use crate::{Error, ErrorKind, Result};
use http::header::{self, HeaderMap, HeaderValue};
use std::error::Error as StdError;
use std::{io, iter};

/// The advice in the error if a proxy asks for a password.
pub(crate) const PROXY_PASSWORD: &str = "put the user and the password into the URL of the proxy";

/// The error for a response that is not valid HTTP or TLS. It is permanent: a retry would get the same
/// response.
fn malformed(why: &str) -> Error {
    ErrorKind::Store(format!("the server's response cannot be read: {why}").into()).into()
}

/// Refuses a body that two HTTP clients could read differently (RFC 9112, 6.3). `hyper` decodes only the
/// transfer coding `chunked`: a body in another coding would be returned encoded, as if it were the object.
/// `hyper` also accepts the length `5, 5`.
pub(super) fn check_framing(headers: &HeaderMap) -> Result<()> {
    let is_list = |value: &HeaderValue| value.as_bytes().contains(&b',');
    if headers.get_all(header::CONTENT_LENGTH).iter().any(is_list) {
        return Err(malformed("several lengths in one header"));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(malformed("a transfer encoding other than chunked"));
    }
    if headers.contains_key(header::CONTENT_LENGTH) {
        return Err(malformed("both a length and a transfer encoding"));
    }
    Ok(())
}

/// Converts a fault of the network to an [`Error`]. If the next connection would fail in the same way, the
/// error is [`ErrorKind::Store`], which is not retried. Otherwise it is [`ErrorKind::Io`], which is retried.
/// That error has the [`io::ErrorKind`] `kind`, or if `kind` is `None`, the one of the I/O error that caused
/// the fault.
pub(crate) fn network_fault(error: &(dyn StdError + 'static), kind: Option<io::ErrorKind>) -> Error {
    if let Some(unreadable) = causes(error).find_map(as_hyper).filter(|error| error.is_parse()) {
        return malformed(&unreadable.to_string());
    }
    match causes(error).find_map(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_)) => malformed("it is not valid TLS"),
        Some(rustls::Error::InvalidCertificate(_)) => {
            ErrorKind::Store(format!("{}{}", Failure::new(error), certificate_hint()).into()).into()
        }
        Some(tls) if is_final(tls) => ErrorKind::Store(Failure::boxed(error)).into(),
        _ => temporary_fault(error, kind),
    }
}

fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn as_hyper<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a hyper::Error> {
    error.downcast_ref()
}

/// An error and all its causes. `source` of an [`io::Error`] skips the error that the I/O error wraps; this
/// iterator includes it.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error| cause(*error))
}

/// Converts a fault of the network or of TLS to an [`ErrorKind::Io`], which counts as temporary. The error
/// has the [`io::ErrorKind`] `kind`, or if `kind` is `None`, the one of the I/O error that caused the fault.
fn temporary_fault(error: &(dyn StdError + 'static), kind: Option<io::ErrorKind>) -> Error {
    // The innermost kind that is not `Other`.
    let kinds = causes(error).filter_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    let cause = kinds.filter(|kind| *kind != io::ErrorKind::Other).last();
    let kind = kind.or(cause).unwrap_or(io::ErrorKind::Other);
    io::Error::new(kind, Failure::new(error)).into()
}

/// Whether a connection ended before all headers of a response were received.
pub(super) fn is_without_response(error: &reqwest::Error) -> bool {
    causes(error).find_map(as_hyper).is_some_and(hyper::Error::is_incomplete_message)
}

/// The fault of a request without a response: a fault of the network, which is retried, or an invalid
/// request.
pub(super) fn request_fault(error: reqwest::Error) -> Error {
    let kind = error.is_timeout().then_some(io::ErrorKind::TimedOut);
    let error = error.without_url();
    if error.is_builder() || error.is_redirect() {
        return ErrorKind::Store(Failure::boxed(&error)).into();
    }
    let fault = network_fault(&error, kind);
    if error.is_connect() { with_proxy_hint(fault) } else { fault }
}

/// A fault while a body is received.
pub(super) fn response_fault(error: reqwest::Error) -> Error {
    let kind = error.is_timeout().then_some(io::ErrorKind::TimedOut);
    // The fault is temporary: the handshake succeeded, and the headers were received.
    temporary_fault(&error.without_url(), kind)
}

/// The text of `hyper`'s error if a proxy responds to the request for a tunnel with 407.
const NOT_AUTHORISED: &str = "proxy authorization required";

/// Appends a hint to the message of a connection fault if environment variables name a proxy. If the proxy
/// asks for a password, the fault is final.
pub(crate) fn with_proxy_hint(fault: Error) -> Error {
    match (fault.kind(), proxy_hint()) {
        (ErrorKind::Io(error), hint) if error.to_string().contains(NOT_AUTHORISED) => {
            ErrorKind::Denied(format!("{error}{hint}; {PROXY_PASSWORD}").into()).into()
        }
        (ErrorKind::Io(error), hint) if !hint.is_empty() => {
            io::Error::new(error.kind(), format!("{error}{hint}")).into()
        }
        _ => fault,
    }
}

/// Whether the next handshake would fail in the same way: the certificate is not trusted, or the two sides
/// support no common protocol.
fn is_final(error: &rustls::Error) -> bool {
    use rustls::{AlertDescription as Alert, Error as TlsError};

    match error {
        TlsError::InvalidCertificate(_) | TlsError::PeerIncompatible(_) | TlsError::NoApplicationProtocol => {
            true
        }
        TlsError::AlertReceived(alert) => matches!(
            alert,
            Alert::ProtocolVersion
                | Alert::HandshakeFailure
                | Alert::InsufficientSecurity
                | Alert::UnrecognisedName
                | Alert::NoApplicationProtocol
                | Alert::CertificateRequired
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_and_temporary_tls_faults_differ() {
        use rustls::{AlertDescription as Alert, CertificateError, Error as TlsError, PeerIncompatible};

        for (fault, ends) in [
            (TlsError::InvalidCertificate(CertificateError::UnknownIssuer), true),
            (
                TlsError::PeerIncompatible(PeerIncompatible::ServerSentHelloRetryRequestWithUnknownExtension),
                true,
            ),
            (TlsError::NoApplicationProtocol, true),
            (TlsError::InvalidMessage(rustls::InvalidMessage::InvalidContentType), true),
            (TlsError::AlertReceived(Alert::HandshakeFailure), true),
            (TlsError::AlertReceived(Alert::CertificateRequired), true),
            (TlsError::AlertReceived(Alert::InternalError), false),
            (TlsError::AlertReceived(Alert::CloseNotify), false),
            (TlsError::DecryptError, false),
        ] {
            let text = fault.to_string();
            let of_native = io::Error::new(io::ErrorKind::InvalidData, fault.clone());
            // The error is nested in the way in which `reqwest` wraps errors.
            let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, fault));
            for fault in [of_native, nested] {
                let error = network_fault(&fault, None);
                assert_eq!(matches!(error.kind(), ErrorKind::Store(_)), ends, "{text}");
                assert_eq!(matches!(error.kind(), ErrorKind::Io(_)), !ends, "{text}");
            }
        }
    }

    #[test]
    fn a_fault_has_the_kind_of_its_cause() {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        for (error, given, expected) in [
            (reset(), None, io::ErrorKind::ConnectionReset),
            (io::Error::other(reset()), None, io::ErrorKind::ConnectionReset),
            (io::Error::other("nothing"), None, io::ErrorKind::Other),
            (reset(), Some(io::ErrorKind::TimedOut), io::ErrorKind::TimedOut),
        ] {
            match network_fault(&error, given).kind() {
                ErrorKind::Io(found) => assert_eq!(found.kind(), expected),
                other => panic!("{other:?}"),
            }
        }
    }
}
