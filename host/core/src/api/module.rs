//! The source of a guest's module.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::digest::ModuleDigest;
use crate::untrusted;
use oci_spec::distribution::Reference;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::reference::{KeyReference, SecretReference};
use super::strict;
use super::verify::VerifyConfig;

/// The source of a module, its digest, and the signatures that it must have.
///
/// Exactly one of `builtin`, `file`, `configMap` and `oci` is set:
/// `{builtin: podgc}`, `{oci: {reference: …}, digest: "sha256:…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ModuleFields", into = "ModuleFields")]
#[schemars(with = "ModuleFields")]
pub struct ModuleConfig {
    /// The source.
    pub source: ModuleSource,
    /// The SHA-256 that the module must have; any if none.
    pub digest: Option<ModuleDigest>,
    /// The signatures that its artefact must have; only with an OCI source.
    pub verify: Option<VerifyConfig>,
}

/// Where a module comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleSource {
    /// A guest that is shipped with Davit.
    Builtin(String),
    /// A file.
    File(PathBuf),
    /// A key under `binaryData` of a `ConfigMap`.
    ConfigMap(KeyReference),
    /// An artefact in an OCI registry.
    Oci(OciSource),
}

/// An artefact in an OCI registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OciSource {
    /// Registry, repository, and tag or digest, such as
    /// `registry.example.com/guests/podgc:1.0`.
    pub reference: OciReference,
    /// The Secret with the credentials, of type `kubernetes.io/dockerconfigjson`,
    /// `kubernetes.io/dockercfg` or `kubernetes.io/basic-auth`. Without it, the host
    /// pulls anonymously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<SecretReference>,
    /// Pull over plain HTTP. Anybody on the network path can read the credentials and
    /// replace the module.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Certificates (PEM) of authorities that may sign the registry's certificate, in
    /// addition to those that the system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<CaCert>,
}

/// The source of certificates of authorities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub enum CaCert {
    /// A file in Davit's own file system.
    File(PathBuf),
    /// A key under `data` of a `ConfigMap`.
    ConfigMap(KeyReference),
}

/// `registry/repository:tag` or `registry/repository@sha256:…`. The registry defaults to
/// Docker Hub, the tag to `latest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(with = "String")]
pub struct OciReference(pub Reference);

impl ModuleConfig {
    /// How often the host checks the source for another module. None if the source
    /// cannot change: a registry holds a pinned module beside the tagged one, and a
    /// digest names one artefact. Other sources hold one module, which may be replaced
    /// by another than the pinned one.
    #[must_use]
    pub fn check_interval(&self) -> Option<Duration> {
        match &self.source {
            ModuleSource::Builtin(_) | ModuleSource::File(_) => Some(Duration::from_secs(2)),
            ModuleSource::ConfigMap(_) => Some(Duration::from_secs(10)),
            ModuleSource::Oci(_) if self.digest.is_some() => None,
            ModuleSource::Oci(oci) if oci.reference.0.digest().is_some() => None,
            // Registries limit requests: Docker Hub allows 100 anonymous pulls in six
            // hours.
            ModuleSource::Oci(_) => Some(Duration::from_secs(300)),
        }
    }
}

impl From<ModuleSource> for ModuleConfig {
    fn from(source: ModuleSource) -> Self {
        Self {
            source,
            digest: None,
            verify: None,
        }
    }
}

impl ModuleSource {
    /// Whether the guest ships with Davit.
    #[must_use]
    pub fn is_builtin(&self) -> bool {
        matches!(self, Self::Builtin(_))
    }
}

impl fmt::Display for ModuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "the built-in guest {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::ConfigMap(key) => {
                let KeyReference {
                    namespace,
                    name,
                    key,
                } = key;
                write!(f, "the key {key} of the ConfigMap {namespace}/{name}")
            }
            Self::Oci(oci) => write!(f, "the artefact {}", oci.reference),
        }
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const REFERENCE: &str = "a reference such as registry.example.com/guests/podgc:1.0";

impl FromStr for OciReference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let reference = text
            .parse()
            .map_err(|error| format!("{}: {error}", strict::expected_text(REFERENCE, text)))?;
        Ok(Self(reference))
    }
}

impl<'de> Deserialize<'de> for OciReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        strict::text(deserializer, REFERENCE)
    }
}

impl From<OciReference> for String {
    fn from(reference: OciReference) -> Self {
        reference.to_string()
    }
}

/// The serialized form of [`ModuleConfig`]: a plain map, as a structural schema needs it.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.builtin), has(self.file), has(self.configMap), has(self.oci)]\
        .exists_one(given, given)",
    "message": "set exactly one source: builtin, file, configMap or oci",
}, {
    "rule": "!has(self.verify) || has(self.oci)",
    "message": "verify needs the source oci: only artefacts in a registry have signatures",
}]))]
struct ModuleFields {
    /// The name of a guest that is shipped with Davit.
    #[serde(skip_serializing_if = "Option::is_none")]
    builtin: Option<String>,
    /// A file in Davit's own file system. The host checks it every 2 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// A key under `binaryData` of a `ConfigMap`. The host checks it every 10 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_map: Option<KeyReference>,
    /// An artefact in an OCI registry. The host checks a tag every 5 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    oci: Option<OciSource>,
    /// The SHA-256 that the module must have, such as `sha256:9f86d0…`. If absent, any
    /// module is accepted.
    #[serde(
        deserialize_with = "digest",
        serialize_with = "written_digest",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>", extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
    digest: Option<ModuleDigest>,
    /// The signatures that the artefact must have; only with `oci`. If one is missing,
    /// the module is not loaded, and what runs continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<VerifyConfig>,
}

fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ModuleDigest>, D::Error> {
    const DIGEST: &str = "sha256: and 64 hexadecimal digits in lower case";
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let digest = text.parse();
    let digest = digest.map_err(|_| D::Error::custom(strict::expected_text(DIGEST, &text)));
    digest.map(Some)
}

#[allow(clippy::ref_option, reason = "serde asks for this form")]
fn written_digest<S: Serializer>(
    digest: &Option<ModuleDigest>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let written = digest.map(|digest| format!("sha256:{digest}"));
    written.serialize(serializer)
}

impl TryFrom<ModuleFields> for ModuleConfig {
    type Error = String;

    fn try_from(fields: ModuleFields) -> Result<Self, String> {
        let sources = [
            fields.builtin.map(ModuleSource::Builtin),
            fields.file.map(ModuleSource::File),
            fields.config_map.map(ModuleSource::ConfigMap),
            fields.oci.map(ModuleSource::Oci),
        ];
        let mut given = sources.into_iter().flatten();
        let source = given
            .next()
            .ok_or("expected one of builtin, file, configMap, oci, found none")?;
        if let Some(second) = given.next() {
            return Err(format!(
                "expected one of builtin, file, configMap, oci, found two: {} and {}",
                described(&source),
                described(&second)
            ));
        }
        if let Some(verify) = &fields.verify {
            if !matches!(source, ModuleSource::Oci(_)) {
                return Err(format!(
                    "verify: only artefacts in a registry have signatures: expected the source \
                     oci, found {}",
                    described(&source)
                ));
            }
            verify.check()?;
        }
        Ok(Self {
            source,
            digest: fields.digest,
            verify: fields.verify,
        })
    }
}

/// A source as an error shows it: one line, cut.
fn described(source: &ModuleSource) -> String {
    const MOST: usize = 200;
    untrusted::line(&source.to_string(), MOST)
}

impl From<ModuleConfig> for ModuleFields {
    fn from(module: ModuleConfig) -> Self {
        let rest = Self {
            digest: module.digest,
            verify: module.verify,
            ..Self::default()
        };
        match module.source {
            ModuleSource::Builtin(name) => Self {
                builtin: Some(name),
                ..rest
            },
            ModuleSource::File(path) => Self {
                file: Some(path),
                ..rest
            },
            ModuleSource::ConfigMap(key) => Self {
                config_map: Some(key),
                ..rest
            },
            ModuleSource::Oci(oci) => Self {
                oci: Some(oci),
                ..rest
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn read(value: &Value) -> Result<ModuleConfig, String> {
        strict::read(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_source_is_written_as_it_is_read() {
        let all = [
            json!({"builtin": "podgc"}),
            json!({"file": "/guests/mine.wasm", "digest": DIGEST}),
            json!({"configMap": {"namespace": "davit", "name": "guests", "key": "mine.wasm"}}),
            json!({"oci": {"reference": "registry.example.com/guests/mine:1.0"}}),
            json!({"oci": {
                "reference": format!("registry.example.com:5000/mine@{DIGEST}"),
                "pullSecret": {"namespace": "davit", "name": "registry"},
                "insecure": true,
                "caCert": {"file": "/etc/ca.pem"},
            }}),
            json!({"oci": {
                "reference": "registry.example.com/mine:1.0",
                "caCert": {"configMap": {"namespace": "davit", "name": "ca", "key": "ca.pem"}},
            }}),
            json!({"oci": {"reference": "registry.example.com/mine:1.0"}, "verify": {
                "allOf": [{"key": {"pem": "a"}, "annotations": {"stage": "production"}}],
                "anyOf": {"minimumMatches": 1, "signatures": [
                    {"key": {"configMap": {"namespace": "davit", "name": "keys", "key": "a.pub"}}},
                ]},
            }}),
        ];
        for value in all {
            let module = read(&value).unwrap();
            assert_eq!(serde_json::to_value(module).unwrap(), value);
        }
    }

    #[test]
    fn an_error_names_the_field() {
        let error = |value: Value| read(&value).unwrap_err();
        for (value, expected) in [
            (
                json!({"builtin": "podgc", "file": "/a.wasm"}),
                "expected one of builtin, file, configMap, oci, found two: the built-in guest \
                 podgc and the file /a.wasm",
            ),
            (
                json!({"digest": DIGEST}),
                "expected one of builtin, file, configMap, oci, found none",
            ),
            (
                json!({"builtin": "podgc", "sha": 1}),
                "sha: unknown field, expected one of builtin, file, configMap, oci, digest, verify",
            ),
            (
                json!({"builtin": "podgc", "digest": "sha256:12"}),
                "digest: expected sha256: and 64 hexadecimal digits in lower case, found \
                 \"sha256:12\"",
            ),
            (
                json!({"oci": {"reference": "Registry/Upper Case"}}),
                "oci.reference: expected a reference such as \
                 registry.example.com/guests/podgc:1.0, found \"Registry/Upper Case\": invalid \
                 reference format",
            ),
            (
                json!({"oci": {"reference": "a/b", "pullsecret": {}}}),
                "oci.pullsecret: unknown field, expected one of reference, pullSecret, insecure, \
                 caCert",
            ),
            (
                json!({"oci": {"reference": "a/b", "caCert": {"url": "x"}}}),
                "oci.caCert: expected one of file, configMap, found \"url\"",
            ),
            (
                json!({"oci": {"reference": "a/b", "caCert": {"file": 7}}}),
                "oci.caCert.file: expected text, found 7",
            ),
        ] {
            assert_eq!(error(value), expected);
        }
    }

    /// A module without the signatures that an operator requires must not run because
    /// the requirement was misspelt, or means nothing.
    #[test]
    fn signatures_that_cannot_be_required_are_refused() {
        let key = json!({"key": {"pem": "a"}});
        let oci = |verify: Value| json!({"oci": {"reference": "a/b:1"}, "verify": verify});
        let any = |number: u32, signatures: Value| {
            oci(json!({"anyOf": {"minimumMatches": number, "signatures": signatures}}))
        };
        for (value, expected) in [
            (
                json!({"builtin": "podgc", "verify": {"allOf": [key]}}),
                "verify: only artefacts in a registry have signatures: expected the source oci, \
                 found the built-in guest podgc",
            ),
            (
                json!({"file": "/a.wasm", "verify": {"allOf": [key]}}),
                "verify: only artefacts in a registry have signatures: expected the source oci, \
                 found the file /a.wasm",
            ),
            (
                oci(json!({})),
                "verify: expected allOf or anyOf, with one key at least",
            ),
            (
                oci(json!({"allOf": []})),
                "verify: expected allOf or anyOf, with one key at least",
            ),
            (
                any(1, json!([])),
                "verify.anyOf.signatures: expected one signature at least, found none",
            ),
            (
                any(2, json!([key])),
                "verify.anyOf.minimumMatches: expected a number from 1 to 1, the number of \
                 signatures, found 2",
            ),
            (
                any(0, json!([key])),
                "verify.anyOf.minimumMatches: expected a number from 1 to 1, the number of \
                 signatures, found 0",
            ),
            (
                oci(json!({"allOf": vec![key.clone(); 17]})),
                "verify.allOf: expected 16 signatures at most, found 17",
            ),
            (
                oci(json!({"allOf": [{"key": {"url": "x"}}]})),
                "verify.allOf[0].key: expected one of pem, configMap, found \"url\"",
            ),
            (
                oci(json!({"allof": [key]})),
                "verify.allof: unknown field, expected one of allOf, anyOf",
            ),
        ] {
            assert_eq!(read(&value).unwrap_err(), expected);
        }
        let default = json!({"anyOf": {"signatures": [key]}});
        let any = read(&oci(default)).unwrap().verify.unwrap().any_of.unwrap();
        assert_eq!(any.minimum_matches, 1);
    }

    #[test]
    fn a_source_that_cannot_change_is_not_checked() {
        let every = |value: Value| read(&value).unwrap().check_interval();
        assert!(every(json!({"builtin": "podgc"})).is_some());
        assert!(every(json!({"oci": {"reference": "a/b:1"}})).is_some());
        assert!(every(json!({"builtin": "podgc", "digest": DIGEST})).is_some());
        let pinned = json!({"oci": {"reference": "a/b:1"}, "digest": DIGEST});
        assert_eq!(every(pinned), None);
        let reference = format!("a/b@{DIGEST}");
        assert_eq!(every(json!({"oci": {"reference": reference}})), None);
    }
}
