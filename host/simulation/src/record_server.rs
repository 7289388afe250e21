//! The part of the API server that holds the records of controllers: Controllers and
//! `ControllerRevisions`.
//!
//! It is another model than that of the cluster's objects, because no guest of a simulation
//! should have to know the host's own.

use std::cell::RefCell;
use std::collections::BTreeMap;

use davit_core::api::{API_VERSION, ControllerSpec, HostStatus, KIND};
use davit_core::record::Owner;
use davit_core::request::{Request, RequestError, record};
use davit_sim::response::{Reply, respond};
use davit_sim::{Config, Model, Time, direct};
use serde_json::{Value, json};

use crate::namespace::NAMESPACE;
use crate::server::{read, received};

/// Controllers and `ControllerRevisions`.
#[derive(Debug)]
pub(crate) struct RecordServer {
    model: Model,
    start: Time,
    /// The number of changes of specs.
    changes: u64,
    /// The recorded specs that were read, by owner and revision.
    specs: RefCell<BTreeMap<(Owner, String), ReadSpec>>,
}

/// A recorded spec, and the version of its object that it was read from.
type ReadSpec = (u64, Option<ControllerSpec>);

impl RecordServer {
    /// A server without Controllers.
    #[expect(
        clippy::expect_used,
        reason = "these objects are valid, whatever the seed is"
    )]
    pub(crate) fn new() -> Self {
        let start = Time::from_unix(1_780_000_000);
        let mut model = Model::new(Config::default(), start).expect("a server without objects");
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        });
        for object in [definition(), namespace] {
            direct::create(&mut model, start, object).expect("the first objects");
        }
        Self {
            model,
            start,
            changes: 0,
            specs: RefCell::default(),
        }
    }

    /// Creates a Controller. The specs of a former one of this name are still there.
    pub(crate) fn create(&mut self, name: &str, uid: &str) {
        let controller = json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": name, "uid": uid, "generation": 1},
            "spec": {},
        });
        let created = self.model.import(self.start, controller);
        debug_assert!(created.is_ok(), "{created:?}");
    }

    /// Deletes a Controller. Nobody collects its specs yet.
    pub(crate) fn remove(&mut self, name: &str) {
        let options = davit_sim::model::DeleteOptions::default();
        let kind = (API_VERSION, KIND);
        // A Controller that was never created has nothing to delete.
        let _ = direct::delete(&mut self.model, self.start, kind, "", name, &options);
    }

    /// An operator changes a Controller: its status has another version.
    pub(crate) fn change(&mut self, name: &str) {
        self.changes += 1;
        let spec = json!({"change": self.changes});
        self.apply(name, "spec", &spec);
    }

    /// Another host writes that it runs this controller.
    pub(crate) fn write_host(&mut self, name: &str, host: &HostStatus) {
        self.apply(name, "status", &json!({"host": host}));
    }

    fn apply(&mut self, name: &str, part: &str, fields: &Value) {
        let object = json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": name},
            part: fields,
        });
        let applied = direct::apply(&mut self.model, self.start, object);
        debug_assert!(applied.is_ok(), "{applied:?}");
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, now: Time, request: &Request) -> Result<Vec<u8>, RequestError> {
        match respond(&mut self.model, now, &received(request)) {
            Reply::Complete(response) => read(response),
            Reply::Watch(_) => Err(crate::server::reset("nobody watches records")),
        }
    }

    /// The recorded spec of a revision. Every write to a record is checked against the specs
    /// of all revisions in use: each version of an object is read once.
    pub(crate) fn spec(&self, owner: &Owner, revision: &str) -> Option<ControllerSpec> {
        let name = format!("{}-{revision}", owner.name);
        let kind = ("apps/v1", "ControllerRevision");
        let version = direct::version(&self.model, kind, NAMESPACE, &name).ok()?;
        let key = (owner.clone(), revision.to_owned());
        let mut specs = self.specs.borrow_mut();
        let read = specs.get(&key).filter(|(read, _)| *read == version);
        if let Some((_, spec)) = read {
            return spec.clone();
        }
        let object = direct::get(&self.model, kind.0, kind.1, NAMESPACE, &name);
        let body = object.ok()?.to_string();
        let spec = record::spec(owner, revision, Ok(body.as_bytes())).ok()?;
        specs.insert(key, (version, spec.clone()));
        spec
    }
}

/// The definition of Controllers. The server does not check their fields.
fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "controllers.davit.dev"},
        "spec": {
            "group": "davit.dev",
            "scope": "Cluster",
            "names": {"plural": "controllers", "kind": KIND},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}
