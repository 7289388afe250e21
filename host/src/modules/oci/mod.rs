//! Artefacts in OCI registries.
//!
//! A guest is an artefact with one layer, the wasm itself. The layer has one of two
//! media types: `application/wasm` of the CNCF's layout, or the older
//! `application/vnd.wasm.content.layer.v1+wasm`. A layer's digest is the SHA-256 of
//! the wasm, so the manifest identifies the module.

mod places;
mod problem;
mod registry;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use davit_core::api::OciSource;
use davit_core::digest::ModuleDigest;
use davit_core::load::ArtefactManifest;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::MOST_BYTES;
use super::pull_secret::Credentials;
use super::signature::Signature;
pub use problem::OciProblem;
use problem::{FORMER_WASM, WASM, shortened};
use registry::Registry;

/// The largest manifest, in bytes: registries accept no larger one.
const MOST_MANIFEST_BYTES: usize = 4 << 20;

/// The media types of manifests. An index is requested too, so that the error can say
/// so.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// The header with a manifest's digest.
const DIGEST: &str = "Docker-Content-Digest";

/// The media type of a signature's payload, and the annotation with the signature.
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// The most signatures of one artefact, and the largest payload in bytes.
const MOST_SIGNATURES: usize = 100;
const MOST_PAYLOAD_BYTES: usize = 64 << 10;

/// An artefact in a registry, with access to it.
pub(super) struct Artefact<'a> {
    registry: Registry,
    source: &'a OciSource,
}

/// A manifest of an artefact.
struct Manifest {
    layers: Vec<Descriptor>,
}

/// A layer in a manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: i64,
    annotations: Option<BTreeMap<String, String>>,
}

impl<'a> Artefact<'a> {
    /// Gains access to the repository of an artefact.
    pub(super) async fn open(
        source: &'a OciSource,
        ca_cert: Option<Vec<u8>>,
        credentials: Option<Credentials>,
    ) -> Result<Self, OciProblem> {
        let mut registry = Registry::new(source, ca_cert.as_deref(), credentials)?;
        registry.log_in().await?;
        Ok(Self { registry, source })
    }

    /// The digest of the manifest: as long as it is the same, so is the module.
    pub(super) async fn manifest_digest(&self) -> Result<String, OciProblem> {
        let path = format!("manifests/{}", self.version());
        let headers = self.registry.head(&path, MANIFESTS).await?;
        match headers.get(DIGEST).and_then(|digest| digest.to_str().ok()) {
            Some(digest) if !digest.is_empty() => Ok(shortened(digest)),
            _ => Ok(digest_of(&self.manifest_bytes(self.version()).await?)),
        }
    }

    /// The manifest, and the module that it names.
    pub(super) async fn manifest(&self) -> Result<ArtefactManifest, OciProblem> {
        let bytes = self.manifest_bytes(self.version()).await?;
        Ok(ArtefactManifest {
            module: only_module(Manifest::read(&bytes)?.layers)?,
            digest: digest_of(&bytes),
        })
    }

    /// Pulls the module with this digest.
    pub(super) async fn pull(&self, module: ModuleDigest) -> Result<Vec<u8>, OciProblem> {
        let wasm = self.blob(module, MOST_BYTES).await?;
        // A registry may send more than its manifest declares.
        wasm.ok_or(OciProblem::TooLarge(MOST_BYTES as u64 + 1))
    }

    /// Checks that the repository has the module, without pulling it.
    pub(super) async fn has(&self, module: ModuleDigest) -> Result<(), OciProblem> {
        let path = format!("blobs/sha256:{module}");
        self.registry.head(&path, "*/*").await.map(|_| ())
    }

    /// The signatures of the artefact with this manifest. cosign stores them as the
    /// layers of another artefact in the repository, whose tag is the manifest's digest.
    pub(super) async fn signatures(&self, manifest: &str) -> Result<Vec<Signature>, OciProblem> {
        let tag = format!("{}.sig", manifest.replace(':', "-"));
        let bytes = match self.manifest_bytes(&tag).await {
            Err(OciProblem::NotFound(_)) => return Ok(Vec::new()),
            answer => answer?,
        };
        let layers = Manifest::read(&bytes).map_err(|problem| match problem {
            OciProblem::Manifest(reason) => OciProblem::Signatures(reason),
            other => other,
        });
        let layers = layers?.layers.into_iter();
        let layers = layers.filter(|layer| layer.media_type == SIMPLE_SIGNING);
        let layers: Vec<Descriptor> = layers.collect();
        if layers.len() > MOST_SIGNATURES {
            let reason = format!("there are more than {MOST_SIGNATURES}");
            return Err(OciProblem::Signatures(reason));
        }
        // Signatures by several keys often have the same payload.
        let mut payloads = BTreeMap::new();
        let mut signatures = Vec::new();
        for layer in layers {
            let mut annotations = layer.annotations.unwrap_or_default();
            let Some(code) = annotations.remove(SIGNATURE) else {
                continue;
            };
            let digest = read_digest("the layer's digest", &layer.digest)?;
            if let Entry::Vacant(place) = payloads.entry(digest) {
                let payload = self.blob(digest, MOST_PAYLOAD_BYTES).await?;
                place.insert(payload.ok_or_else(|| {
                    let reason = format!("a payload has more than {MOST_PAYLOAD_BYTES} bytes");
                    OciProblem::Signatures(reason)
                })?);
            }
            let payload = payloads.get(&digest).cloned().unwrap_or_default();
            signatures.push(Signature { payload, code });
        }
        Ok(signatures)
    }

    /// Pulls a blob, which has this digest; none if it has more than `most` bytes.
    async fn blob(&self, digest: ModuleDigest, most: usize) -> Result<Option<Vec<u8>>, OciProblem> {
        let path = format!("blobs/sha256:{digest}");
        let answer = self.registry.get(&path, "*/*").await?;
        let Some(content) = self.registry.body(answer, most).await? else {
            return Ok(None);
        };
        check_content(&content, digest)?;
        Ok(Some(content))
    }

    /// The manifest of a tag or digest, as the registry sent it. That of a digest has
    /// this digest.
    async fn manifest_bytes(&self, version: &str) -> Result<Vec<u8>, OciProblem> {
        let path = format!("manifests/{version}");
        let answer = self.registry.get(&path, MANIFESTS).await?;
        let bytes = self.registry.body(answer, MOST_MANIFEST_BYTES).await?;
        let bytes = bytes.ok_or_else(|| {
            OciProblem::Manifest(format!("it has more than {MOST_MANIFEST_BYTES} bytes"))
        })?;
        // A tag has no colon.
        if version.contains(':') {
            check_content(&bytes, read_digest("the reference's digest", version)?)?;
        }
        Ok(bytes)
    }

    /// The tag or digest of the reference.
    fn version(&self) -> &str {
        let reference = &self.source.reference.0;
        let version = reference.digest().or(reference.tag());
        version.unwrap_or("latest")
    }
}

impl Manifest {
    fn read(bytes: &[u8]) -> Result<Self, OciProblem> {
        #[derive(Deserialize)]
        struct Fields {
            layers: Option<Vec<Descriptor>>,
            manifests: Option<IgnoredAny>,
        }
        let malformed = |reason: &str| OciProblem::Manifest(shortened(reason));
        let fields: Fields =
            serde_json::from_slice(bytes).map_err(|error| malformed(&error.to_string()))?;
        match fields {
            Fields {
                manifests: Some(_), ..
            } => Err(OciProblem::Index),
            Fields {
                layers: Some(layers),
                ..
            } => Ok(Self { layers }),
            Fields { .. } => Err(malformed("it has no layers")),
        }
    }
}

/// The only layer of wasm. Other layers, such as a licence, are ignored.
fn only_module(layers: Vec<Descriptor>) -> Result<ModuleDigest, OciProblem> {
    let is_wasm = |layer: &Descriptor| {
        let media_type = layer.media_type.as_str();
        media_type == WASM || media_type == FORMER_WASM
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
    read_digest("the layer's digest", &descriptor.digest)
}

fn read_digest(purpose: &str, text: &str) -> Result<ModuleDigest, OciProblem> {
    text.parse().map_err(|error| {
        let text = shortened(text);
        OciProblem::Manifest(format!("{purpose} is {text}: {error}"))
    })
}

fn digest_of(content: &[u8]) -> String {
    format!("sha256:{}", ModuleDigest::of(content))
}

fn check_content(content: &[u8], digest: ModuleDigest) -> Result<(), OciProblem> {
    let found = ModuleDigest::of(content);
    if found == digest {
        return Ok(());
    }
    let reason = format!("expected sha256:{digest}, found sha256:{found}");
    Err(OciProblem::Torn(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(media_type: &str, size: i64) -> Descriptor {
        Descriptor {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{}", ModuleDigest::of(b"wasm")),
            size,
            annotations: None,
        }
    }

    fn problem(layers: Vec<Descriptor>) -> String {
        only_module(layers).err().unwrap().to_string()
    }

    #[test]
    fn the_one_layer_of_wasm_is_the_module() {
        for media_type in [WASM, FORMER_WASM] {
            let layers = vec![layer("text/plain", 7), layer(media_type, 4)];
            let found = only_module(layers).unwrap();
            assert_eq!(found, ModuleDigest::of(b"wasm"));
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
        let two = problem(vec![layer(WASM, 4), layer(FORMER_WASM, 4)]);
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
