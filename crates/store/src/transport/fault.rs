//! What faults of connections mean.
//!
//! `reqwest` does not say what went wrong: the errors of `hyper` and of `rustls` among the causes of its
//! errors do. So `Cargo.toml` pins its version, and tests over real connections notice if they are not found
//! there (`what_could_be_read_in_two_ways_is_not_read`, `a_failed_tls_handshake_is_not_retried` and
//! `a_connection_closed_while_idle_is_no_fault` in `tests/suite/store/transport.rs`).

use crate::environment::{certificate_hint, proxy_hint};
use crate::location::Failure;
use crate::{Error, ErrorKind, Result};
use http::header::{self, HeaderMap, HeaderValue};
use std::error::Error as StdError;
use std::{io, iter};

/// What to do for a proxy that asks for a password.
pub(crate) const PROXY_PASSWORD: &str = "put the user and the password into the URL of the proxy";

/// A response that breaks the rules of HTTP: trying again would not help.
fn malformed(why: &str) -> Error {
    ErrorKind::Store(format!("the server's response cannot be read: {why}").into()).into()
}

/// Refuses a body whose end or bytes two readers could see differently (RFC 9112, 6.3): `hyper` decodes no
/// transfer coding but `chunked`, and reads the others as if they were the bytes of the object. It accepts
/// the length `5, 5`.
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

/// A fault of the network, with the given kind or else with that of the I/O error that caused it.
///
/// It is [`ErrorKind::Io`], which may pass, unless TLS says that the next connection will fail in the same
/// way.
pub(crate) fn network_fault(error: &(dyn StdError + 'static), kind: Option<io::ErrorKind>) -> Error {
    if let Some(unreadable) = causes(error).find_map(of_hyper).filter(|error| error.is_parse()) {
        return malformed(&unreadable.to_string());
    }
    match causes(error).find_map(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_)) => malformed("it is not valid TLS"),
        Some(rustls::Error::InvalidCertificate(_)) => {
            ErrorKind::Store(format!("{}{}", Failure::new(error), certificate_hint()).into()).into()
        }
        Some(tls) if is_final(tls) => ErrorKind::Store(Failure::boxed(error)).into(),
        _ => passing_fault(error, kind),
    }
}

fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn of_hyper<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a hyper::Error> {
    error.downcast_ref()
}

/// An error and all its causes. An [`io::Error`] that wraps another error calls that error's source its own,
/// and passes over the error itself: here it follows.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error| cause(*error))
}

/// A fault that may pass, whatever TLS says of it: [`ErrorKind::Io`] with the given kind, or else with that
/// of the I/O error that caused it.
fn passing_fault(error: &(dyn StdError + 'static), kind: Option<io::ErrorKind>) -> Error {
    // The innermost one that says more than that there is another error within.
    let kinds = causes(error).filter_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    let cause = kinds.filter(|kind| *kind != io::ErrorKind::Other).last();
    let kind = kind.or(cause).unwrap_or(io::ErrorKind::Other);
    io::Error::new(kind, Failure::new(error)).into()
}

/// Whether a connection ended before the whole head of a response had come.
pub(super) fn is_unanswered(error: &reqwest::Error) -> bool {
    causes(error).find_map(of_hyper).is_some_and(hyper::Error::is_incomplete_message)
}

/// The fault of a request that got no response: one of the network, which may pass, or of a request that
/// cannot be made.
pub(super) fn request_fault(error: reqwest::Error) -> Error {
    let kind = error.is_timeout().then_some(io::ErrorKind::TimedOut);
    let error = error.without_url();
    if error.is_builder() || error.is_redirect() {
        return ErrorKind::Store(Failure::boxed(&error)).into();
    }
    let fault = network_fault(&error, kind);
    if error.is_connect() { with_proxy_hint(fault) } else { fault }
}

/// A fault within a body.
pub(super) fn response_fault(error: reqwest::Error) -> Error {
    let kind = error.is_timeout().then_some(io::ErrorKind::TimedOut);
    // It may pass: the handshake has succeeded, and so has the response's head.
    passing_fault(&error.without_url(), kind)
}

/// What `hyper` says of a proxy that answers the request for a tunnel with 407.
const NOT_AUTHORISED: &str = "proxy authorization required";

/// Adds to a fault of a connection which variables name a proxy, if any do. One that asks for a password does
/// so again.
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

/// Whether the next handshake will fail as this one did: a certificate that is not trusted now, or two sides
/// that have nothing in common.
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
    fn what_fails_again_is_told_from_what_may_pass() {
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
            // As `reqwest` wraps it.
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
