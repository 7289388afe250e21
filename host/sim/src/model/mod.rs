//! The model: objects, versions and the rules of the API, as plain data and
//! functions. No clock, no sockets: `now` is an argument, uids and generated
//! names come from a seeded generator.

mod access;
mod addresses;
mod apply;
mod binding;
mod create;
mod decode;
mod definitions;
mod delete;
mod eviction;
mod import;
mod lifecycle;
mod managed_fields;
mod namespaces;
mod options;
mod patch;
mod read;
mod reviews;
mod scale;
mod store;
mod strategy;
mod update;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

pub use delete::DeleteAnswer;
pub(crate) use options::APPLY;
pub use options::{DeleteOptions, ListOptions, Match, WriteOptions};
pub use read::Page;
pub use store::Event;
pub use watch::{Watch, WatchStart};

use crate::access::GROUP;
use crate::body::Body;
use crate::object::Object;
use crate::resource::{self, Resource};
use crate::rng::Rng;
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;
use access::Access;
use definitions::Definitions;
use store::Collection;

/// etcd's limit of a request, in bytes (`--max-request-bytes`).
const MOST_STORED: usize = 1_572_864;

/// The configuration of a model.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seeds uids and generated names.
    pub seed: u64,
    /// How long the history keeps changes, for watches, pages and exact lists.
    pub history: Duration,
    /// The most changes of one resource in the history.
    pub history_events: usize,
    /// The address that `GET /api` returns to clients. The host does not use it. The
    /// default is that of the server whose exchanges were recorded, so that a replay
    /// compares equal.
    pub advertised_address: String,
    /// The shortest timeout of a watch without a requested one.
    pub watch_timeout: Duration,
    /// How long new pods tolerate nodes that are not ready or unreachable by default
    /// (the admission plugin `DefaultTolerationSeconds`); none: it is off.
    pub default_toleration_seconds: Option<i64>,
    /// The time between bookmarks of a watch with bookmarks.
    pub bookmark_interval: Duration,
    /// Authorization by RBAC; none: every request is allowed.
    pub rbac: Option<Rbac>,
    /// Records how every object was deleted (`Model::deletions`), for as long as the
    /// model lives.
    pub remember_deletions: bool,
}

/// The configuration of a server with RBAC.
#[derive(Clone)]
pub struct Rbac {
    /// The token of a user in the group `system:masters`. The tokens of
    /// `ServiceAccounts` are signed with a key made from it.
    pub administrator_token: String,
}

impl std::fmt::Debug for Rbac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rbac")
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 0,
            history: Duration::from_mins(5),
            history_events: 20_000,
            advertised_address: "127.0.0.1:16443".to_owned(),
            watch_timeout: Duration::from_mins(30),
            default_toleration_seconds: None,
            bookmark_interval: Duration::from_mins(1),
            rbac: None,
            remember_deletions: true,
        }
    }
}

/// A step of an object's deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionStep {
    /// When.
    pub at: Time,
    /// What happened.
    pub kind: DeletionKind,
}

/// The steps of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionKind {
    /// A DELETE or an eviction was accepted (not a dry run).
    Requested,
    /// The object got its `deletionTimestamp`.
    Marked,
    /// The object was removed, at this version.
    Removed(u64),
}

/// The aggregated documents of discovery, as JSON, once they were requested. They change with
/// the served resources alone.
#[derive(Debug, Default)]
pub(crate) struct AggregatedDocuments {
    /// Of the core group.
    pub(crate) core: OnceLock<Bytes>,
    /// Of all other groups.
    pub(crate) others: OnceLock<Bytes>,
}

/// The state of an API server.
#[derive(Debug)]
pub struct Model {
    config: Config,
    rng: Rng,
    version: u64,
    resources: Vec<Arc<Resource>>,
    /// What discovery says about the resources.
    aggregated: AggregatedDocuments,
    collections: BTreeMap<Arc<str>, Collection>,
    definitions: Definitions,
    deletions: BTreeMap<String, Vec<DeletionStep>>,
    touched: Vec<Arc<str>>,
    access: Access,
}

impl Model {
    /// A server that has just started: the system's namespaces, nothing else.
    pub fn new(config: Config, now: Time) -> Result<Self> {
        let resources: Vec<Arc<Resource>> = resource::builtin().into_iter().map(Arc::new).collect();
        let mut model = Model {
            rng: Rng::new(config.seed),
            access: Access::new(&config),
            config,
            version: 1,
            collections: resources
                .iter()
                .map(|resource| (resource.store.clone(), Collection::default()))
                .collect(),
            resources,
            definitions: Definitions::default(),
            aggregated: AggregatedDocuments::default(),
            deletions: BTreeMap::new(),
            touched: Vec::new(),
        };
        for name in ["kube-system", "kube-public", "kube-node-lease", "default"] {
            model.ensure_namespace(now, name)?;
        }
        if model.config.rbac.is_some() {
            model.bootstrap_roles(now)?;
        }
        // A watch from before the start is too old.
        model.compact();
        Ok(model)
    }

    /// The configuration it was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn aggregated_documents(&self) -> &AggregatedDocuments {
        &self.aggregated
    }

    /// The version of the latest change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Every resource that is served.
    #[must_use]
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resource of that group, version and plural name.
    #[must_use]
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| {
            resource.plural == plural && resource.group == group && resource.version == version
        })
    }

    /// The resource whose objects have that `apiVersion` and `kind`.
    #[must_use]
    pub fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources
            .iter()
            .find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// The deletion steps of the object with that uid.
    #[must_use]
    pub fn deletions_of(&self, uid: &str) -> &[DeletionStep] {
        self.deletions.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The deletion history of every object that has one, by uid.
    pub fn deletions(&self) -> impl Iterator<Item = (&str, &[DeletionStep])> {
        self.deletions
            .iter()
            .map(|(uid, steps)| (uid.as_str(), steps.as_slice()))
    }

    /// Drops all history: the server answers 410 to every watch that has not caught up,
    /// to every page token and to every exact list of an older version.
    pub fn compact(&mut self) {
        let version = self.version;
        for collection in self.collections.values_mut() {
            collection.compact(version);
        }
    }

    /// The collections that changed since the last call.
    pub fn take_touched(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.touched)
    }

    /// Creates the namespace if it does not exist.
    pub fn ensure_namespace(&mut self, now: Time, name: &str) -> Result<()> {
        let Some(resource) = self.resource("", "v1", "namespaces").cloned() else {
            return Err(Status::internal("no namespaces resource"));
        };
        if self.collection(&resource)?.get(name).is_none() {
            let target = Target::new(&resource, "", "");
            let body = Body::Json(json!({"metadata": {"name": name}}));
            self.create(now, &target, body, &WriteOptions::default())?;
        }
        Ok(())
    }

    fn collection(&self, resource: &Resource) -> Result<&Collection> {
        self.collections
            .get(&resource.store)
            .ok_or_else(|| Status::internal(format!("no collection {}", resource.store)))
    }

    fn collection_mut(&mut self, resource: &Resource) -> Result<&mut Collection> {
        self.collections
            .get_mut(&resource.store)
            .ok_or_else(|| Status::internal(format!("no collection {}", resource.store)))
    }

    /// The stored object, or 404.
    fn stored(&self, target: &Target) -> Result<&StoredObject> {
        self.collection(&target.resource)?
            .get(&target.key())
            .ok_or_else(|| Status::not_found(target.resource.group_resource(), &target.name))
    }

    /// Writes an object under the next version. A dry run only returns the object that
    /// would be stored.
    fn commit(
        &mut self,
        now: Time,
        target: &Target,
        object: Object,
        dry_run: bool,
    ) -> Result<StoredObject> {
        if dry_run {
            return StoredObject::new(&target.resource, &object);
        }
        let stored = self.next(target, object)?;
        self.put(now, target, stored.clone())?;
        Ok(stored)
    }

    /// The object under the next version.
    fn next(&self, target: &Target, mut object: Object) -> Result<StoredObject> {
        object.metadata.resource_version = (self.version + 1).to_string();
        let stored = StoredObject::new(&target.resource, &object)?;
        // Objects of built-in kinds are smaller in etcd than here, where they are JSON.
        if target.resource.custom.is_some() && stored.len() > MOST_STORED {
            return Err(Status::unclassified("etcdserver: request is too large"));
        }
        Ok(stored)
    }

    /// Stores an object, which has the next version.
    fn put(&mut self, now: Time, target: &Target, object: StoredObject) -> Result<()> {
        let version = object.version();
        self.collection_mut(&target.resource)?
            .put(&target.key(), now, version, object);
        self.advance(now, &target.resource, version);
        Ok(())
    }

    /// Removes an object under the next version. Returns its last state.
    fn remove(
        &mut self,
        now: Time,
        target: &Target,
        last: &StoredObject,
        dry_run: bool,
    ) -> Result<StoredObject> {
        if dry_run {
            return Ok(last.clone());
        }
        let version = self.version + 1;
        let gone = last.at_version(version)?;
        self.collection_mut(&target.resource)?
            .remove(&target.key(), now, version, gone.clone());
        let uid = gone.metadata()?.uid;
        self.note_deletion(now, &uid, DeletionKind::Removed(version));
        self.advance(now, &target.resource, version);
        Ok(gone)
    }

    fn advance(&mut self, now: Time, resource: &Resource, version: u64) {
        self.version = version;
        if resource.group == GROUP {
            self.access.forget_policy();
        }
        let history = i64::try_from(self.config.history.as_secs()).unwrap_or(i64::MAX);
        let oldest = now.after(history.saturating_neg());
        let limit = self.config.history_events;
        if let Some(collection) = self.collections.get_mut(&resource.store) {
            collection.trim(oldest, limit);
        }
        if !self.touched.contains(&resource.store) {
            self.touched.push(resource.store.clone());
        }
    }

    fn note_deletion(&mut self, at: Time, uid: &str, kind: DeletionKind) {
        if !self.config.remember_deletions {
            return;
        }
        self.deletions
            .entry(uid.to_owned())
            .or_default()
            .push(DeletionStep { at, kind });
    }
}
