//! What `kubectl apply` has dropped of a configuration.
//!
//! It drops a key with null. In YAML that may be a value that was forgotten, as in `unless:` with
//! nothing behind it, or one that counts, such as that of a label to take away. The host runs what the
//! API server has; only the annotation of `kubectl` still has the key.

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;

use crate::commands::print::part;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields of the configuration that were given to `kubectl apply` without a value, unless
/// somebody has written another configuration since.
pub(super) fn dropped_by_kubectl(object: &DynamicObject) -> Vec<String> {
    let applied = object.annotations().get(LAST_APPLIED);
    let applied = applied.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let applied = applied.unwrap_or_default();
    let (stored, applied) = (
        part(&object.data, "/spec/config"),
        part(&applied, "/spec/config"),
    );
    let mut dropped = Vec::new();
    let is_same = compare(stored, applied, "spec.config", &mut dropped);
    if is_same { dropped } else { Vec::new() }
}

/// Whether a value is the applied one, but for keys with null, which are added to `dropped`.
fn compare(stored: &Value, applied: &Value, path: &str, dropped: &mut Vec<String>) -> bool {
    match (stored, applied) {
        (Value::Object(stored), Value::Object(applied)) => {
            let is_known = stored.keys().all(|key| applied.contains_key(key));
            is_known
                && applied.iter().all(|(key, value)| {
                    let path = format!("{path}.{key}");
                    match stored.get(key) {
                        None if value.is_null() => {
                            dropped.push(path);
                            true
                        }
                        None => false,
                        Some(stored) => compare(stored, value, &path, dropped),
                    }
                })
        }
        (Value::Array(stored), Value::Array(applied)) => {
            let mut pairs = stored.iter().zip(applied).enumerate();
            stored.len() == applied.len()
                && pairs.all(|(index, (stored, applied))| {
                    compare(stored, applied, &format!("{path}[{index}]"), dropped)
                })
        }
        (stored, applied) => stored == applied,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dropped(stored: &Value, annotation: &str) -> Vec<String> {
        let object = json!({
            "metadata": {"name": "a", "annotations": {LAST_APPLIED: annotation}},
            "spec": {"mode": "Enforce", "config": stored},
        });
        dropped_by_kubectl(&serde_json::from_value(object).unwrap())
    }

    fn of(stored: &Value, applied: &Value) -> Vec<String> {
        dropped(stored, &json!({"spec": {"config": applied}}).to_string())
    }

    #[test]
    fn keys_without_a_value_are_found() {
        let applied = json!({"rules": [{"unless": null, "do": {"label": {"a": null}}}], "b": null});
        let stored = json!({"rules": [{"do": {"label": {}}}]});
        let expected = [
            "spec.config.b",
            "spec.config.rules[0].do.label.a",
            "spec.config.rules[0].unless",
        ];
        assert_eq!(of(&stored, &applied), expected);
    }

    #[test]
    fn nothing_is_dropped_of_another_configuration() {
        for (stored, applied) in [
            (json!({"a": 1}), json!({"a": 1})),
            (json!({"a": null}), json!({"a": null})),
            (json!({"a": 1}), json!({"a": 2, "b": null})),
            (json!({"a": 1, "b": 2}), json!({"a": 1, "c": null})),
            (json!({"a": [1]}), json!({"a": [1, 2], "b": null})),
            (json!({"a": 1}), json!(null)),
        ] {
            assert_eq!(of(&stored, &applied), [""; 0], "{applied}");
        }
        for text in ["", "{}", "[1", "{\"spec\": 1}"] {
            assert_eq!(dropped(&json!({"a": 1}), text), [""; 0], "{text}");
        }
    }
}
