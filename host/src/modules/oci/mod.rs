//! Artefacts in OCI registries.
//!
//! A guest is an artefact with one layer, the wasm itself. The layer has one of two
//! media types: `application/wasm` of the CNCF's layout, or the older
//! `application/vnd.wasm.content.layer.v1+wasm`. A layer's digest is the SHA-256 of
//! the wasm, so the manifest identifies the module.

mod places;
mod problem;
mod registry;

use davit_core::api::OciSource;
use davit_core::digest::ModuleDigest;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::MOST_BYTES;
use super::pull_secret::Credentials;
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

/// An artefact in a registry, with access to it.
pub(super) struct Artefact<'a> {
    registry: Registry,
    source: &'a OciSource,
}

/// The layer of a module.
pub(super) struct Layer {
    /// The digest of the wasm.
    pub(super) digest: ModuleDigest,
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

    /// The module's layer, from the manifest.
    pub(super) async fn layer(&self) -> Result<Layer, OciProblem> {
        let bytes = self.manifest_bytes(self.version()).await?;
        only_module(Manifest::read(&bytes)?.layers)
    }

    /// Pulls the module. It has the digest of the layer.
    pub(super) async fn pull(&self, layer: &Layer) -> Result<Vec<u8>, OciProblem> {
        let path = format!("blobs/sha256:{}", layer.digest);
        let answer = self.registry.get(&path, "*/*").await?;
        let length = answer.content_length().unwrap_or_default();
        // A registry may send more than its manifest declares.
        let Some(wasm) = self.registry.body(answer, MOST_BYTES).await? else {
            return Err(OciProblem::TooLarge(length.max(MOST_BYTES as u64 + 1)));
        };
        check_content(&wasm, layer.digest)?;
        Ok(wasm)
    }

    /// Checks that the repository has the module, without pulling it.
    pub(super) async fn has(&self, layer: &Layer) -> Result<(), OciProblem> {
        let path = format!("blobs/sha256:{}", layer.digest);
        self.registry.head(&path, "*/*").await.map(|_| ())
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
fn only_module(layers: Vec<Descriptor>) -> Result<Layer, OciProblem> {
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
    let digest = read_digest("the layer's digest", &descriptor.digest)?;
    Ok(Layer { digest })
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
            assert_eq!(found.digest, ModuleDigest::of(b"wasm"));
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
