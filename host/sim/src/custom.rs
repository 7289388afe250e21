//! Custom resources that nobody has defined: for objects of a kind that is to be served.

use serde_json::{Value, json};

/// The plural of a kind, as Kubernetes forms it.
#[must_use]
pub fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if kind.ends_with(['s', 'x']) || kind.ends_with("ch") => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// The definition of a custom resource with one version. Its objects are not checked.
#[must_use]
pub fn definition(
    group: &str,
    version: &str,
    plural: &str,
    kind: &str,
    is_namespaced: bool,
) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"),
                "plural": plural, "singular": kind.to_lowercase(),
            },
            "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "versions": [served_version(version, true)],
        },
    })
}

/// A version of a definition. One of them is that in which objects are stored.
#[must_use]
pub fn served_version(version: &str, is_stored: bool) -> Value {
    json!({
        "name": version, "served": true, "storage": is_stored,
        "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }},
    })
}
