//! A cluster for the garbage collector: objects that own each other, and the
//! host with the collector alone.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultId, FaultTiming, Match, Refusal};
use davit_sim::model::{DeleteOptions, DeletionKind, DeletionStep};
use davit_sim::{ConnectionClosed, RequestRecord, Sim, SimBody};
use http::Request;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use crate::bench::{Bench, PATIENCE, RunningHost, deploy, on_the_sim, text};
use crate::objects::SETTLED;

/// An API server, and its answers to discovery.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    edit: Arc<Mutex<Edit>>,
}

/// Changes the answers of discovery.
type Edit = Box<dyn Fn(&mut Value) -> Discovery + Send>;

/// Whether discovery answers.
pub(crate) enum Discovery {
    Answers,
    Fails,
}

/// A configuration with the collector alone.
pub(crate) fn configuration(mode: &str, config: &str) -> String {
    format!(
        "controllers:\n- name: gc\n  module: {{builtin: garbage-collector}}\n  mode: {mode}\n  config: {config}\n"
    )
}

/// Runs a test on virtual time.
pub(crate) fn test<F: Future<Output = ()>>(test: impl FnOnce(Cluster) -> F) {
    on_the_sim(|bench: Bench| {
        test(Cluster {
            sim: bench.sim().clone(),
            edit: Arc::new(Mutex::new(Box::new(|_| Discovery::Answers))),
        })
    });
}

impl Cluster {
    /// Starts the host with the collector and waits until it has started.
    pub(crate) async fn collector(&self) -> RunningHost {
        self.collector_with("Enforce", "{}").await
    }

    pub(crate) async fn collector_with(&self, mode: &str, config: &str) -> RunningHost {
        let mut running = self.host();
        running.apply(&configuration(mode, config)).await;
        running.started().await;
        running
    }

    pub(crate) fn host(&self) -> RunningHost {
        let cluster = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { cluster.serve(request).await }
        });
        RunningHost::start(deploy::davit_through(&self.sim, service))
    }

    /// Changes the answers of discovery from now on; the served resources stay.
    pub(crate) fn discovery(&self, edit: impl Fn(&mut Value) -> Discovery + Send + 'static) {
        *self.edit.lock().unwrap() = Box::new(edit);
    }

    async fn serve(
        &self,
        request: Request<Body>,
    ) -> Result<http::Response<Either<SimBody, Full<Bytes>>>, ConnectionClosed> {
        let is_discovery = ["/api", "/apis"].contains(&request.uri().path());
        let answer = self.sim.call(request).await?;
        let (mut parts, body) = answer.into_parts();
        if !is_discovery {
            return Ok(http::Response::from_parts(parts, Either::Left(body)));
        }
        let bytes = body.collect().await?.to_bytes();
        let mut value: Value = serde_json::from_slice(&bytes).unwrap();
        match self.edit.lock().unwrap()(&mut value) {
            Discovery::Answers => {}
            Discovery::Fails => parts.status = http::StatusCode::SERVICE_UNAVAILABLE,
        }
        parts.headers.remove(http::header::CONTENT_LENGTH);
        let body = Full::from(serde_json::to_vec(&value).unwrap());
        Ok(http::Response::from_parts(parts, Either::Right(body)))
    }

    /// Creates an object; returns the stored object.
    pub(crate) fn create(&self, object: Value) -> Value {
        self.sim.create(object).unwrap()
    }

    /// The present state of the object; none if this object is gone.
    pub(crate) fn now(&self, object: &Value) -> Option<Value> {
        let [api_version, kind, namespace, name] = coordinates(object);
        let found = self.sim.get(&api_version, &kind, &namespace, &name).ok()?;
        (found["metadata"]["uid"] == object["metadata"]["uid"]).then_some(found)
    }

    pub(crate) fn is_there(&self, object: &Value) -> bool {
        self.now(object).is_some()
    }

    /// Deletes an object as a user does, with a propagation policy or the
    /// default.
    pub(crate) fn delete(&self, object: &Value, policy: &str) {
        let options = DeleteOptions {
            propagation_policy: (!policy.is_empty()).then(|| policy.to_owned()),
            ..DeleteOptions::default()
        };
        let [api_version, kind, namespace, name] = coordinates(object);
        self.sim
            .delete(&api_version, &kind, &namespace, &name, &options)
            .unwrap();
    }

    /// Merges this into an object's metadata.
    pub(crate) fn set(&self, object: &Value, metadata: &Value) -> Value {
        let [api_version, kind, namespace, name] = coordinates(object);
        let mut patch = json!({
            "apiVersion": api_version, "kind": kind, "metadata": metadata,
        });
        patch["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            patch["metadata"]["namespace"] = json!(namespace);
        }
        self.sim.apply(patch).unwrap()
    }

    /// Waits until it holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until all of these objects are gone.
    pub(crate) async fn until_gone(&self, objects: &[&Value]) {
        let deadline = Instant::now() + PATIENCE;
        while let Some(left) = objects.iter().find_map(|it| self.now(it)) {
            assert!(Instant::now() < deadline, "it does not go: {left}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until everything has settled, then asserts that these objects still exist
    /// and are not terminating.
    pub(crate) async fn stay(&self, objects: &[&Value]) {
        sleep(SETTLED).await;
        for object in objects {
            assert!(self.is_there(object), "{object} is gone");
            assert_eq!(self.deletions(object), 0, "{object}");
        }
    }

    /// How often a deletion of an object was accepted.
    pub(crate) fn deletions(&self, object: &Value) -> usize {
        let steps = self.sim.deletions_of(&uid(object));
        let requested = |step: &&DeletionStep| step.kind == DeletionKind::Requested;
        steps.iter().filter(requested).count()
    }

    /// The names of the objects of a kind in the default namespace.
    pub(crate) fn names(&self, api_version: &str, kind: &str) -> BTreeSet<String> {
        let objects = self.sim.list(api_version, kind, "").unwrap();
        objects
            .iter()
            .map(|it| text(it, "/metadata/name"))
            .collect()
    }

    /// The owner references of an object.
    pub(crate) fn owners(&self, object: &Value) -> Vec<Value> {
        let found = self.now(object).expect("the object is gone");
        let references = found["metadata"]["ownerReferences"].as_array();
        references.cloned().unwrap_or_default()
    }

    /// The events about an object: reason and message.
    pub(crate) fn events(&self, object: &Value) -> Vec<(String, String)> {
        let events = self.sim.list("v1", "Event", "").unwrap();
        events
            .iter()
            .filter(|it| it["involvedObject"]["uid"] == object["metadata"]["uid"])
            .map(|it| (text(it, "/reason"), text(it, "/message")))
            .collect()
    }

    /// The requests that were not watches, lists or discovery.
    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        let mut log = deploy::requests(&self.sim);
        log.retain(|it| {
            let asks = ["get", "delete", "patch", "create", "update"];
            asks.contains(&it.work.verb.as_str()) && !it.work.resource.is_empty()
        });
        log
    }

    /// Refuses every matching request; returns the fault, to remove it.
    pub(crate) fn refuse(&self, matches: Match, refusal: Refusal) -> FaultId {
        self.sim.add_fault(Fault {
            matches,
            when: FaultTiming::Always,
            action: Action::Refuse(refusal),
        })
    }
}

/// An object without owners: a `ConfigMap`, which is removed immediately when it is
/// deleted.
pub(crate) fn config_map(name: &str) -> Value {
    object("v1", "ConfigMap", "default", name)
}

/// An object of a kind whose API needs nothing but metadata.
pub(crate) fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name},
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// A pod that no node runs: it is removed immediately when it is deleted.
pub(crate) fn pod(name: &str) -> Value {
    let mut pod = object("v1", "Pod", "default", name);
    pod["spec"] = json!({
        "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "example.com/main"}],
    });
    pod
}

/// A replication controller that nothing runs.
pub(crate) fn rc(name: &str) -> Value {
    let mut rc = object("v1", "ReplicationController", "default", name);
    rc["spec"] = json!({
        "replicas": 0,
        "selector": {"name": name},
        "template": template(name),
    });
    rc
}

pub(crate) fn template(name: &str) -> Value {
    json!({
        "metadata": {"labels": {"name": name}},
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
    })
}

/// A reference to an object.
pub(crate) fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    })
}

/// A reference to an object that must not be deleted before the dependent.
pub(crate) fn blocking(owner: &Value) -> Value {
    let mut reference = reference(owner);
    reference["blockOwnerDeletion"] = json!(true);
    reference
}

/// A reference to an object that does not exist.
pub(crate) fn to_nowhere(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "nobody", "uid": "nowhere"})
}

/// Gives an object owners before it is created.
pub(crate) fn owned(mut object: Value, references: &[Value]) -> Value {
    object["metadata"]["ownerReferences"] = json!(references);
    object
}

/// Gives an object a finalizer before it is created.
pub(crate) fn held(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object
}

pub(crate) fn uid(object: &Value) -> String {
    text(object, "/metadata/uid")
}

fn coordinates(object: &Value) -> [String; 4] {
    [
        "/apiVersion",
        "/kind",
        "/metadata/namespace",
        "/metadata/name",
    ]
    .map(|pointer| text(object, pointer))
}

/// A definition of a custom resource in the group `example.com`.
pub(crate) fn definition(kind: &str, versions: &[&str], scope: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(position, version)| {
            json!({
                "name": version, "served": true, "storage": position == 0,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": scope, "versions": versions,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"),
                "plural": plural, "singular": singular,
            },
        },
    })
}
