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
use crate::store::{Object, SegmentId};

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

/// A patch of the policy, as long as nobody else has written what it writes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LastingPatch {
    kind: PatchKind,
    subresource: String,
    /// What is left of its body.
    change: Value,
    /// What the patch replaced in each list that has the object.
    replaced: Vec<(SegmentId, Value)>,
}

impl LastingPatch {
    /// A patch that was applied to the recorded states of an object. The version that the body may
    /// name was a condition then, and is none later.
    pub(super) fn new<'o>(patch: &Patch, states: impl Iterator<Item = &'o Object>) -> Option<Self> {
        let mut change: Value = rmp_serde::from_slice(&patch.body).ok()?;
        if let Some(Value::Object(metadata)) = change.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
        let mut lasting = Self {
            kind: patch.kind,
            subresource: patch.subresource.clone(),
            change,
            replaced: Vec::new(),
        };
        for object in states {
            let now = lasting.touched_in(object)?;
            lasting.replaced.push((object.segment(), now));
        }
        Some(lasting)
    }

    /// From now on, the lists are others. Their first state of the object counts as what the patch
    /// replaced.
    pub(super) fn restart(&mut self) {
        self.replaced.clear();
    }

    /// Whether another patch writes the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.subresource, &self.change)
            == (other.kind, &other.subresource, &other.change)
    }

    /// The data of the object after the patch.
    pub(super) fn apply(&self, data: Vec<u8>) -> Vec<u8> {
        changed(self.kind, self.change.clone(), &data).unwrap_or(data)
    }

    fn touched_in(&self, object: &Object) -> Option<Value> {
        let recorded: Value = rmp_serde::from_slice(&object.data()).ok()?;
        let is_strategic = self.kind == PatchKind::StrategicMerge;
        Some(touched(&self.change, Some(&recorded), is_strategic))
    }

    /// Takes another state of the object: what somebody else has written since is not the patch's
    /// any more. Returns whether anything is.
    fn follow(&mut self, object: &Object, written: &[Value]) -> bool {
        let Some(now) = self.touched_in(object) else {
            return true;
        };
        let mut lists = self.replaced.iter_mut();
        let Some((_, replaced)) = lists.find(|(list, _)| *list == object.segment()) else {
            self.replaced.push((object.segment(), now));
            return true;
        };
        if *replaced == now {
            return true;
        }
        let written: Vec<&Value> = written.iter().collect();
        keep_own(&mut self.change, replaced, &now, &written)
    }
}

/// Another state of an object that the policy has patched: ends what others have written since. What
/// one of the patches wrote may be the recorded controller's own write, which comes later here.
pub(super) fn follow(patches: &mut Vec<LastingPatch>, object: &Object) {
    let written: Vec<Value> = patches.iter().map(|one| one.change.clone()).collect();
    patches.retain_mut(|one| one.follow(object, &written));
}

/// Removes the fields of a change that have another value by now than the one that it replaced,
/// unless one of these changes wrote it. Returns whether any field is left.
fn keep_own(change: &mut Value, replaced: &mut Value, now: &Value, written: &[&Value]) -> bool {
    let Value::Object(fields) = change else {
        let is_own = written.contains(&now);
        let lasts = *replaced == *now || is_own;
        *replaced = now.clone();
        return lasts;
    };
    let Value::Object(replaced) = replaced else {
        return true;
    };
    fields.retain(|name, value| {
        let before = replaced.entry(name.clone()).or_insert(Value::Null);
        let now = now.get(name).unwrap_or(&Value::Null);
        let written = written.iter().filter_map(|one| one.get(name));
        keep_own(value, before, now, &written.collect::<Vec<_>>())
    });
    !fields.is_empty()
}

/// The version that an object has to have for this patch; none for any.
pub(super) fn wanted_version(patch: &Patch) -> Option<String> {
    let change: Value = rmp_serde::from_slice(&patch.body).ok()?;
    let version = change.pointer("/metadata/resourceVersion")?.as_str()?;
    (!version.is_empty()).then(|| version.to_owned())
}

/// What an object has where a patch writes, in the form of the patch. Of a list that is merged, the
/// patch leaves the elements of others alone: there is nothing.
fn touched(change: &Value, object: Option<&Value>, is_strategic: bool) -> Value {
    let Value::Object(change) = change else {
        return object.cloned().unwrap_or(Value::Null);
    };
    let fields = change.iter().map(|(name, value)| {
        let is_merged = name == MERGED_TEXTS || MERGE_KEYS.iter().any(|(list, _)| list == name);
        let held = object.and_then(|object| object.get(name));
        let held = match value {
            Value::Array(_) if is_strategic && is_merged => Value::Null,
            value => touched(value, held, is_strategic),
        };
        (name.clone(), held)
    });
    Value::Object(fields.collect())
}

/// The object after a patch, with the fields of `fields` alone; none if the patch cannot be
/// applied to what is recorded.
pub(super) fn apply(patch: &Patch, data: &[u8], fields: &FieldTree) -> Option<Vec<u8>> {
    let change: Value = rmp_serde::from_slice(&patch.body).ok()?;
    msgpack::select(fields, &changed(patch.kind, change, data)?).ok()
}

/// The whole object after a change of this kind.
fn changed(kind: PatchKind, change: Value, data: &[u8]) -> Option<Vec<u8>> {
    let mut object: Value = rmp_serde::from_slice(data).ok()?;
    match kind {
        PatchKind::Merge => merge(&mut object, change, false),
        PatchKind::StrategicMerge => merge(&mut object, change, true),
        PatchKind::Json => return None,
    }
    // The resource version is no part of the data.
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    rmp_serde::to_vec_named(&object).ok()
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
    fn a_patch_keeps_the_fields_that_nobody_else_has_written() {
        let change = json!({"metadata": {"annotations": {"seen": "1"}}, "spec": {"replicas": 0}});
        let before = json!({"metadata": {"annotations": {"seen": null}}, "spec": {"replicas": 3}});
        let after = |now: &Value, written: &[&Value]| {
            let (mut change, mut replaced) = (change.clone(), before.clone());
            let lasts = keep_own(&mut change, &mut replaced, now, written);
            (lasts, change)
        };
        let scaled = json!({"metadata": {"annotations": {"seen": null}}, "spec": {"replicas": 5}});
        let (lasts, left) = after(&scaled, &[&change]);
        assert!(lasts);
        assert_eq!(left, json!({"metadata": {"annotations": {"seen": "1"}}}));
        // The recorded controller has written the same, or what an earlier patch wrote.
        assert_eq!(after(&change, &[&change]), (true, change.clone()));
        let earlier = json!({"spec": {"replicas": 5}});
        assert_eq!(after(&scaled, &[&change, &earlier]), (true, change.clone()));
        let other = json!({"metadata": {"annotations": {"seen": "2"}}, "spec": {"replicas": 5}});
        assert!(!after(&other, &[&change]).0);
    }

    #[test]
    fn what_a_patch_touches_has_its_form() {
        let change = json!({
            "metadata": {"labels": {"a": null}}, "spec": {"taints": [], "unset": {"x": 1}},
            "status": {"phase": "Failed", "conditions": [{"type": "Ready"}]},
        });
        let object = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"taints": [{"key": "k"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Other"}]},
        });
        assert_eq!(
            touched(&change, Some(&object), true),
            json!({
                "metadata": {"labels": {"a": "1"}}, "spec": {"taints": null, "unset": {"x": null}},
                "status": {"phase": "Running", "conditions": null},
            })
        );
        let of_merge = touched(&change, Some(&object), false);
        assert_eq!(of_merge["spec"]["taints"], json!([{"key": "k"}]));
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
