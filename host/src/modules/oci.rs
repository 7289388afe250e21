//! Artefacts in OCI registries.
//!
//! A guest is an artefact with one layer, the wasm itself. The layer has one of two
//! media types: `application/wasm` of the CNCF's layout, or the older
//! `application/vnd.wasm.content.layer.v1+wasm`. A layer's digest is the SHA-256 of
//! the wasm, so the manifest identifies the module.

use std::error::Error;
use std::time::Duration;

use davit_core::digest::ModuleDigest;
use futures::TryStreamExt as _;
use hyper::header::HeaderValue;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciEnvelope, OciErrorCode};
use oci_client::manifest::{OciDescriptor, OciManifest, WASM_LAYER_MEDIA_TYPE};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::MOST_BYTES;
use super::pull_secret::Credentials;

const WASM: &str = "application/wasm";
const AGENT: &str = concat!("davit/", env!("CARGO_PKG_VERSION"));

const CONNECT: Duration = Duration::from_secs(10);
/// The longest time between two parts of an answer.
const SILENCE: Duration = Duration::from_secs(30);

/// Why an artefact cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum OciProblem {
    /// No connection, or one that broke.
    #[error("the registry {registry} cannot be reached: {reason}")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The root cause.
        reason: String,
    },
    /// It took too long.
    #[error("the registry {0} did not answer in time")]
    NoAnswer(String),
    /// No access.
    #[error(
        "the registry {registry} denies {who}; some registries answer so if the artefact \
         does not exist{}",
        if *anonymous { ": a private artefact needs a pullSecret" } else { "" }
    )]
    Unauthorised {
        /// The registry.
        registry: String,
        /// The credentials.
        who: String,
        /// Whether there were none.
        anonymous: bool,
    },
    /// The registry's token service gave no token.
    #[error("the registry {registry} has no token for {who}; its token service answers: {answer}")]
    NoToken {
        /// The registry.
        registry: String,
        /// The credentials.
        who: String,
        /// The token service's answer.
        answer: String,
    },
    /// The token is malformed.
    #[error("the token of the registry {registry} cannot be used: {reason}")]
    OddToken {
        /// The registry.
        registry: String,
        /// The reason.
        reason: String,
    },
    /// The artefact does not exist.
    #[error("the registry {0} has no such artefact: check the repository and the tag")]
    NotFound(String),
    /// An unexpected answer.
    #[error("the registry {registry} answered: {answer}")]
    Refused {
        /// The registry.
        registry: String,
        /// The answer.
        answer: String,
    },
    /// An index.
    #[error(
        "the artefact is an index of several artefacts: name one of them by its own tag or digest"
    )]
    Index,
    /// No module.
    #[error(
        "the artefact holds no module: its layers are of type {}; the layer of a guest is of \
         type {WASM} or {WASM_LAYER_MEDIA_TYPE}",
        list(_0)
    )]
    NoWasm(Vec<String>),
    /// More than one module.
    #[error("the artefact has {0} layers of wasm: a guest is one component, in one layer")]
    Several(usize),
    /// The manifest is malformed.
    #[error("the artefact's manifest cannot be used: {0}")]
    Manifest(String),
    /// It is larger than the largest module.
    #[error("the module has {0} bytes, and the host loads modules of up to {MOST_BYTES} bytes")]
    TooLarge(u64),
    /// The content does not have its digest.
    #[error("the content that the registry sent does not match its digest: {0}")]
    Torn(String),
    /// The certificates of `caCert` are malformed.
    #[error("the certificates of caCert cannot be used: {0}")]
    Certificates(String),
    /// TLS is not possible without certificates.
    #[error(
        "TLS cannot be used: {0}; set caCert, or install the system's certificates \
         (ca-certificates)"
    )]
    Tls(String),
}

/// An artefact in a registry, with a client for it.
pub(super) struct Artefact<'a> {
    client: Client,
    reference: &'a Reference,
    auth: RegistryAuth,
}

/// The layer of a module.
pub(super) struct Layer {
    descriptor: OciDescriptor,
    /// The digest of the wasm.
    pub(super) digest: ModuleDigest,
}

impl Layer {
    /// The layer of the module with this digest, in any artefact.
    pub(super) fn of(digest: ModuleDigest) -> Self {
        let descriptor = OciDescriptor {
            digest: format!("sha256:{digest}"),
            ..OciDescriptor::default()
        };
        Self { descriptor, digest }
    }
}

impl<'a> Artefact<'a> {
    /// Creates the client; sends nothing yet.
    pub(super) fn new(
        reference: &'a Reference,
        insecure: bool,
        ca_cert: Option<Vec<u8>>,
        credentials: Option<Credentials>,
    ) -> Result<Self, OciProblem> {
        // Fails if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let extra_root_certificates = match ca_cert {
            None => Vec::new(),
            Some(pem) => certificates(&pem).map_err(OciProblem::Certificates)?,
        };
        let config = ClientConfig {
            protocol: if insecure {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            extra_root_certificates,
            platform_resolver: None,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(SILENCE),
            user_agent: AGENT,
            ..ClientConfig::default()
        };
        let client =
            Client::try_from(config).map_err(|error| OciProblem::Tls(root_cause(&error)))?;
        let auth = credentials.map_or(RegistryAuth::Anonymous, |credentials| {
            RegistryAuth::Basic(credentials.username, credentials.password)
        });
        Ok(Self {
            client,
            reference,
            auth,
        })
    }

    /// The digest of the manifest: as long as it is the same, so is the module.
    pub(super) async fn manifest_digest(&self) -> Result<String, OciProblem> {
        self.log_in().await?;
        let asked = self
            .client
            .fetch_manifest_digest(self.reference, &self.auth);
        asked.await.map_err(|error| self.problem(error))
    }

    /// The module's layer, from the manifest.
    pub(super) async fn layer(&self) -> Result<Layer, OciProblem> {
        self.log_in().await?;
        let asked = self.client.pull_manifest(self.reference, &self.auth);
        let manifest = match asked.await.map_err(|error| self.problem(error))? {
            (OciManifest::Image(manifest), _) => manifest,
            (OciManifest::ImageIndex(_), _) => return Err(OciProblem::Index),
        };
        only_module(manifest.layers)
    }

    /// Pulls the module. It has the digest of the layer.
    pub(super) async fn pull(&self, layer: &Layer) -> Result<Vec<u8>, OciProblem> {
        let asked = self
            .client
            .pull_blob_stream(self.reference, &layer.descriptor);
        let mut stream = asked.await.map_err(|error| self.problem(error))?;
        let mut wasm = Vec::new();
        while let Some(piece) = stream
            .try_next()
            .await
            .map_err(|error| self.broken(&error))?
        {
            wasm.extend_from_slice(&piece);
            // A registry may send more than its manifest declares.
            if wasm.len() > MOST_BYTES {
                return Err(OciProblem::TooLarge(wasm.len() as u64));
            }
        }
        Ok(wasm)
    }

    /// Checks that the repository has the module, without pulling it.
    pub(super) async fn has(&self, layer: &Layer) -> Result<(), OciProblem> {
        let asked = self
            .client
            .blob_exists(self.reference, &layer.descriptor.digest);
        if asked.await.map_err(|error| self.problem(error))? {
            Ok(())
        } else {
            Err(OciProblem::NotFound(self.registry()))
        }
    }

    /// Requests a token if the registry requires one. The client would do so itself,
    /// but without the reason of a failure, and it panics at a token that an HTTP
    /// header cannot have.
    async fn log_in(&self) -> Result<(), OciProblem> {
        let asked = self
            .client
            .auth(self.reference, &self.auth, RegistryOperation::Pull);
        let token = asked.await.map_err(|error| self.problem(error))?;
        let is_header = |token: String| HeaderValue::try_from(token).is_ok();
        if token.is_none_or(is_header) {
            Ok(())
        } else {
            Err(self.odd_token("it has characters that an HTTP header cannot have"))
        }
    }

    fn problem(&self, error: OciDistributionError) -> OciProblem {
        let registry = self.registry();
        match error {
            OciDistributionError::RequestError(error) if error.is_timeout() => {
                OciProblem::NoAnswer(registry)
            }
            OciDistributionError::RequestError(error) => OciProblem::Unreachable {
                registry,
                reason: root_cause(&error),
            },
            OciDistributionError::AuthenticationFailure(answer) => self.no_token(&answer),
            OciDistributionError::RegistryTokenDecodeError(reason) => self.odd_token(&reason),
            OciDistributionError::UnauthorizedError { .. }
            | OciDistributionError::ServerError { code: 403, .. } => self.unauthorised(),
            OciDistributionError::ServerError { code: 404, .. } => OciProblem::NotFound(registry),
            OciDistributionError::ServerError { code, message, .. } => OciProblem::Refused {
                registry,
                answer: format!("{code} {}", shortened(&message)),
            },
            OciDistributionError::RegistryError { envelope, .. } => self.refused(&envelope),
            OciDistributionError::DigestError(error) => OciProblem::Torn(error.to_string()),
            OciDistributionError::IoError(error) => self.broken(&error),
            other => OciProblem::Manifest(shortened(&other.to_string())),
        }
    }

    /// The status of the answer is not known here: only its text distinguishes a denial
    /// from an overloaded service.
    fn no_token(&self, answer: &str) -> OciProblem {
        if let Ok(envelope) = serde_json::from_str(answer) {
            return self.refused(&envelope);
        }
        OciProblem::NoToken {
            registry: self.registry(),
            who: self.who(),
            answer: match shortened(answer) {
                empty if empty.is_empty() => "nothing".to_owned(),
                answer => answer,
            },
        }
    }

    fn odd_token(&self, reason: &str) -> OciProblem {
        OciProblem::OddToken {
            registry: self.registry(),
            reason: shortened(reason),
        }
    }

    fn refused(&self, envelope: &OciEnvelope) -> OciProblem {
        let code = envelope.errors.first().map(|error| &error.code);
        match code {
            Some(OciErrorCode::Unauthorized | OciErrorCode::Denied) => self.unauthorised(),
            Some(
                OciErrorCode::ManifestUnknown
                | OciErrorCode::NameUnknown
                | OciErrorCode::NotFound
                | OciErrorCode::BlobUnknown,
            ) => OciProblem::NotFound(self.registry()),
            _ => OciProblem::Refused {
                registry: self.registry(),
                answer: shortened(&envelope.to_string()),
            },
        }
    }

    /// A stream that ended early, or with another digest.
    fn broken(&self, error: &std::io::Error) -> OciProblem {
        let digest = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<oci_client::errors::DigestError>());
        match digest {
            Some(error) => OciProblem::Torn(error.to_string()),
            None => OciProblem::Unreachable {
                registry: self.registry(),
                reason: root_cause(error),
            },
        }
    }

    fn unauthorised(&self) -> OciProblem {
        OciProblem::Unauthorised {
            registry: self.registry(),
            who: self.who(),
            anonymous: !matches!(self.auth, RegistryAuth::Basic(..)),
        }
    }

    fn who(&self) -> String {
        match &self.auth {
            RegistryAuth::Basic(username, _) => format!("the user {username}"),
            RegistryAuth::Anonymous | RegistryAuth::Bearer(_) => "anonymous access".to_owned(),
        }
    }

    fn registry(&self) -> String {
        self.reference.registry().to_owned()
    }
}

/// The certificates in a PEM file.
fn certificates(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem)
        .map(|certificate| {
            certificate.map(|der| Certificate {
                encoding: CertificateEncoding::Der,
                data: der.to_vec(),
            })
        })
        .collect();
    match found {
        Ok(found) if found.is_empty() => Err("the file has no certificate".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(error.to_string()),
    }
}

/// The only layer of wasm. Other layers, such as a licence, are ignored.
fn only_module(layers: Vec<OciDescriptor>) -> Result<Layer, OciProblem> {
    let is_wasm = |layer: &OciDescriptor| {
        let media_type = layer.media_type.as_str();
        media_type == WASM || media_type == WASM_LAYER_MEDIA_TYPE
    };
    let (wasm, rest): (Vec<_>, Vec<_>) = layers.into_iter().partition(is_wasm);
    let several = wasm.len();
    let mut wasm = wasm.into_iter();
    let descriptor = match (wasm.next(), wasm.next()) {
        (Some(only), None) => only,
        (Some(_), Some(_)) => return Err(OciProblem::Several(several)),
        (None, _) => {
            let types = rest.into_iter().map(|layer| shortened(&layer.media_type));
            return Err(OciProblem::NoWasm(types.collect()));
        }
    };
    let size = u64::try_from(descriptor.size)
        .map_err(|_| OciProblem::Manifest("the layer's size is negative".to_owned()))?;
    if size > MOST_BYTES as u64 {
        return Err(OciProblem::TooLarge(size));
    }
    let digest = descriptor.digest.parse().map_err(|error| {
        let digest = shortened(&descriptor.digest);
        OciProblem::Manifest(format!("the layer's digest is {digest}: {error}"))
    })?;
    Ok(Layer { descriptor, digest })
}

/// The root cause of an error: "connection refused" without the outer errors.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A text from a registry, on one line and shortened.
fn shortened(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(300).collect()
}

fn list(types: &[String]) -> String {
    if types.is_empty() {
        return "none".to_owned();
    }
    types.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(media_type: &str, size: i64) -> OciDescriptor {
        OciDescriptor {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{}", ModuleDigest::of(b"wasm")),
            size,
            ..OciDescriptor::default()
        }
    }

    fn problem(layers: Vec<OciDescriptor>) -> String {
        only_module(layers).err().unwrap().to_string()
    }

    #[test]
    fn the_one_layer_of_wasm_is_the_module() {
        for media_type in [WASM, WASM_LAYER_MEDIA_TYPE] {
            let layers = vec![layer("text/plain", 7), layer(media_type, 4)];
            let found = only_module(layers).unwrap();
            assert_eq!(found.digest, ModuleDigest::of(b"wasm"));
            assert_eq!(found.descriptor.media_type, media_type);
        }
    }

    #[test]
    fn a_layer_that_is_not_a_module_is_refused_before_it_is_pulled() {
        let tar = problem(vec![layer(
            "application/vnd.oci.image.layer.v1.tar+gzip",
            4,
        )]);
        assert!(
            tar.contains("type application/vnd.oci.image.layer.v1.tar+gzip;"),
            "{tar}"
        );
        assert!(problem(Vec::new()).contains("type none;"));
        let two = problem(vec![layer(WASM, 4), layer(WASM_LAYER_MEDIA_TYPE, 4)]);
        assert!(
            two.starts_with("the artefact has 2 layers of wasm"),
            "{two}"
        );
        let large = problem(vec![layer(WASM, 1 << 40)]);
        assert!(
            large.starts_with("the module has 1099511627776 bytes"),
            "{large}"
        );
        assert!(problem(vec![layer(WASM, -1)]).contains("negative"));
        let mut other = layer(WASM, 4);
        other.digest = "sha512:00".to_owned();
        assert!(problem(vec![other]).contains("the layer's digest is sha512:00"));
    }
}
