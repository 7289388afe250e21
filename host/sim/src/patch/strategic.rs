//! Strategic merge patches of built-in kinds: merge patches with keyed lists, `$patch`,
//! `$retainKeys`, `$setElementOrder/…` and `$deleteFromPrimitiveList/…`.

use serde_json::{Map, Value};

use super::PatchError;
use super::merge_keys::{ListStrategy, list_strategy};

type Fields = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into `target`, an object of the built-in `kind`.
pub fn apply(kind: &str, target: &mut Value, patch: Value) -> Result<(), PatchError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(PatchError::Malformed(
            "json: cannot unmarshal into Go value of type map[string]interface {}".to_owned(),
        ));
    };
    Merge {
        kind,
        at: Vec::new(),
    }
    .merge_fields(target, patch)
}

/// A merge under way: the kind, and the path of where it is.
struct Merge<'a> {
    kind: &'a str,
    at: Vec<String>,
}

impl Merge<'_> {
    fn merge_fields(&mut self, target: &mut Fields, mut patch: Fields) -> Result<(), PatchError> {
        match patch.remove(PATCH) {
            None => {}
            Some(Value::String(directive)) if directive == "replace" => {
                *target = patch;
                return Ok(());
            }
            Some(Value::String(directive)) if directive == "delete" => {
                target.clear();
                return Ok(());
            }
            Some(other) => return Err(malformed(format!("unknown patch type found: {other}"))),
        }
        if let Some(kept) = patch.remove(RETAIN_KEYS) {
            retain_keys(target, &patch, &kept)?;
        }
        let orders = take_prefixed(&mut patch, ORDER);
        for (name, gone) in take_prefixed(&mut patch, DELETE) {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(&name), gone) {
                items.retain(|item| !gone.contains(item));
            }
        }
        let before: Fields = orders
            .iter()
            .filter_map(|(name, _)| Some((name.clone(), target.get(name)?.clone())))
            .collect();
        for (name, value) in patch {
            self.at.push(name);
            self.merge_field(target, value)?;
            self.at.pop();
        }
        for (name, order) in orders {
            let Value::Array(order) = order else {
                return Err(malformed(format!("{ORDER}{name} is not a list")));
            };
            self.at.push(name.clone());
            let strategy = self.strategy();
            self.at.pop();
            let live = before.get(&name).and_then(Value::as_array);
            if let Some(Value::Array(items)) = target.get_mut(&name) {
                let unordered = std::mem::take(items);
                *items = reorder(unordered, &order, live.map_or(&[], Vec::as_slice), strategy);
            }
        }
        Ok(())
    }

    fn merge_field(&mut self, target: &mut Fields, patch: Value) -> Result<(), PatchError> {
        let Some(name) = self.at.last().cloned() else {
            return Ok(());
        };
        if patch.is_null() {
            target.remove(&name);
            return Ok(());
        }
        match (target.get_mut(&name), patch) {
            (Some(Value::Object(fields)), Value::Object(patch)) => self.merge_fields(fields, patch),
            (Some(Value::Array(items)), Value::Array(patch)) => self.merge_list(items, patch),
            (_, patch) => {
                match without_directives(patch) {
                    Some(value) => target.insert(name, value),
                    None => target.remove(&name),
                };
                Ok(())
            }
        }
    }

    fn merge_list(&mut self, items: &mut Vec<Value>, patch: Vec<Value>) -> Result<(), PatchError> {
        let strategy = self.strategy();
        if strategy == ListStrategy::Replace {
            *items = patch.into_iter().filter_map(without_directives).collect();
            return Ok(());
        }
        let (live, order) = (items.clone(), patch.clone());
        if let ListStrategy::ByKey(key) = strategy {
            self.merge_by_key(items, patch, key)?;
        } else {
            for value in patch {
                if !items.contains(&value) {
                    items.push(value);
                }
            }
        }
        // The order of the patch wins over that of the object.
        *items = reorder(std::mem::take(items), &order, &live, strategy);
        Ok(())
    }

    fn merge_by_key(
        &mut self,
        items: &mut Vec<Value>,
        patch: Vec<Value>,
        key: &str,
    ) -> Result<(), PatchError> {
        let mut merged = Vec::new();
        let mut replace = false;
        for element in patch {
            let Value::Object(mut fields) = element else {
                return Err(malformed(format!(
                    "expected objects in {}, found {element}",
                    self.at.join(".")
                )));
            };
            match fields.remove(PATCH) {
                None => merged.push(fields),
                Some(directive) if directive == "replace" => replace = true,
                Some(directive) if directive == "delete" => {
                    let wanted = key_of(&fields, key)?;
                    items.retain(|item| item.get(key) != Some(wanted));
                }
                Some(other) => return Err(malformed(format!("unknown patch type found: {other}"))),
            }
        }
        if replace {
            *items = merged.into_iter().map(Value::Object).collect();
            return Ok(());
        }
        for fields in merged {
            let wanted = key_of(&fields, key)?;
            match items.iter_mut().find(|item| item.get(key) == Some(wanted)) {
                Some(Value::Object(live)) => self.merge_fields(live, fields)?,
                _ => items.extend(without_directives(Value::Object(fields))),
            }
        }
        Ok(())
    }

    fn strategy(&self) -> ListStrategy {
        let path: Vec<&str> = self.at.iter().map(String::as_str).collect();
        list_strategy(self.kind, &path)
    }
}

fn key_of<'a>(fields: &'a Fields, key: &str) -> Result<&'a Value, PatchError> {
    fields.get(key).ok_or_else(|| {
        malformed(format!(
            "map: {} does not contain declared merge key: {key}",
            Value::Object(fields.clone())
        ))
    })
}

/// Clears the fields of a union that the patch does not keep.
fn retain_keys(target: &mut Fields, patch: &Fields, kept: &Value) -> Result<(), PatchError> {
    let Value::Array(kept) = kept else {
        return Err(malformed(format!("{RETAIN_KEYS} is not a list")));
    };
    let is_kept = |name: &String| kept.iter().any(|key| key == name.as_str());
    if let Some(stray) = patch
        .keys()
        .find(|name| !name.starts_with('$') && !is_kept(name))
    {
        return Err(malformed(format!(
            "bad patch format for retainKeys: {stray} is not in the list"
        )));
    }
    target.retain(|name, _| is_kept(name));
    Ok(())
}

fn take_prefixed(patch: &mut Fields, prefix: &str) -> Vec<(String, Value)> {
    let names: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(prefix))
        .cloned()
        .collect();
    names
        .into_iter()
        .filter_map(|name| {
            let value = patch.remove(&name)?;
            Some((name.strip_prefix(prefix)?.to_owned(), value))
        })
        .collect()
}

/// Puts the elements that `order` names in its order, and the others among
/// them: before the first later one that also followed them in `live`.
fn reorder(
    items: Vec<Value>,
    order: &[Value],
    live: &[Value],
    strategy: ListStrategy,
) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match strategy {
        ListStrategy::ByKey(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        ListStrategy::Set | ListStrategy::Replace => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, mut others): (Vec<_>, Vec<_>) = items
        .into_iter()
        .partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(live, item).unwrap_or(usize::MAX));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let here = place(live, &item);
        while let Some(other) = others
            .next_if(|other| matches!((place(live, other), here), (Some(a), Some(b)) if a < b))
        {
            result.push(other);
        }
        result.push(item);
    }
    result.extend(others);
    result
}

/// The value of a patch without an old value to merge into.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(mut fields) => {
            if fields
                .remove(PATCH)
                .is_some_and(|directive| directive == "delete")
            {
                return None;
            }
            let kept = fields
                .into_iter()
                .filter(|(name, value)| {
                    !value.is_null()
                        && name != RETAIN_KEYS
                        && !name.starts_with(ORDER)
                        && !name.starts_with(DELETE)
                })
                .filter_map(|(name, value)| Some((name, without_directives(value)?)))
                .collect();
            Some(Value::Object(kept))
        }
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(without_directives).collect(),
        )),
        plain => Some(plain),
    }
}

fn malformed(message: String) -> PatchError {
    PatchError::Malformed(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(kind: &str, target: Value, patch: Value) -> Value {
        let mut target = target;
        apply(kind, &mut target, patch).expect("applies");
        target
    }

    #[test]
    fn conditions_merge_by_type_and_keep_the_order_asked_for() {
        let target = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "r"}, {"type": "Own"},
        ]}});
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "DisruptionTarget"}, {"type": "Ready"}],
            "conditions": [{"type": "DisruptionTarget", "status": "True"}, {"type": "Ready", "status": "False"}],
        }});
        assert_eq!(
            patched("Pod", target, patch)["status"]["conditions"],
            json!([
                {"type": "DisruptionTarget", "status": "True"},
                {"type": "Ready", "status": "False", "reason": "r"},
                {"type": "Own"},
            ])
        );
    }

    #[test]
    fn elements_of_the_server_keep_their_place_between_ordered_ones() {
        let target = json!({"metadata": {"finalizers": ["a", "x", "b"]}});
        let patch = json!({"metadata": {
            "$setElementOrder/finalizers": ["a", "b", "c"], "finalizers": ["c"],
        }});
        assert_eq!(
            patched("ConfigMap", target, patch)["metadata"]["finalizers"],
            json!(["a", "x", "b", "c"])
        );
    }

    #[test]
    fn directives() {
        let target = json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}}});
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a"],
            "labels": {"$patch": "replace", "y": "2"},
            "ownerReferences": [{"$patch": "delete", "uid": "1"}],
        }});
        assert_eq!(
            patched("ConfigMap", target, patch),
            json!({"metadata": {"finalizers": ["b"], "labels": {"y": "2"}, "ownerReferences": []}})
        );
    }

    #[test]
    fn retained_keys_clear_the_rest_of_a_union() {
        let target = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}});
        let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
        assert_eq!(
            patched("Deployment", target, patch),
            json!({"spec": {"strategy": {"type": "Recreate"}}})
        );
    }

    #[test]
    fn taints_are_replaced_whole_and_env_is_merged() {
        let node = json!({"spec": {"taints": [{"key": "a"}]}});
        let patch = json!({"spec": {"taints": [{"key": "b"}]}});
        assert_eq!(
            patched("Node", node, patch)["spec"]["taints"],
            json!([{"key": "b"}])
        );
        let pod =
            json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}});
        let patch =
            json!({"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}});
        assert_eq!(
            patched("Pod", pod, patch)["spec"]["containers"][0]["env"],
            // Elements that a patch adds without an order come first.
            json!([{"name": "B", "value": "2"}, {"name": "A", "value": "1"}])
        );
    }

    #[test]
    fn a_patch_without_its_merge_key_is_refused() {
        let mut target = json!({"status": {"conditions": [{"type": "Ready"}]}});
        let patch = json!({"status": {"conditions": [{"status": "True"}]}});
        assert!(matches!(
            apply("Pod", &mut target, patch),
            Err(PatchError::Malformed(_))
        ));
    }
}
