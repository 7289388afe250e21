//! Patches as the API server applies them.

use serde_json::{Map, Value};

/// The lists that a strategic merge patch merges by element, and the key field
/// of each. Any other list is replaced.
const MERGE_KEYS: [(&str, &str); 5] = [
    ("conditions", "type"),
    ("containers", "name"),
    ("containerStatuses", "name"),
    ("initContainerStatuses", "name"),
    ("ownerReferences", "uid"),
];

/// A strategic merge patch.
pub(super) fn strategic_merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let target = as_map(target);
    for (name, change) in patch {
        if name.starts_with('$') {
            continue;
        }
        let merge_key = MERGE_KEYS.iter().find(|(list, _)| list == name);
        match (change, merge_key) {
            (Value::Null, _) => drop(target.remove(name)),
            (Value::Array(changes), Some((_, key))) => {
                let list = target.entry(name).or_insert_with(|| Value::Array(vec![]));
                merge_list(list, changes, key);
                if let Some(order) = patch.get(&format!("$setElementOrder/{name}")) {
                    sort(list, order, key);
                }
            }
            _ => strategic_merge(target.entry(name).or_insert(Value::Null), change),
        }
    }
}

/// A JSON merge patch (RFC 7396).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let target = as_map(target);
    for (name, change) in patch {
        if change.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name).or_insert(Value::Null), change);
        }
    }
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made a map")
}

fn merge_list(list: &mut Value, changes: &[Value], key: &str) {
    let list = list.as_array_mut().expect("a list to merge into");
    for change in changes {
        let own = change.get(key);
        let position = list.iter().position(|element| element.get(key) == own);
        let deleted = change.get("$patch").is_some_and(|it| it == "delete");
        match position {
            Some(position) if deleted => drop(list.remove(position)),
            None if deleted => {}
            Some(position) => {
                if let Some(element) = list.get_mut(position) {
                    strategic_merge(element, change);
                }
            }
            None => {
                let mut element = Value::Null;
                strategic_merge(&mut element, change);
                list.push(element);
            }
        }
    }
}

/// Sorts the elements in the order that the patch names.
fn sort(list: &mut Value, order: &Value, key: &str) {
    let order = order.as_array().expect("an order is a list");
    let place = |element: &Value| {
        let own = element.get(key);
        order.iter().position(|it| it.get(key) == own)
    };
    if let Some(list) = list.as_array_mut() {
        list.sort_by_key(|element| place(element).unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_merged_by_their_key() {
        let mut status = json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]});
        let patch = json!({
            "$setElementOrder/conditions": [{"type": "C"}, {"type": "A"}],
            "conditions": [
                {"type": "A", "status": "False"},
                {"type": "C", "lastProbeTime": null},
                {"$patch": "delete", "type": "B"},
            ],
            "phase": "Failed",
        });
        strategic_merge(&mut status, &patch);
        assert_eq!(
            status,
            json!({"conditions": [{"type": "C"}, {"type": "A", "status": "False"}], "phase": "Failed"})
        );
    }

    #[test]
    fn a_merge_patch_replaces_lists_and_removes_nulls() {
        let mut object = json!({"a": [1], "b": {"c": 1, "d": 2}});
        merge(
            &mut object,
            &json!({"a": [2], "b": {"c": null, "e": {"f": null}}}),
        );
        assert_eq!(object, json!({"a": [2], "b": {"d": 2, "e": {}}}));
    }
}
