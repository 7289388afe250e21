//! Objects of any kind, on any API server.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, PATIENCE, accepted_deletions, text};

/// Long enough for every cascade, and shorter than any period of polling that could
/// hide a missed event.
pub(crate) const SETTLED: Duration = Duration::from_secs(5);

impl Bench {
    /// Creates an object, in the test's own namespace instead of `default`; returns the
    /// stored object.
    pub(crate) async fn create(&self, mut object: Value) -> Value {
        if object["metadata"]["namespace"] == "default" {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        let collection = collection(&object);
        let deadline = Instant::now() + PATIENCE;
        let created = loop {
            let (status, answer) = self.send("POST", &collection, &object).await;
            if status == 201 {
                break answer;
            }
            // The namespace's service account, or the resource of a new definition, may
            // not exist yet.
            assert!(
                [403, 404].contains(&status) && Instant::now() < deadline,
                "{collection}: {status} {answer}"
            );
            sleep(Duration::from_millis(100)).await;
        };
        self.remember(path(&created));
        created
    }

    /// The present state of the object; none if this object is gone.
    pub(crate) async fn now(&self, object: &Value) -> Option<Value> {
        let (status, found) = self.send("GET", &path(object), &Value::Null).await;
        assert!([200, 404].contains(&status), "{status} {found}");
        (found["metadata"]["uid"] == object["metadata"]["uid"]).then_some(found)
    }

    /// Deletes an object as a user does, with a propagation policy or the
    /// default.
    pub(crate) async fn delete(&self, object: &Value, policy: &str) {
        let options = match policy {
            "" => Value::Null,
            policy => json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            }),
        };
        self.must("DELETE", &path(object), &options).await;
    }

    /// Merges this into an object's metadata.
    pub(crate) async fn set(&self, object: &Value, metadata: &Value) -> Value {
        let patch = json!({"metadata": metadata});
        self.must("PATCH", &path(object), &patch).await
    }

    /// Waits until all of these objects are gone.
    pub(crate) async fn until_gone(&self, objects: &[&Value]) {
        let deadline = Instant::now() + PATIENCE;
        for object in objects {
            while let Some(left) = self.now(object).await {
                assert!(Instant::now() < deadline, "it does not go: {left}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Waits until everything has settled, then asserts that these objects still exist
    /// and are not terminating.
    pub(crate) async fn stay(&self, objects: &[&Value]) {
        sleep(SETTLED).await;
        for object in objects {
            let found = self.now(object).await.expect("it has to stay");
            assert!(!is_going(&found), "{found}");
            self.assert_deletions(object, 0);
        }
    }

    /// The owner references of an object.
    pub(crate) async fn owners(&self, object: &Value) -> Vec<Value> {
        let found = self.now(object).await.expect("the object is gone");
        let references = found["metadata"]["ownerReferences"].as_array();
        references.cloned().unwrap_or_default()
    }

    /// The finalizers of an object.
    pub(crate) async fn finalizers(&self, object: &Value) -> Vec<Value> {
        let found = self.now(object).await.expect("the object is gone");
        let finalizers = found["metadata"]["finalizers"].as_array();
        finalizers.cloned().unwrap_or_default()
    }

    /// Asserts how often a deletion was accepted. Only the API server in memory can
    /// count this.
    #[track_caller]
    pub(crate) fn assert_deletions(&self, object: &Value, count: usize) {
        if let Some(sim) = &self.sim {
            let uid = text(object, "/metadata/uid");
            assert_eq!(accepted_deletions(sim, &uid), count, "{object}");
        }
    }
}

/// Whether an object is terminating.
pub(crate) fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The path of an object.
pub(crate) fn path(object: &Value) -> String {
    format!("{}/{}", collection(object), text(object, "/metadata/name"))
}

/// The path of the objects of its kind, in its namespace. The plural of all kinds in
/// these tests ends in a plain `s`.
fn collection(object: &Value) -> String {
    let api_version = text(object, "/apiVersion");
    let root = if api_version.contains('/') {
        "apis"
    } else {
        "api"
    };
    let plural = format!("{}s", text(object, "/kind").to_lowercase());
    match &*text(object, "/metadata/namespace") {
        "" => format!("/{root}/{api_version}/{plural}"),
        namespace => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}"),
    }
}
