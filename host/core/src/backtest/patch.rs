//! Patches of the policy under test, applied to what the journal has of an object.
//!
//! A merge patch follows RFC 7386. A strategic merge patch merges the lists whose merge key is
//! known here, and replaces every other list, as the API server does with lists without one.
//! A JSON patch is not applied: its operations name positions and values that the journal may
//! not have.

use serde_json::{Map, Value};

use crate::msgpack;
use crate::path::FieldTree;
use crate::plan::{Patch, PatchKind};

/// The lists that a strategic merge patch merges, with the field that identifies an element.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("conditions", "type"),
    ("ownerReferences", "uid"),
    ("taints", "key"),
    ("containerStatuses", "name"),
    ("containers", "name"),
];
/// The list of texts that a strategic merge patch merges.
const MERGED_TEXTS: &str = "finalizers";
/// The directive of a strategic merge patch that deletes an element of a list.
const DIRECTIVE: &str = "$patch";

/// The object after a patch, with the fields of `fields` alone; none if the patch cannot be
/// applied to what is recorded.
pub(super) fn apply(patch: &Patch, data: &[u8], fields: &FieldTree) -> Option<Vec<u8>> {
    let mut object: Value = rmp_serde::from_slice(data).ok()?;
    let change: Value = rmp_serde::from_slice(&patch.body).ok()?;
    match patch.kind {
        PatchKind::Merge => merge(&mut object, change, false),
        PatchKind::StrategicMerge => merge(&mut object, change, true),
        PatchKind::Json => return None,
    }
    // The resource version is no part of the data.
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    let data = rmp_serde::to_vec_named(&object).ok()?;
    msgpack::select(fields, &data).ok()
}

fn merge(object: &mut Value, change: Value, is_strategic: bool) {
    let Value::Object(change) = change else {
        *object = change;
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else {
        return;
    };
    for (name, value) in change {
        if value.is_null() {
            fields.remove(&name);
            continue;
        }
        if is_strategic && name.starts_with('$') {
            continue;
        }
        let held = fields.entry(name.clone()).or_insert(Value::Null);
        match (held, value) {
            (Value::Array(held), Value::Array(change)) if is_strategic => {
                merge_lists(&name, held, change);
            }
            (held, value) => merge(held, value, is_strategic),
        }
    }
}

fn merge_lists(name: &str, held: &mut Vec<Value>, change: Vec<Value>) {
    if name == MERGED_TEXTS {
        for text in change {
            if !held.contains(&text) {
                held.push(text);
            }
        }
        return;
    }
    let Some((_, key)) = MERGE_KEYS.iter().find(|(list, _)| *list == name) else {
        *held = change;
        return;
    };
    for element in change {
        let place = held
            .iter()
            .position(|one| one.get(key).is_some() && one.get(key) == element.get(key));
        let deletes = element.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
        match place {
            Some(place) if deletes => {
                held.remove(place);
            }
            Some(place) => {
                if let Some(one) = held.get_mut(place) {
                    merge(one, element, true);
                }
            }
            None if deletes => {}
            None => held.push(element),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(kind: PatchKind, object: &Value, body: &Value) -> Value {
        let patch = Patch {
            kind,
            subresource: String::new(),
            body: rmp_serde::to_vec_named(body).unwrap(),
        };
        let data = rmp_serde::to_vec_named(object).unwrap();
        let patched = apply(&patch, &data, &FieldTree::All).unwrap();
        rmp_serde::from_slice(&patched).unwrap()
    }

    #[test]
    fn a_merge_patch_removes_what_is_null_and_replaces_lists() {
        let object = json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}}});
        let body = json!({"metadata": {"resourceVersion": "7", "finalizers": ["b"], "labels": {"x": null}}});
        let after = patched(PatchKind::Merge, &object, &body);
        assert_eq!(
            after,
            json!({"metadata": {"finalizers": ["b"], "labels": {}}})
        );
    }

    #[test]
    fn a_strategic_merge_patch_merges_lists_by_their_keys() {
        let object = json!({
            "metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2", "name": "b"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let body = json!({
            "metadata": {"uid": "u", "ownerReferences": [{"$patch": "delete", "uid": "1"}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "False"}, {"type": "DisruptionTarget"},
            ]},
        });
        let after = patched(PatchKind::StrategicMerge, &object, &body);
        let conditions = &after["status"]["conditions"];
        assert_eq!(
            after["metadata"]["ownerReferences"],
            json!([{"uid": "2", "name": "b"}])
        );
        assert_eq!(
            *conditions,
            json!([{"type": "Ready", "status": "False"}, {"type": "DisruptionTarget"}])
        );
    }

    #[test]
    fn fields_that_are_not_recorded_stay_out() {
        let fields = ["metadata.name"].map(|path| path.parse().unwrap());
        let patch = Patch {
            kind: PatchKind::Merge,
            subresource: String::new(),
            body: rmp_serde::to_vec_named(&json!({"spec": {"a": 1}})).unwrap(),
        };
        let data = rmp_serde::to_vec_named(&json!({"metadata": {"name": "n"}})).unwrap();
        let patched = apply(&patch, &data, &fields.iter().collect()).unwrap();
        let patched: Value = rmp_serde::from_slice(&patched).unwrap();
        assert_eq!(patched, json!({"metadata": {"name": "n"}}));
    }
}
