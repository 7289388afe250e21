//! Verifies the signatures of artefacts, as `cosign sign --key` makes them.
//!
//! A signature covers a payload in JSON, and the payload names the digest of the
//! artefact's manifest. The manifest names the digest of the module. So the module that
//! runs is the signed one if its digest is that of the manifest's layer. The payload's
//! format is "simple signing" of the containers project, with cosign's type.

use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use davit_core::untrusted;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::Value;

/// The type in the payload of a signature of cosign.
const TYPE: &str = "cosign container image signature";

/// The start of a public key in DER (RFC 5480): an uncompressed point on P-256 follows.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Why an artefact is not the signed one that the spec requires.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// A public key cannot be used.
    #[error("the public key of verify.{requirement} cannot be used: {reason}")]
    Key {
        /// The field of the spec: `allOf[0]`.
        requirement: String,
        /// The problem.
        reason: String,
    },
    /// The registry has no signatures of the artefact.
    #[error(
        "the manifest {manifest} is not signed: sign the artefact with cosign sign --key, or \
         remove module.verify"
    )]
    None {
        /// The digest of the manifest.
        manifest: String,
    },
    /// A signature is missing.
    #[error(
        "no signature of the manifest {manifest} satisfies verify.{requirement}; of its \
         signatures: {}", reasons.join("; ")
    )]
    Missing {
        /// The digest of the manifest.
        manifest: String,
        /// The field of the spec: `allOf[0]`.
        requirement: String,
        /// Why each of the signatures does not, each reason once.
        reasons: Vec<String>,
    },
    /// Too few of the signatures of `anyOf`.
    #[error(
        "the manifest {manifest} has {found} of the signatures of verify.anyOf, each by another \
         key, and needs {needed}; of its signatures: {}", reasons.join("; ")
    )]
    TooFew {
        /// The digest of the manifest.
        manifest: String,
        /// How many there are.
        found: usize,
        /// `minimumMatches`
        needed: usize,
        /// Why the others are none, each reason once.
        reasons: Vec<String>,
    },
}

/// A signature in a registry. Nothing about it is known to be true.
pub(super) struct Signature {
    /// The signed text.
    pub(super) payload: Vec<u8>,
    /// ECDSA over the SHA-256 of the payload, in ASN.1, in base64.
    pub(super) code: String,
}

/// The signatures that an artefact must have, with their keys.
pub(super) struct Policy {
    pub(super) all_of: Vec<Requirement>,
    pub(super) any_of: Vec<Requirement>,
    /// How many of `any_of` must hold.
    pub(super) minimum_matches: usize,
}

/// One signature that an artefact must have.
pub(super) struct Requirement {
    /// The field of the spec: `allOf[0]`.
    name: String,
    key: PublicKey,
    annotations: BTreeMap<String, String>,
}

/// A point on P-256, uncompressed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PublicKey(Vec<u8>);

impl Requirement {
    /// A signature by a key in PEM.
    pub(super) fn new(
        name: String,
        pem: &str,
        annotations: BTreeMap<String, String>,
    ) -> Result<Self, SignatureError> {
        match PublicKey::read(pem) {
            Ok(key) => Ok(Self {
                name,
                key,
                annotations,
            }),
            Err(reason) => Err(SignatureError::Key {
                requirement: name,
                reason,
            }),
        }
    }

    /// Whether one of the signatures is the required one; otherwise why each is not.
    fn is_met(&self, signatures: &[Signature], manifest: &str) -> Result<(), BTreeSet<String>> {
        let mut reasons = BTreeSet::new();
        for signature in signatures {
            match self.check(signature, manifest) {
                Ok(()) => return Ok(()),
                Err(reason) => reasons.insert(reason),
            };
        }
        Err(reasons)
    }

    fn check(&self, signature: &Signature, manifest: &str) -> Result<(), String> {
        let code = BASE64_STANDARD.decode(&signature.code);
        let code = code.map_err(|_| "one is not in base64")?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.key.0);
        key.verify(&signature.payload, &code)
            .map_err(|_| "one was not made by this key, or its payload was changed")?;
        let payload: Payload = serde_json::from_slice(&signature.payload)
            .map_err(|error| format!("one has a payload that is not of cosign: {error}"))?;
        let Critical { image, kind } = payload.critical;
        if kind != TYPE {
            let kind = untrusted::line(&kind, untrusted::MOST_LOGGED);
            return Err(format!("one has the type \"{kind}\", not \"{TYPE}\""));
        }
        if image.digest != manifest {
            let digest = untrusted::line(&image.digest, untrusted::MOST_LOGGED);
            return Err(format!("one is of another manifest, {digest}"));
        }
        let signed = payload.optional.unwrap_or_default();
        for (name, value) in &self.annotations {
            if signed.get(name).and_then(Value::as_str) != Some(value) {
                return Err(format!("one lacks the annotation {name}={value}"));
            }
        }
        Ok(())
    }
}

impl Policy {
    /// Checks that an artefact has the required signatures. `manifest` is the digest of
    /// its manifest, computed by this host.
    pub(super) fn check(
        &self,
        signatures: &[Signature],
        manifest: &str,
    ) -> Result<(), SignatureError> {
        if signatures.is_empty() {
            return Err(SignatureError::None {
                manifest: manifest.to_owned(),
            });
        }
        for requirement in &self.all_of {
            if let Err(reasons) = requirement.is_met(signatures, manifest) {
                return Err(SignatureError::Missing {
                    manifest: manifest.to_owned(),
                    requirement: requirement.name.clone(),
                    reasons: reasons.into_iter().collect(),
                });
            }
        }
        let (mut keys, mut reasons) = (BTreeSet::new(), BTreeSet::new());
        for requirement in &self.any_of {
            match requirement.is_met(signatures, manifest) {
                Ok(()) => drop(keys.insert(&requirement.key)),
                Err(more) => reasons.extend(more),
            }
        }
        if keys.len() >= self.minimum_matches {
            return Ok(());
        }
        Err(SignatureError::TooFew {
            manifest: manifest.to_owned(),
            found: keys.len(),
            needed: self.minimum_matches,
            reasons: reasons.into_iter().collect(),
        })
    }
}

impl PublicKey {
    fn read(pem: &str) -> Result<Self, String> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("it is not a public key in PEM: {error}"))?;
        // An uncompressed point: the number 4, and two coordinates.
        match der.strip_prefix(&P256) {
            Some(point) if point.len() == 65 && point.first() == Some(&4) => {
                Ok(Self(point.to_vec()))
            }
            _ => Err(
                "it is not a key for ECDSA on P-256, which cosign generate-key-pair \
                      makes"
                    .to_owned(),
            ),
        }
    }
}

/// What a signature covers. cosign adds further fields.
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
    optional: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, SigningKey as _};
    use serde_json::json;

    use super::*;

    const MANIFEST: &str =
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    const OTHER: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

    fn payload(manifest: &str, kind: &str, optional: &Value) -> Vec<u8> {
        let identity = json!({"docker-reference": "registry.example.com/guest"});
        let image = json!({"docker-manifest-digest": manifest});
        let critical = json!({"identity": identity, "image": image, "type": kind});
        json!({"critical": critical, "optional": optional})
            .to_string()
            .into_bytes()
    }

    fn sign(key: &KeyPair, payload: Vec<u8>) -> Signature {
        let code = BASE64_STANDARD.encode(key.sign(&payload).unwrap());
        Signature { payload, code }
    }

    fn valid(key: &KeyPair) -> Signature {
        sign(key, payload(MANIFEST, TYPE, &json!(null)))
    }

    fn requirement(name: &str, key: &KeyPair) -> Requirement {
        Requirement::new(name.to_owned(), &key.public_key_pem(), BTreeMap::new()).unwrap()
    }

    fn all_of(keys: &[&KeyPair]) -> Policy {
        let named =
            |(position, key): (usize, &&KeyPair)| requirement(&format!("allOf[{position}]"), key);
        Policy {
            all_of: keys.iter().enumerate().map(named).collect(),
            any_of: Vec::new(),
            minimum_matches: 0,
        }
    }

    fn any_of(minimum_matches: usize, keys: &[&KeyPair]) -> Policy {
        Policy {
            any_of: keys.iter().map(|key| requirement("", key)).collect(),
            minimum_matches,
            all_of: Vec::new(),
        }
    }

    fn refusal(policy: &Policy, signatures: &[Signature]) -> String {
        policy.check(signatures, MANIFEST).unwrap_err().to_string()
    }

    #[test]
    fn a_signature_is_of_this_key_this_manifest_and_this_type() {
        let (key, stranger) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let policy = all_of(&[&key]);
        policy.check(&[valid(&key)], MANIFEST).unwrap();
        policy
            .check(&[valid(&stranger), valid(&key)], MANIFEST)
            .unwrap();

        let none = refusal(&policy, &[]);
        assert!(
            none.starts_with(&format!("the manifest {MANIFEST} is not signed")),
            "{none}"
        );
        let mut torn = valid(&key);
        *torn.payload.last_mut().unwrap() = b' ';
        let mut cut = valid(&key);
        cut.code.truncate(8);
        let mut text = valid(&key);
        text.code = "not base64!".to_owned();
        let not_by_key = "one was not made by this key, or its payload was changed";
        for (signature, reason) in [
            (valid(&stranger), not_by_key.to_owned()),
            (torn, not_by_key.to_owned()),
            (cut, not_by_key.to_owned()),
            (text, "one is not in base64".to_owned()),
            (
                sign(&key, payload(OTHER, TYPE, &json!({}))),
                format!("one is of another manifest, {OTHER}"),
            ),
            (
                sign(
                    &key,
                    payload(MANIFEST, "atomic container signature", &json!({})),
                ),
                format!("one has the type \"atomic container signature\", not \"{TYPE}\""),
            ),
            (
                sign(&key, b"{}".to_vec()),
                "one has a payload that is not of cosign: missing field `critical`".to_owned(),
            ),
        ] {
            let error = refusal(&policy, &[signature]);
            let start = format!(
                "no signature of the manifest {MANIFEST} satisfies verify.allOf[0]; of its \
                 signatures: {reason}"
            );
            assert!(error.starts_with(&start), "{error}");
        }
    }

    #[test]
    fn all_of_needs_every_key() {
        let keys = [(); 2].map(|()| KeyPair::generate().unwrap());
        let [one, other] = &keys;
        let policy = all_of(&[one, other]);
        policy.check(&[valid(one), valid(other)], MANIFEST).unwrap();
        let error = refusal(&policy, &[valid(one), valid(one)]);
        assert!(error.contains("verify.allOf[1]"), "{error}");
    }

    #[test]
    fn any_of_needs_so_many_different_keys() {
        let keys = [(); 3].map(|()| KeyPair::generate().unwrap());
        let [one, two, three] = &keys;
        let policy = any_of(1, &[one, two, three]);
        policy.check(&[valid(three)], MANIFEST).unwrap();
        let stranger = KeyPair::generate().unwrap();
        let error = refusal(&policy, &[valid(&stranger)]);
        assert!(
            error.contains("has 0 of the signatures of verify.anyOf"),
            "{error}"
        );
        let policy = any_of(2, &[one, two, three]);
        policy.check(&[valid(three), valid(one)], MANIFEST).unwrap();
        let error = refusal(&policy, &[valid(one), valid(one), valid(&stranger)]);
        assert!(
            error.contains("has 1 of the signatures") && error.contains("needs 2"),
            "{error}"
        );
        // A key that is listed twice counts once.
        refusal(&any_of(2, &[one, one]), &[valid(one)]);
        // Both lists hold.
        let both = Policy {
            all_of: all_of(&[one]).all_of,
            ..any_of(1, &[two, three])
        };
        both.check(&[valid(one), valid(two)], MANIFEST).unwrap();
        refusal(&both, &[valid(one)]);
        refusal(&both, &[valid(two)]);
    }

    #[test]
    fn required_annotations_are_signed() {
        let key = KeyPair::generate().unwrap();
        let annotations = BTreeMap::from([("stage".to_owned(), "production".to_owned())]);
        let name = "allOf[0]".to_owned();
        let policy = Policy {
            all_of: vec![Requirement::new(name, &key.public_key_pem(), annotations).unwrap()],
            ..any_of(0, &[])
        };
        let with = |optional: Value| [sign(&key, payload(MANIFEST, TYPE, &optional))];
        let signed = with(json!({"stage": "production", "creator": "ci"}));
        policy.check(&signed, MANIFEST).unwrap();
        for optional in [
            json!({"stage": "test"}),
            json!({"stage": ["production"]}),
            json!(null),
        ] {
            let error = refusal(&policy, &with(optional));
            assert!(
                error.contains("one lacks the annotation stage=production"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_key_that_cosign_does_not_make_is_refused_by_name() {
        let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let private = KeyPair::generate().unwrap().serialize_pem();
        for (pem, reason) in [
            (p384.public_key_pem(), "it is not a key for ECDSA on P-256"),
            (private, "it is not a public key in PEM"),
            (String::new(), "it is not a public key in PEM"),
        ] {
            let error = Requirement::new("allOf[0]".to_owned(), &pem, BTreeMap::new());
            let error = error.err().unwrap().to_string();
            let start = format!("the public key of verify.allOf[0] cannot be used: {reason}");
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
