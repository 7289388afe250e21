//! Signs artefacts as `cosign sign --key` does.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use oci_client::client::ImageLayer;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::registry::Registry;

const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// A key pair.
pub(crate) struct Signer(KeyPair);

impl Signer {
    pub(crate) fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    /// The public key in PEM, as in `cosign.pub`.
    pub(crate) fn public(&self) -> String {
        self.0.public_key_pem()
    }

    /// The key in `module.verify`.
    pub(crate) fn key(&self) -> Value {
        json!({"key": {"pem": self.public()}})
    }

    /// A layer with a signature of a manifest.
    pub(crate) fn signature(&self, manifest: &str) -> ImageLayer {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": "registry.example.com/guest"},
                "image": {"docker-manifest-digest": manifest},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string().into_bytes();
        let code = BASE64_STANDARD.encode(self.0.sign(&payload).unwrap());
        let annotations = [("dev.cosignproject.cosign/signature".to_owned(), code)];
        let annotations = Some(annotations.into_iter().collect());
        ImageLayer::new(payload, SIMPLE_SIGNING.to_owned(), annotations)
    }
}

/// Pushes signatures to where those of the manifest belong: an artefact whose tag is
/// the digest of the manifest, in the same repository.
pub(crate) async fn push_signatures(
    registry: &Registry,
    repository: &str,
    manifest: &str,
    signatures: Vec<ImageLayer>,
) {
    let name = format!("{repository}:{}.sig", manifest.replace(':', "-"));
    let config = "application/vnd.oci.image.config.v1+json";
    registry.push_layers(&name, config, signatures).await;
}

/// Signs the artefact that has a tag.
pub(crate) async fn sign(registry: &Registry, repository: &str, tag: &str, signers: &[&Signer]) {
    let manifest = registry
        .manifest_digest(&format!("{repository}:{tag}"))
        .await;
    let signatures = signers.iter().map(|signer| signer.signature(&manifest));
    push_signatures(registry, repository, &manifest, signatures.collect()).await;
}
