//! Pods for tests.

use serde_json::{Value, json};

use super::START;
use crate::{Instant, Time};

/// A pod, changed step by step: `Pod::new("a").phase("Failed").into()`.
#[derive(Clone, Debug)]
pub struct Pod(Value);

impl Pod {
    /// A running pod of the namespace `default` on the node `node`, created when the
    /// harness starts.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "generation": 1,
                "creationTimestamp": time(START),
            },
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        }))
    }

    /// Sets the field that a JSON pointer names. Its parent must exist.
    #[must_use]
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer to a field");
        let parent = self.0.pointer_mut(parent).and_then(Value::as_object_mut);
        let parent = parent.expect("the field's parent");
        parent.insert(name.to_owned(), value.into());
        self
    }

    /// Puts it into another namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.set("/metadata/namespace", namespace)
    }

    /// Gives it another uid than the harness does.
    #[must_use]
    pub fn uid(self, uid: &str) -> Self {
        self.set("/metadata/uid", uid)
    }

    /// Sets when it was created.
    #[must_use]
    pub fn created(self, at: Instant) -> Self {
        self.set("/metadata/creationTimestamp", time(at))
    }

    /// Marks it as deleted when the harness started.
    #[must_use]
    pub fn terminating(self) -> Self {
        self.set("/metadata/deletionTimestamp", time(START))
    }

    /// Gives it the finalizer `test/keep`: a deletion only marks it.
    #[must_use]
    pub fn finalizer(self) -> Self {
        self.set("/metadata/finalizers", json!(["test/keep"]))
    }

    /// Binds it to another node; an empty name is none.
    #[must_use]
    pub fn node(self, node: &str) -> Self {
        self.set("/spec/nodeName", node)
    }

    /// Adds a toleration.
    #[must_use]
    pub fn toleration(mut self, toleration: Value) -> Self {
        let spec = self.0.pointer_mut("/spec").and_then(Value::as_object_mut);
        let spec = spec.expect("a pod's spec");
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        let tolerations = tolerations.as_array_mut();
        tolerations.expect("a pod's tolerations").push(toleration);
        self
    }

    /// Tolerates the `NoExecute` taint of this key for so many seconds, or forever.
    #[must_use]
    pub fn tolerates(self, key: &str, seconds: Option<i64>) -> Self {
        self.toleration(json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
        }))
    }

    /// Sets the phase.
    #[must_use]
    pub fn phase(self, phase: &str) -> Self {
        self.set("/status/phase", phase)
    }

    /// Sets the reason in the status.
    #[must_use]
    pub fn reason(self, reason: &str) -> Self {
        self.set("/status/reason", reason)
    }

    /// Sets the conditions in the status.
    #[must_use]
    pub fn conditions(self, conditions: Value) -> Self {
        self.set("/status/conditions", conditions)
    }
}

impl From<Pod> for Value {
    fn from(pod: Pod) -> Self {
        pod.0
    }
}

fn time(at: Instant) -> String {
    Time::from(at).to_string()
}
