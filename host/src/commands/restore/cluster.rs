//! The cluster that an object is restored in: what exists there, and the creation.

use anyhow::{Context as _, Result, anyhow, bail};
use davit_cluster::api::Api;
use davit_cluster::clock::Clock;
use davit_cluster::discovery::discover;
use davit_core::mapping::{Discovery, ServedResource};
use davit_core::object::{ApiResource, ObjectRef};
use davit_core::request::path;
use hyper::Request;
use kube::Client;
use serde_json::Value;

use super::object::{Owner, Restorable};
use super::volumes::Claim;
use crate::commands::print::{part, text_at};
use crate::resource::describe;

/// A cluster, with the resources that it serves.
pub(super) struct Cluster {
    client: Client,
    discovery: Discovery,
}

impl Cluster {
    #[cfg(test)]
    pub(super) const fn new(client: Client, discovery: Discovery) -> Self {
        Self { client, discovery }
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn discover(client: Client) -> Result<Self> {
        let api = Api::new(client.clone(), Clock::start(), None);
        let discovery = discover(&api).await;
        Ok(Self {
            client,
            discovery: discovery.context("the API server does not say what it serves")?,
        })
    }

    /// Fails if the name is taken, or the resource is not the one of the journal.
    pub(super) async fn check_free(&self, target: &ObjectRef, kept: &ApiResource) -> Result<()> {
        let served = self.served_like(target, kept)?;
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

    /// Leaves out what does not exist any more: owners, the node of a pod, and the claim of a
    /// volume.
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
        if let Some(claim) = restorable.claim.clone() {
            let claims = ApiResource::new("", "v1", "persistentvolumeclaims");
            let found = self.get(&claims, &claim.namespace, &claim.name).await;
            let found = found.with_context(|| {
                let Claim {
                    namespace, name, ..
                } = &claim;
                format!("get v1 PersistentVolumeClaim {namespace}/{name}")
            })?;
            let volume = text_at(&restorable.object, "/metadata/name");
            match claim.why_unbound(found.as_ref(), volume) {
                None => restorable.bind_volume(&claim),
                Some(why) => restorable.reserve_volume(&claim, &why),
            }
        }
        Ok(())
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

    /// The resource of an object, as discovery has it.
    pub(super) fn served_as(&self, object: &Value) -> Result<&ServedResource> {
        self.served(text_at(object, "/apiVersion"), text_at(object, "/kind"))
    }

    /// Fails unless discovery has the kind as the resource that the journal names: its files may
    /// have been changed, and two resources may have one kind.
    fn served_like(&self, target: &ObjectRef, kept: &ApiResource) -> Result<&ServedResource> {
        let served = self.served(&target.api_version, &target.kind)?;
        let resource = &served.resource;
        if resource != kept {
            bail!(
                "the journal has {target} as {}, and the API server serves its kind as {}: nothing \
                 is created in a resource that discovery does not confirm",
                resource_text(kept),
                resource_text(resource)
            );
        }
        if served.namespaced == target.namespace.is_empty() {
            let (is, has) = if served.namespaced {
                ("in namespaces", "no namespace")
            } else {
                ("without namespaces", "a namespace")
            };
            bail!(
                "the API server serves {} {is}, and {target} has {has} in the journal",
                resource_text(resource)
            );
        }
        Ok(served)
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
    pub(super) async fn get(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>> {
        check_segment("object name", name)?;
        if !namespace.is_empty() {
            check_segment("namespace", namespace)?;
        }
        let request = Request::get(path(resource, namespace, name, "")).body(Vec::new())?;
        match self.client.request::<Value>(request).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(anyhow!(describe(&error))),
        }
    }
}

/// A part of a path that leads nowhere else.
fn check_segment(what: &str, segment: &str) -> Result<()> {
    if matches!(segment, "" | "." | "..") || segment.contains(['/', '%']) {
        bail!("\"{segment}\" is not a valid {what}");
    }
    Ok(())
}

/// `deployments.apps/v1`
fn resource_text(resource: &ApiResource) -> String {
    let ApiResource {
        group,
        version,
        plural,
    } = resource;
    match group.as_str() {
        "" => format!("{plural}/{version}"),
        group => format!("{plural}.{group}/{version}"),
    }
}

pub(super) fn is_being_deleted(object: &Value) -> bool {
    !part(object, "/metadata/deletionTimestamp").is_null()
}

#[cfg(test)]
mod tests {
    use davit_sim::Sim;
    use davit_sim::model::DeleteOptions;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::commands::restore::testing::{Server, discovery};

    fn target(kind: &str, namespace: &str, name: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: "u-1".to_owned(),
        }
    }

    async fn refusal(target: &ObjectRef, group: &str, plural: &str) -> String {
        let cluster = Server::new([]).cluster();
        let kept = ApiResource::new(group, "v1", plural);
        let checked = cluster.check_free(target, &kept).await;
        checked.map_or_else(|error| format!("{error:#}"), |()| "free".to_owned())
    }

    #[tokio::test]
    async fn an_object_is_created_only_in_the_resource_that_discovery_and_the_journal_have() {
        let map = target("ConfigMap", "shop", "a");
        assert_eq!(refusal(&map, "", "configmaps").await, "free");
        for (group, plural) in [
            ("", "secrets"),
            ("", "../../apis/rbac.authorization.k8s.io/v1/clusterroles"),
            ("apps", "configmaps"),
        ] {
            let said = refusal(&map, group, plural).await;
            assert!(
                said.contains(plural) && said.contains("configmaps/v1"),
                "{said}"
            );
        }
        let said = refusal(&target("Widget", "shop", "a"), "", "configmaps").await;
        assert!(said.contains("does not serve v1 Widget"), "{said}");
    }

    #[tokio::test]
    async fn a_path_of_the_journal_leads_nowhere_else() {
        let said = refusal(&target("ConfigMap", "..", "a"), "", "configmaps").await;
        assert!(said.contains("\"..\" is not a valid namespace"), "{said}");
        let said = refusal(&target("ConfigMap", "shop", "a/b"), "", "configmaps").await;
        assert!(
            said.contains("\"a/b\" is not a valid object name"),
            "{said}"
        );
        let said = refusal(&target("ConfigMap", "", "a"), "", "configmaps").await;
        assert!(said.contains("in namespaces"), "{said}");
        let volume = target("PersistentVolume", "shop", "a");
        let said = refusal(&volume, "", "persistentvolumes").await;
        assert!(said.contains("without namespaces"), "{said}");
    }

    fn client(sim: &Sim) -> Client {
        let sim = sim.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let sim = sim.clone();
            async move { sim.call(request).await }
        });
        Client::new(service, "default")
    }

    fn config_map(name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    }

    /// The reference to an owner with this uid.
    fn reference(owner: &Value, uid: &str) -> Value {
        json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": uid,
        })
    }

    /// A kept pod with these owners.
    fn owned_by(owners: &[Value]) -> Restorable {
        let metadata = json!({"name": "web-0", "namespace": "default", "ownerReferences": owners});
        Restorable::of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
    }

    /// With a reference to an owner that is gone, the garbage collector deletes the object.
    #[tokio::test]
    async fn only_the_references_to_living_owners_are_kept() {
        let sim = crate::sim::start().unwrap();
        let create = |object: Value| {
            let created = sim.create(object).unwrap();
            let uid = text_at(&created, "/metadata/uid").to_owned();
            (reference(&created, &uid), uid)
        };
        let (living, _) = create(config_map("living"));
        // An owner without a namespace.
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        let (node, _) = create(node);
        let (_, successor) = create(config_map("recreated"));
        let mut dying = config_map("dying");
        dying["metadata"]["finalizers"] = json!(["example.com/backup"]);
        let (dying, dying_uid) = create(dying);
        let options = DeleteOptions::default();
        sim.delete("v1", "ConfigMap", "default", "dying", &options)
            .unwrap();
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        });

        let cluster = Cluster::discover(client(&sim)).await.unwrap();
        let mut restorable = owned_by(&[
            reference(&config_map("gone"), "u-1"),
            living.clone(),
            reference(&config_map("recreated"), "u-2"),
            dying,
            reference(&widget, "u-3"),
            node.clone(),
        ]);
        let checked = cluster.check_references(&mut restorable, "default").await;
        checked.unwrap();
        let owners = &restorable.object["metadata"]["ownerReferences"];
        assert_eq!(*owners, json!([living, node]));
        let left_out =
            |owner: &str, why: &str| format!("left out: the owner reference to {owner}: {why}");
        let another = format!("it is gone, and another object, {successor}, has its name");
        let dying = format!("ConfigMap dying ({dying_uid})");
        assert_eq!(
            restorable.notes,
            [
                left_out("ConfigMap gone (u-1)", "it is gone"),
                left_out("ConfigMap recreated (u-2)", &another),
                left_out(&dying, "it is being deleted"),
                left_out("Widget w (u-3)", "the API server does not serve its kind"),
            ]
        );
    }

    /// An object of another namespace is no owner.
    #[tokio::test]
    async fn an_owner_is_looked_up_in_the_namespace_of_the_object() {
        let sim = crate::sim::start().unwrap();
        let owner = sim.create(config_map("living")).unwrap();
        let owner = reference(&owner, text_at(&owner, "/metadata/uid"));
        let cluster = Cluster::discover(client(&sim)).await.unwrap();
        for (namespace, is_kept) in [("default", true), ("kube-system", false)] {
            let mut restorable = owned_by(std::slice::from_ref(&owner));
            let checked = cluster.check_references(&mut restorable, namespace).await;
            checked.unwrap();
            assert_eq!(!restorable.owners().is_empty(), is_kept, "{namespace}");
        }
    }

    /// An aggregated API server that is down may serve the owner.
    #[tokio::test]
    async fn an_owner_of_an_unknown_kind_is_not_left_out_while_discovery_is_incomplete() {
        let sim = crate::sim::start().unwrap();
        let owner = sim.create(config_map("living")).unwrap();
        let owner = reference(&owner, text_at(&owner, "/metadata/uid"));
        let incomplete = Discovery {
            failed: vec![("example.com/v1".to_owned(), "503".to_owned())],
            ..discovery()
        };
        let cluster = Cluster::new(client(&sim), incomplete);
        let mut known = owned_by(std::slice::from_ref(&owner));
        let checked = cluster.check_references(&mut known, "default").await;
        checked.unwrap();
        assert_eq!(known, owned_by(&[owner]));

        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        });
        let mut unknown = owned_by(&[reference(&widget, "u-3")]);
        let checked = cluster.check_references(&mut unknown, "default").await;
        assert_eq!(
            format!("{:#}", checked.unwrap_err()),
            "whether the owner Widget w still exists is not known: the API server does not say \
             everything that it serves: retry later"
        );
        assert_eq!(unknown.owners().len(), 1, "nothing is left out");
    }
}
