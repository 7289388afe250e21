//! The signatures that a module must have.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::KeyReference;

/// The signatures that an artefact must have, made with `cosign sign --key`. With both
/// `allOf` and `anyOf`, both must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.allOf) && self.allOf.size() > 0) || has(self.anyOf)",
    "message": "set allOf or anyOf, with one key at least",
}]))]
pub struct VerifyConfig {
    /// The artefact must have each of these signatures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"), length(max = 16))]
    pub all_of: Vec<SignatureConfig>,
    /// The artefact must have some of these signatures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any_of: Option<AnyOfConfig>,
}

/// Signatures of which some suffice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.minimumMatches <= self.signatures.size()",
    "message": "minimumMatches is at most the number of signatures",
}]))]
pub struct AnyOfConfig {
    /// How many of the signatures the artefact must have, each by another key.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub minimum_matches: u32,
    /// The signatures.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"), length(min = 1, max = 16))]
    pub signatures: Vec<SignatureConfig>,
}

/// A signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SignatureConfig {
    /// The public key of the signer.
    pub key: PublicKeyConfig,
    /// Annotations that the signer must have signed, as with `cosign sign -a`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The source of a public key (ECDSA on the curve P-256) in PEM, as `cosign.pub`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub enum PublicKeyConfig {
    /// The key itself: `-----BEGIN PUBLIC KEY-----` and so on.
    Pem(String),
    /// A key under `data` of a `ConfigMap`. The host reads it whenever it verifies a
    /// module.
    ConfigMap(KeyReference),
}

/// The most signatures of one list.
const MOST_SIGNATURES: usize = 16;

fn one() -> u32 {
    1
}

impl VerifyConfig {
    /// Validates the numbers. The error names the field.
    pub(super) fn check(&self) -> Result<(), String> {
        let any = self.any_of.as_ref();
        let any = any.map_or(0, |any| any.signatures.len());
        if self.all_of.is_empty() && self.any_of.is_none() {
            return Err("verify: expected allOf or anyOf, with one key at least".to_owned());
        }
        for (field, number) in [("allOf", self.all_of.len()), ("anyOf.signatures", any)] {
            if number > MOST_SIGNATURES {
                return Err(format!(
                    "verify.{field}: expected {MOST_SIGNATURES} signatures at most, found {number}"
                ));
            }
        }
        match &self.any_of {
            Some(AnyOfConfig { signatures, .. }) if signatures.is_empty() => Err(
                "verify.anyOf.signatures: expected one signature at least, found none".to_owned(),
            ),
            Some(AnyOfConfig {
                minimum_matches, ..
            }) if *minimum_matches == 0 || *minimum_matches as usize > any => Err(format!(
                "verify.anyOf.minimumMatches: expected a number from 1 to {any}, the number of \
                 signatures, found {minimum_matches}"
            )),
            _ => Ok(()),
        }
    }
}
