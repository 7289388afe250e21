//! An API server in memory, with the objects of the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use davit::resource::Controller;
use davit::resource::definition::definition;
use davit_sim::Sim;
use http::Request;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use tower::service_fn;

/// Davit's own namespace.
pub(crate) const NAMESPACE: &str = "davit-system";
/// The digest of the tests' modules.
pub(crate) const DIGEST: &str =
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    pub(crate) client: Client,
    /// The number of the client's requests.
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Cluster {
    /// A server without Davit's definition.
    pub(crate) fn empty() -> Self {
        let now = "2026-11-20T10:00:00Z".parse().unwrap();
        let sim = Sim::new(davit_sim::Config::default(), now).unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let service = {
            let (sim, requests) = (sim.clone(), Arc::clone(&requests));
            service_fn(move |request: Request<Body>| {
                requests.fetch_add(1, Ordering::Relaxed);
                let sim = sim.clone();
                async move { sim.call(request).await }
            })
        };
        let client = Client::new(service, NAMESPACE);
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        });
        sim.create(namespace).unwrap();
        Self {
            sim,
            client,
            requests,
        }
    }

    /// A server with the definition of Controllers.
    pub(crate) fn new() -> Self {
        let cluster = Self::empty();
        cluster.define();
        cluster
    }

    pub(crate) fn define(&self) {
        let definition = serde_json::to_value(definition()).unwrap();
        self.sim.create(definition).unwrap();
    }

    /// Creates a Controller as a user does, strictly validated.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<Value, String> {
        let controller = json!({
            "apiVersion": "davit.dev/v1alpha1",
            "kind": "Controller",
            "metadata": {"name": name},
            "spec": spec,
        });
        let request = Request::post("/apis/davit.dev/v1alpha1/controllers?fieldValidation=Strict");
        let request = request
            .header("Content-Type", "application/json")
            .body(serde_json::to_vec(&controller).unwrap())
            .unwrap();
        let created = self.client.request(request).await;
        created.map_err(|error| davit::resource::describe(&error))
    }

    pub(crate) fn controllers(&self) -> Api<Controller> {
        Api::all(self.client.clone())
    }

    pub(crate) fn get(&self, name: &str) -> Value {
        self.sim
            .get("davit.dev/v1alpha1", "Controller", "", name)
            .unwrap()
    }

    /// The `ControllerRevisions` in Davit's namespace.
    pub(crate) fn revisions(&self) -> Vec<Value> {
        self.sim
            .list("apps/v1", "ControllerRevision", NAMESPACE)
            .unwrap()
    }

    /// Changes an object as a merge patch does, status included.
    pub(crate) fn change(&self, name: &str, mut change: Value) {
        change["apiVersion"] = json!("davit.dev/v1alpha1");
        change["kind"] = json!("Controller");
        change["metadata"]["name"] = json!(name);
        self.sim.apply(change).unwrap();
    }
}

/// A spec with a built-in module and this threshold.
pub(crate) fn spec(threshold: u32) -> Value {
    json!({
        "module": {"builtin": "podgc", "digest": DIGEST},
        "mode": "DryRun",
        "config": {"terminatedPodThreshold": threshold},
    })
}
