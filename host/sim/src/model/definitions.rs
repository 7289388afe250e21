//! Custom resources: what a `CustomResourceDefinition` declares is served as
//! soon as it is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::lifecycle::{self, Instances, Step};
use super::{AggregatedDocuments, Collection, DeleteOptions, Model};
use crate::defaults;
use crate::name::NameRule;
use crate::object::Object;
use crate::resource::{self, Custom, Generation, Resource, Rules, ScalePaths, Subresource};
use crate::schema::{self, Schema};
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

const GROUP: &str = "apiextensions.k8s.io";

const STORE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The stored definitions, as far as requests need them parsed.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// By name, which is also the name of the store of their objects.
    by_name: BTreeMap<String, Definition>,
    /// Those of whose names not all are accepted. Another definition's end may free these.
    waiting: BTreeSet<String>,
}

#[derive(Debug)]
struct Definition {
    object: Object,
    served: Vec<Arc<Resource>>,
}

impl Definition {
    fn new(object: Object) -> Self {
        let served = if lifecycle::is_served(&object) {
            served(&object)
        } else {
            Vec::new()
        };
        Self {
            object,
            served: served.into_iter().map(Arc::new).collect(),
        }
    }
}

impl Definitions {
    fn set(&mut self, name: &str, object: Object) {
        if lifecycle::has_all_names(&object) {
            self.waiting.remove(name);
        } else {
            self.waiting.insert(name.to_owned());
        }
        self.by_name
            .insert(name.to_owned(), Definition::new(object));
    }

    fn remove(&mut self, name: &str) {
        self.waiting.remove(name);
        self.by_name.remove(name);
    }

    fn get(&self, name: &str) -> Option<&Object> {
        self.by_name.get(name).map(|one| &one.object)
    }

    fn objects(&self) -> impl Iterator<Item = &Object> {
        self.by_name.values().map(|one| &one.object)
    }

    fn served(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_name.values().flat_map(|one| &one.served)
    }
}

impl Model {
    /// The effects of a write: a changed definition is accepted, established and
    /// served, and a terminating one is deleted with its last object.
    pub(super) fn after_write(&mut self, now: Time, target: &Target) -> Result<()> {
        let resource = &target.resource;
        if &*resource.store == STORE {
            return self.settle_definitions(now, &target.name);
        }
        let terminating = resource
            .custom
            .as_ref()
            .is_some_and(|custom| custom.terminating);
        if terminating && self.collection(resource)?.scan("").next().is_none() {
            self.settle_definitions(now, &resource.store)?;
        }
        Ok(())
    }

    /// Lets the controllers of definitions work until they rest, after a change of this one or of
    /// its objects.
    fn settle_definitions(&mut self, now: Time, changed: &str) -> Result<()> {
        self.serve_definition(changed)?;
        let mut changed = BTreeSet::from([changed.to_owned()]);
        while let Some((name, step)) = self.next_step(now, &changed)? {
            match step {
                Step::Write(definition) => {
                    self.write_definition(now, &name, *definition)?;
                    self.serve_definition(&name)?;
                    changed.insert(name);
                }
                Step::DeleteInstances => self.delete_instances(now, &name)?,
            }
        }
        Ok(())
    }

    /// The next step of a changed definition, or of one that waits for its names: all others
    /// rest.
    fn next_step(&self, now: Time, changed: &BTreeSet<String>) -> Result<Option<(String, Step)>> {
        for name in self.definitions.waiting.union(changed) {
            let Some(definition) = self.definitions.get(name) else {
                continue;
            };
            let instances = self.instances(name)?;
            let all = self.definitions.objects();
            if let Some(step) = lifecycle::next_step(now, definition, all, instances) {
                return Ok(Some((name.to_owned(), step)));
            }
        }
        Ok(None)
    }

    /// Stores a definition, or deletes it if it has no finalizers.
    fn write_definition(&mut self, now: Time, name: &str, definition: Object) -> Result<()> {
        let Some(resource) = self.resource(GROUP, "v1", "customresourcedefinitions") else {
            return Err(Status::internal("no customresourcedefinitions resource"));
        };
        let target = Target::new(&resource.clone(), "", name);
        let metadata = &definition.metadata;
        if metadata.deletion_timestamp.is_some() && metadata.finalizers.is_empty() {
            let last = self.stored(&target)?.clone();
            return self.remove(now, &target, &last, false).map(drop);
        }
        self.commit(now, &target, definition, false).map(drop)
    }

    fn instances(&self, store: &str) -> Result<Instances> {
        let mut found = Instances::Gone;
        let objects = self.collections.get(store).into_iter();
        for (_, stored) in objects.flat_map(|collection| collection.scan("")) {
            if stored.metadata()?.deletion_timestamp.is_none() {
                return Ok(Instances::Present);
            }
            found = Instances::Waiting;
        }
        Ok(found)
    }

    fn delete_instances(&mut self, now: Time, store: &str) -> Result<()> {
        let Some(resource) = self.definitions.get(store).and_then(storage) else {
            return Ok(());
        };
        let resource = Arc::new(resource);
        let mut targets = Vec::new();
        for (_, stored) in self.collection(&resource)?.scan("") {
            let metadata = stored.metadata()?;
            if metadata.deletion_timestamp.is_none() {
                targets.push(Target::new(&resource, &metadata.namespace, &metadata.name));
            }
        }
        for target in targets {
            self.delete(now, &target, &DeleteOptions::default())?;
        }
        Ok(())
    }

    /// Prunes the objects of a definition whose versions have changed and fills in defaults, as
    /// kube-apiserver does whenever it reads one. Their versions stay, and no watch hears of it.
    fn shape_instances(&mut self, name: &str) -> Result<()> {
        let Some(resource) = self.definitions.get(name).and_then(storage) else {
            return Ok(());
        };
        let custom = resource.custom.as_ref();
        let schema = custom.and_then(|custom| custom.schema.as_ref());
        let (Some(schema), Some(collection)) = (schema, self.collections.get_mut(name)) else {
            return Ok(());
        };
        collection.rewrite(|stored| {
            let former = stored.object()?;
            let mut object = former.clone();
            schema::shape(schema, &mut object.body);
            if object == former {
                return Ok(None);
            }
            StoredObject::new(&resource, &object).map(Some)
        })
    }

    /// Serves what a definition declares as it is stored now.
    fn serve_definition(&mut self, name: &str) -> Result<()> {
        let versions = |all: &Definitions| all.get(name)?.at(&["spec", "versions"]).cloned();
        let former = versions(&self.definitions);
        let stored = self.collections.get(STORE).and_then(|all| all.get(name));
        match stored.map(StoredObject::object).transpose()? {
            Some(object) => self.definitions.set(name, object),
            None => self.definitions.remove(name),
        }
        if former.is_some() && former != versions(&self.definitions) {
            self.shape_instances(name)?;
        }
        let is_custom = |resource: &&Arc<Resource>| resource.custom.is_some();
        let builtin = self.resources.iter().filter(|it| !is_custom(it)).cloned();
        self.resources = builtin.chain(self.definitions.served().cloned()).collect();
        self.aggregated = AggregatedDocuments::default();
        match self.definitions.by_name.get(name) {
            Some(definition) => {
                let version = self.version;
                for resource in &definition.served {
                    self.collections
                        .entry(resource.store.clone())
                        .or_insert_with(|| Collection::starting_after(version));
                }
            }
            // A deleted definition deletes its objects; one that no longer serves a version
            // keeps them.
            None if self.resources.iter().any(|it| &*it.store == name) => {}
            None => drop(self.collections.remove(name)),
        }
        // The watches end in both cases.
        self.touched.push(name.into());
        Ok(())
    }
}

/// The resources that a definition declares: one for every served version.
fn served(definition: &Object) -> Vec<Resource> {
    let versions = definition
        .at(&["spec", "versions"])
        .and_then(Value::as_array);
    let versions: Vec<&Value> = versions.into_iter().flatten().collect();
    let storage = storage_version(&versions).map_or("", |version| text(version, "name"));
    versions
        .iter()
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| one_version(definition, version, storage))
        .collect()
}

/// The resource in the version that a definition's objects are stored in, served
/// or not.
fn storage(definition: &Object) -> Option<Resource> {
    let versions = definition
        .at(&["spec", "versions"])
        .and_then(Value::as_array)?;
    let versions: Vec<&Value> = versions.iter().collect();
    let version = storage_version(&versions)?;
    Some(one_version(definition, version, text(version, "name")))
}

fn storage_version<'v>(versions: &[&'v Value]) -> Option<&'v Value> {
    let mut versions = versions.iter().copied();
    versions.find(|version| version.get("storage") == Some(&Value::Bool(true)))
}

fn one_version(definition: &Object, version: &Value, storage: &str) -> Resource {
    let group = definition.text(&["spec", "group"]);
    let name = |field: &str| definition.text(&["spec", "names", field]).to_owned();
    let list = |field: &str| -> Vec<String> { strings(definition.at(&["spec", "names", field])) };
    let (plural, kind) = (name("plural"), name("kind"));
    let subresources = version.get("subresources");
    let scale = subresources.and_then(|all| all.get("scale"));
    let status = subresources.and_then(|all| all.get("status")).is_some();
    let terminating = lifecycle::is_terminating(definition);
    Resource {
        store: crate::status::qualify(&plural, group).into(),
        etcd_prefix: format!("{group}/{plural}"),
        group: group.to_owned(),
        version: text(version, "name").to_owned(),
        singular: name("singular"),
        list_kind: name("listKind"),
        namespaced: definition.text(&["spec", "scope"]) == "Namespaced",
        short_names: list("shortNames"),
        categories: list("categories"),
        subresources: declared_subresources(&kind, status, scale.is_some()),
        verbs: vec![
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ],
        storage_version: storage.to_owned(),
        rules: Rules {
            generation: Generation::NotMetadata,
            unconditional_update: false,
            create_on_update: false,
            returns_deleted: false,
            collection: resource::Collection::Delete,
            graceful: false,
            keeps_status: false,
            default: defaults::nothing,
            prepare: defaults::nothing,
            name: NameRule::Subdomain,
        },
        selectable: selectable(version),
        custom: Some(Custom {
            schema: version
                .pointer("/schema/openAPIV3Schema")
                .map(Schema::from_json),
            columns: version
                .get("additionalPrinterColumns")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            scale: scale.map(scale_paths),
            terminating,
        }),
        plural,
        kind,
    }
}

fn declared_subresources(kind: &str, status: bool, scale: bool) -> Vec<Subresource> {
    let mut all = Vec::new();
    let verbs = || vec!["get", "patch", "update"];
    if status {
        all.push(Subresource {
            name: "status".to_owned(),
            kind: (String::new(), String::new(), kind.to_owned()),
            verbs: verbs(),
        });
    }
    if scale {
        all.push(Subresource {
            name: "scale".to_owned(),
            kind: (
                "autoscaling".to_owned(),
                "v1".to_owned(),
                "Scale".to_owned(),
            ),
            verbs: verbs(),
        });
    }
    all
}

fn selectable(version: &Value) -> Vec<String> {
    version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
        .collect()
}

fn scale_paths(scale: &Value) -> ScalePaths {
    let path = |name: &str| text(scale, name).trim_start_matches('.').to_owned();
    ScalePaths {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        selector: Some(path("labelSelectorPath")).filter(|path| !path.is_empty()),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
