//! JSON patches (RFC 6902).

use serde::Serialize;

use crate::dynamic::Value;
use crate::{Patch, value};

/// The operations of a JSON patch, in their order. If one does not apply, none does.
///
/// ```
/// use davit_guest::{JsonPatch, pointer};
///
/// let patch = JsonPatch::new()
///     .test("/spec/replicas", &1)
///     .replace("/spec/replicas", &2)
///     .remove(&pointer(&["metadata", "annotations", "example.com/paused"]))
///     .into_patch();
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Value>,
}

impl JsonPatch {
    /// A patch without an operation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails the patch unless the value at a path is this one.
    #[must_use]
    pub fn test(self, path: &str, value: &impl Serialize) -> Self {
        self.with("test", path, value)
    }

    /// Sets a field, or inserts an element of a list. The end of a list is `/-`.
    #[must_use]
    pub fn add(self, path: &str, value: &impl Serialize) -> Self {
        self.with("add", path, value)
    }

    /// Replaces a value that exists.
    #[must_use]
    pub fn replace(self, path: &str, value: &impl Serialize) -> Self {
        self.with("replace", path, value)
    }

    /// Removes a value that exists.
    #[must_use]
    pub fn remove(mut self, path: &str) -> Self {
        self.operations.push(value!({"op": "remove", "path": path}));
        self
    }

    /// The patch of a plan.
    #[must_use]
    pub fn into_patch(self) -> Patch {
        Patch::json(&self.operations)
    }

    fn with(mut self, operation: &str, path: &str, value: &impl Serialize) -> Self {
        let value = Value::of(value);
        let operation = value!({"op": operation, "path": path, "value": value});
        self.operations.push(operation);
        self
    }
}

/// The path of a JSON patch through these keys, which may have slashes.
#[must_use]
pub fn pointer(keys: &[&str]) -> String {
    let keys = keys.iter();
    let mut pointer = String::new();
    for key in keys {
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::msgpack;

    #[test]
    fn operations_keep_their_order_and_keys_their_slashes() {
        let path = pointer(&["metadata", "labels", "a/b~c"]);
        let patch = JsonPatch::new()
            .test(&path, &"1")
            .add("/spec/list/-", &vec![1, 2])
            .replace(&path, &true)
            .remove("/spec/other")
            .into_patch();
        assert_eq!(patch.kind, "json");
        let found: Value = msgpack::decode(&patch.body).unwrap_or_default();
        let path = "/metadata/labels/a~1b~0c";
        assert_eq!(
            found,
            json!([
                {"op": "test", "path": path, "value": "1"},
                {"op": "add", "path": "/spec/list/-", "value": [1, 2]},
                {"op": "replace", "path": path, "value": true},
                {"op": "remove", "path": "/spec/other"},
            ])
        );
    }
}
