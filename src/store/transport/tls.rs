//! TLS: what is trusted, and which of its faults end a request.

use super::origin::malformed;
use crate::store::location::Failure;
use crate::{Error, ErrorKind, Result};
use std::io;
use std::sync::{Arc, OnceLock};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::{self, ClientConfig};

/// What the system trusts, as it was at the first connection; `SSL_CERT_FILE` is heeded where the system
/// heeds it.
pub(super) fn tls() -> Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, rustls::Error>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        use rustls_platform_verifier::BuilderVerifierExt;
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_platform_verifier()?.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    });
    config.clone().map_err(|error| ErrorKind::Store(Failure::boxed(&error)).into())
}

/// A fault of a connection that may use TLS.
pub(super) fn tls_fault(error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) if is_final(error) => ErrorKind::Store(Failure::boxed(error)).into(),
        Some(rustls::Error::InvalidMessage(_)) => malformed("it does not speak TLS"),
        _ => error.into(),
    }
}

/// Whether the next handshake will fail as this one did: a certificate that is not trusted now, or two sides
/// that have nothing in common.
pub(in crate::store) fn is_final(error: &rustls::Error) -> bool {
    use rustls::{AlertDescription as Alert, Error as Fault};

    match error {
        Fault::InvalidCertificate(_) | Fault::PeerIncompatible(_) | Fault::NoApplicationProtocol => true,
        Fault::AlertReceived(alert) => matches!(
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
        use rustls::{AlertDescription as Alert, CertificateError, Error as Fault, PeerIncompatible};

        for (fault, ends) in [
            (Fault::InvalidCertificate(CertificateError::UnknownIssuer), true),
            (
                Fault::PeerIncompatible(PeerIncompatible::ServerSentHelloRetryRequestWithUnknownExtension),
                true,
            ),
            (Fault::NoApplicationProtocol, true),
            (Fault::AlertReceived(Alert::HandshakeFailure), true),
            (Fault::AlertReceived(Alert::CertificateRequired), true),
            (Fault::AlertReceived(Alert::InternalError), false),
            (Fault::AlertReceived(Alert::CloseNotify), false),
            (Fault::DecryptError, false),
        ] {
            let text = fault.to_string();
            let error = tls_fault(io::Error::new(io::ErrorKind::InvalidData, fault));
            assert_eq!(matches!(error.kind(), ErrorKind::Store(_)), ends, "{text}");
            assert_eq!(matches!(error.kind(), ErrorKind::Io(_)), !ends, "{text}");
        }
    }
}
