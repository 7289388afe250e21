//! The configuration as its author wrote it, where `kubectl apply` has dropped a part.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The annotation in which `kubectl apply` keeps what it was given.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A spec with the configuration that was given to `kubectl apply`, if that differs only by keys
/// with `null`.
///
/// `kubectl apply` drops such a key when it creates an object, other than with `--server-side`. To a
/// guest, null may be a value, such as that of a label to take away, or a mistake: `unless:` in YAML,
/// with nothing behind it.
#[must_use]
pub fn as_applied<'a>(spec: &'a Value, last_applied: Option<&str>) -> Cow<'a, Value> {
    let config = last_applied.and_then(|text| {
        let applied: Value = serde_json::from_str(text).ok()?;
        let applied = applied.pointer("/spec/config")?;
        let stored = spec.get("config")?;
        // Another tool may have written the spec since: then the annotation is about another one.
        let differs = applied != stored && without_nulls(applied) == *stored;
        differs.then(|| applied.clone())
    });
    match (spec, config) {
        (Value::Object(spec), Some(config)) => {
            let mut spec = spec.clone();
            spec.insert("config".to_owned(), config);
            Cow::Owned(Value::Object(spec))
        }
        _ => Cow::Borrowed(spec),
    }
}

/// A value without the keys whose value is null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let entries = entries.iter().filter(|(_, value)| !value.is_null());
            let entries = entries.map(|(key, value)| (key.clone(), without_nulls(value)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        Value::Array(elements) => elements.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(stored: &Value, applied: &Value) -> Value {
        let object = json!({"kind": "Controller", "spec": {"mode": "DryRun", "config": applied}});
        let spec = json!({"mode": "Enforce", "config": stored});
        let read = as_applied(&spec, Some(&object.to_string())).into_owned();
        assert_eq!(read["mode"], "Enforce");
        read["config"].clone()
    }

    #[test]
    fn what_kubectl_apply_has_dropped_is_there_again() {
        let applied = json!({"rules": [{"unless": null, "do": {"label": {"a": null}}}], "b": null});
        let stored = json!({"rules": [{"do": {"label": {}}}]});
        assert_eq!(config(&stored, &applied), applied);
    }

    #[test]
    fn another_spec_than_the_applied_one_stays_as_it_is() {
        for (stored, applied) in [
            (json!({"a": 1}), json!({"a": 2, "b": null})),
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": null})),
            (json!({"a": {"c": null}}), json!({"a": {}})),
            (json!({"a": [1]}), json!({"a": [1, null]})),
            (json!({"a": 1}), json!(null)),
        ] {
            assert_eq!(config(&stored, &applied), stored, "{applied}");
        }
        let spec = json!({"config": {"a": 1}});
        for text in [
            None,
            Some(""),
            Some("{}"),
            Some("[1"),
            Some("{\"spec\": 1}"),
        ] {
            assert_eq!(*as_applied(&spec, text), spec);
        }
        let without = json!({"mode": "DryRun"});
        let applied = json!({"spec": {"config": {"a": null}}}).to_string();
        assert_eq!(*as_applied(&without, Some(&applied)), without);
        assert_eq!(*as_applied(&Value::Null, Some(&applied)), Value::Null);
    }
}
