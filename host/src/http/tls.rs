//! The certificate of the host's port, in files that are read again when they change.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;

/// How often the files are read. A mounted Secret changes by a link, which a watch of the
/// files would miss.
const PERIOD: Duration = Duration::from_secs(10);

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{path} cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} holds no {form} in PEM: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        form: &'static str,
        /// The reason.
        reason: String,
    },
    /// The certificate and the key do not fit, or the key's kind is not supported.
    #[error(
        "the certificate {certificate} cannot be used with the key {key}: {reason}",
        certificate = files.certificate.display(),
        key = files.key.display()
    )]
    Refused {
        /// The files.
        files: CertificateFiles,
        /// The reason.
        reason: rustls::Error,
    },
}

/// Accepts TLS connections with the certificate of these files. A task reads them again:
/// while they cannot be used, the former certificate stays.
pub fn acceptor(files: CertificateFiles) -> Result<TlsAcceptor, CertificateError> {
    let provider = Arc::new(default_provider());
    let (bytes, key) = read(&files, &provider)?;
    let current = Arc::new(Current(RwLock::new(Arc::new(key))));
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|reason| CertificateError::Refused {
            files: files.clone(),
            reason,
        })?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
    tokio::spawn(follow(files, bytes, provider, current));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn follow(
    files: CertificateFiles,
    mut last: Vec<u8>,
    provider: Arc<CryptoProvider>,
    current: Arc<Current>,
) {
    let mut look = interval(PERIOD);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = None;
    loop {
        look.tick().await;
        match read(&files, &provider) {
            Ok((bytes, _)) if bytes == last => failed = None,
            Ok((bytes, key)) => {
                *current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                last = bytes;
                failed = None;
                tracing::info!(file = %files.certificate.display(), "the certificate is another one");
            }
            Err(error) => {
                // The two files are not replaced in the same moment.
                let error = davit_cluster::api::chain(&error);
                if failed.as_ref() != Some(&error) {
                    tracing::warn!(error, "the former certificate is still in use");
                }
                failed = Some(error);
            }
        }
    }
}

/// The content of both files, and what it means.
fn read(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<(Vec<u8>, CertifiedKey), CertificateError> {
    let (certificate, key) = (content(&files.certificate)?, content(&files.key)?);
    let malformed = |path: &Path, form, reason: String| CertificateError::Malformed {
        path: path.to_owned(),
        form,
        reason,
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let wrong = |reason: String| malformed(&files.certificate, "certificate", reason);
    let chain = chain.map_err(|error| wrong(error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong("it has no CERTIFICATE section".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| malformed(&files.key, "private key", error.to_string()))?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(|reason| {
        CertificateError::Refused {
            files: files.clone(),
            reason,
        }
    })?;
    let mut bytes = certificate;
    bytes.extend(key);
    Ok((bytes, certified))
}

fn content(path: &Path) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(path).map_err(|source| CertificateError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// The certificate of the next connection.
struct Current(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }
}
