//! The cluster that an object is restored in: what exists there, and the creation.

use anyhow::{Context as _, Result, anyhow, bail};
use davit_cluster::api::{Api, ApiSettings};
use davit_cluster::clock::Clock;
use davit_cluster::discovery::discover;
use davit_core::mapping::{Discovery, ServedResource};
use davit_core::object::{ApiResource, ObjectRef};
use davit_core::request::{path, with_query};
use hyper::Request;
use kube::Client;
use serde_json::Value;

use super::object::{Owner, Restorable};
use crate::commands::print::{part, text_at};
use crate::resource::describe;

/// Who creates the object, in its managed fields.
const MANAGER: &str = "davit-restore";

/// A cluster, with the resources that it serves.
pub(super) struct Cluster {
    client: Client,
    discovery: Discovery,
}

/// Whether an object is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creation {
    /// The API server checks the object, and stores nothing.
    DryRun,
    /// The object is created.
    Apply,
}

impl Cluster {
    pub(super) async fn discover(client: Client) -> Result<Self> {
        let api = Api::new(client.clone(), Clock::start(), &ApiSettings::default());
        let discovery = discover(&api).await;
        Ok(Self {
            client,
            discovery: discovery.context("the API server does not say what it serves")?,
        })
    }

    /// Fails if the name is taken.
    pub(super) async fn check_free(&self, target: &ObjectRef) -> Result<()> {
        let served = self.served(&target.api_version, &target.kind)?;
        let found = self.get(&served.resource, &target.namespace, &target.name);
        let Some(found) = found.await.with_context(|| format!("get {target}"))? else {
            return Ok(());
        };
        let uid = text_at(&found, "/metadata/uid");
        if uid != target.uid {
            bail!(
                "the name of {target} belongs to another object, with the uid {uid}: perhaps an \
                 earlier davit restore has created that one"
            );
        }
        if is_being_deleted(&found) {
            bail!("{target} ({uid}) is still being deleted: restore it once it is gone");
        }
        bail!("{target} ({uid}) exists: it was not deleted");
    }

    /// Leaves out what does not exist any more: owners and the node of a pod.
    pub(super) async fn check_references(
        &self,
        restorable: &mut Restorable,
        namespace: &str,
    ) -> Result<()> {
        for owner in restorable.owners() {
            let gone = self.check_owner(&owner, namespace).await;
            let gone = gone.with_context(|| {
                let Owner { kind, name, .. } = &owner;
                format!("whether the owner {kind} {name} still exists is not known")
            })?;
            if let Some(why) = gone {
                restorable.drop_owner(&owner, &why);
            }
        }
        if let Some(node) = restorable.node() {
            let nodes = ApiResource::new("", "v1", "nodes");
            let found = self.get(&nodes, "", node).await;
            if found
                .with_context(|| format!("get v1 Node {node}"))?
                .is_none()
            {
                restorable.drop_node();
            }
        }
        Ok(())
    }

    /// Creates the object. Returns it as the API server answers.
    pub(super) async fn create(&self, object: &Value, creation: Creation) -> Result<Value> {
        let of = |pointer| text_at(object, pointer);
        let served = self.served(of("/apiVersion"), of("/kind"))?;
        let path = path(&served.resource, of("/metadata/namespace"), "", "");
        let dry_run = match creation {
            Creation::DryRun => "All",
            Creation::Apply => "",
        };
        let path = with_query(path, &[("dryRun", dry_run), ("fieldManager", MANAGER)]);
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(object)?)?;
        let created = self.client.request::<Value>(request).await;
        created.map_err(|error| anyhow!("the API server refuses the object: {}", describe(&error)))
    }

    /// Why an owner does not count; none if it lives.
    async fn check_owner(&self, owner: &Owner, namespace: &str) -> Result<Option<String>> {
        let mapping = &self.discovery.mapping;
        let Some(served) = mapping.by_kind(&owner.api_version, &owner.kind) else {
            if !self.discovery.is_complete() {
                bail!("the API server does not say everything that it serves: retry later");
            }
            return Ok(Some("the API server does not serve its kind".to_owned()));
        };
        let namespace = if served.namespaced { namespace } else { "" };
        let found = self.get(&served.resource, namespace, &owner.name).await?;
        Ok(match found {
            None => Some("it is gone".to_owned()),
            Some(found) if text_at(&found, "/metadata/uid") != owner.uid => {
                let uid = text_at(&found, "/metadata/uid");
                Some(format!(
                    "it is gone, and another object, {uid}, has its name"
                ))
            }
            Some(found) if is_being_deleted(&found) => Some("it is being deleted".to_owned()),
            Some(_) => None,
        })
    }

    fn served(&self, api_version: &str, kind: &str) -> Result<&ServedResource> {
        let served = self.discovery.mapping.by_kind(api_version, kind);
        served.ok_or_else(|| {
            anyhow!(
                "the API server does not serve {api_version} {kind}: install its definition, or \
                 restore the object in this version from --output json"
            )
        })
    }

    /// An object; none if it does not exist.
    async fn get(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>> {
        if matches!(name, "" | "." | "..") || name.contains(['/', '%']) {
            bail!("\"{name}\" is not a valid object name");
        }
        let request = Request::get(path(resource, namespace, name, "")).body(Vec::new())?;
        match self.client.request::<Value>(request).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(anyhow!(describe(&error))),
        }
    }
}

fn is_being_deleted(object: &Value) -> bool {
    !part(object, "/metadata/deletionTimestamp").is_null()
}
