//! A certificate of this server's own. Go clients send no token without TLS.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The name of HTTP/2 in a TLS handshake.
pub(super) const HTTP2: &[u8] = b"h2";

/// A key that was made for this process, and a certificate that it signs
/// itself.
#[derive(Clone)]
pub struct Identity {
    certificate: String,
    pub(super) acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// Why no certificate can be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It cannot be made.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// It cannot be used.
    #[error("cannot use the certificate: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

impl Identity {
    /// An identity for a server under these names and addresses.
    pub fn new(names: Vec<String>) -> Result<Self, IdentityError> {
        let made = rcgen::generate_simple_self_signed(names)?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|why| tokio_rustls::rustls::Error::General(why.to_owned()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(Identity {
            certificate: made.cert.pem(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// The certificate that clients should trust, in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }
}
