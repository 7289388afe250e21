//! An API server with RBAC and the objects of `deploy/base`, with the objects of the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use davit::resource::Controller;
use davit_sim::Sim;
use davit_sim::model::DeleteOptions;
use http::Request;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use tower::service_fn;

use crate::deploy::{self, Allowed};

pub(crate) use crate::deploy::NAMESPACE;
/// The digest of the tests' modules.
pub(crate) const DIGEST: &str =
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

pub(crate) struct Cluster {
    pub(crate) sim: Allowed,
    /// An operator's, with every permission.
    pub(crate) client: Client,
    /// The host's, with the permissions of Davit's account.
    pub(crate) davit: Client,
    /// The number of the host's requests.
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Cluster {
    /// A server without Davit's definition.
    pub(crate) fn empty() -> Self {
        let cluster = Self::new();
        undefine(&cluster.sim);
        cluster
    }

    /// A server with the definition of Controllers.
    pub(crate) fn new() -> Self {
        let sim = deploy::empty("2026-11-20T10:00:00Z".parse().unwrap());
        deploy::install_base(&sim);
        let requests = Arc::new(AtomicUsize::new(0));
        let service = {
            let (sim, requests) = (sim.clone(), Arc::clone(&requests));
            service_fn(move |request: Request<Body>| {
                requests.fetch_add(1, Ordering::Relaxed);
                let sim = sim.clone();
                async move { sim.call(request).await }
            })
        };
        Self {
            client: deploy::administrator(&sim),
            davit: deploy::davit_through(&sim, service),
            requests,
            sim: Allowed(sim),
        }
    }

    pub(crate) fn define(&self) {
        deploy::install(&self.sim, "crds/controllers.davit.dev.yaml");
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
        deploy::controller(&self.sim, name)
    }

    /// The `ControllerRevisions` in Davit's namespace.
    pub(crate) fn revisions(&self) -> Vec<Value> {
        self.sim
            .list("apps/v1", "ControllerRevision", NAMESPACE)
            .unwrap()
    }

    /// Changes an object as a merge patch does, status included.
    pub(crate) fn change(&self, name: &str, change: Value) {
        deploy::change(&self.sim, name, change);
    }
}

/// Deletes Davit's definition.
pub(crate) fn undefine(sim: &Sim) {
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let (name, options) = ("controllers.davit.dev", DeleteOptions::default());
    sim.delete(version, kind, "", name, &options).unwrap();
}

/// A spec with a built-in module and this threshold.
pub(crate) fn spec(threshold: u32) -> Value {
    json!({
        "module": {"builtin": "podgc", "digest": DIGEST},
        "mode": "DryRun",
        "config": {"terminatedPodThreshold": threshold},
    })
}
