//! The TLS settings of the native client.

use crate::location::Failure;
use crate::{ErrorKind, Result};
use std::sync::{Arc, OnceLock};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::{self, ClientConfig};

/// The settings of all connections. They trust what the system trusts at the first connection;
/// `SSL_CERT_FILE` counts where the system reads it.
pub(super) fn client_config() -> Result<Arc<ClientConfig>> {
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
