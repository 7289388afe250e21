//! References to objects in the cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reference to a key of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct KeyReference {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The key.
    pub key: String,
}

/// A reference to a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SecretReference {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}
