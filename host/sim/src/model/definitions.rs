//! Custom resources: what a `CustomResourceDefinition` declares is served as
//! soon as it is stored.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Collection, Model, Target};
use crate::defaults;
use crate::object::Object;
use crate::resource::{
    self, Custom, Generation, NameRule, Resource, Rules, ScalePaths, Subresource,
};
use crate::schema::Schema;
use crate::status::Result;
use crate::time::Time;

const STORE: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Model {
    /// What follows a write by itself: a definition that changed is served in
    /// its new form and says so in its status.
    pub(super) fn after_write(&mut self, now: Time, target: &Target) -> Result<()> {
        if &*target.resource.store != STORE {
            return Ok(());
        }
        self.serve_definitions()?;
        let Some(stored) = self.collection(&target.resource)?.get(&target.name) else {
            return Ok(());
        };
        let mut object = stored.object()?;
        let accepted = object.at(&["spec", "names"]).cloned();
        if object.at(&["status", "acceptedNames"]) == accepted.as_ref() {
            return Ok(());
        }
        let status = object.section("status");
        status.insert("acceptedNames".to_owned(), accepted.unwrap_or_default());
        status.insert("conditions".to_owned(), conditions(now));
        self.commit(now, target, object, false).map(drop)
    }

    /// Rebuilds the list of custom resources from the stored definitions.
    pub(super) fn serve_definitions(&mut self) -> Result<()> {
        let mut resources: Vec<Arc<Resource>> =
            resource::builtin().into_iter().map(Arc::new).collect();
        let definitions: Vec<Object> = match self.collections.get(STORE) {
            Some(collection) => collection
                .scan("")
                .map(|(_, stored)| stored.object())
                .collect::<Result<_>>()?,
            None => Vec::new(),
        };
        for definition in &definitions {
            resources.extend(served(definition).into_iter().map(Arc::new));
        }
        for resource in &resources {
            let version = self.version;
            self.collections
                .entry(resource.store.clone())
                .or_insert_with(|| Collection::starting_after(version));
        }
        // A definition that went takes its objects with it, and their watches.
        let served = |store: &Arc<str>| resources.iter().any(|resource| resource.store == *store);
        let gone = self
            .collections
            .keys()
            .filter(|store| !served(store))
            .cloned();
        self.touched.extend(gone);
        self.collections.retain(|store, _| served(store));
        self.resources = resources;
        Ok(())
    }
}

fn conditions(now: Time) -> Value {
    json!([
        {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now,
         "reason": "NoConflicts", "message": "no conflicts found"},
        {"type": "Established", "status": "True", "lastTransitionTime": now,
         "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
    ])
}

/// The resources that a definition declares: one for every served version.
fn served(definition: &Object) -> Vec<Resource> {
    let versions = definition
        .at(&["spec", "versions"])
        .and_then(Value::as_array);
    let versions: Vec<&Value> = versions.into_iter().flatten().collect();
    let storage = versions
        .iter()
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map_or("", |version| text(version, "name"));
    versions
        .iter()
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| one_version(definition, version, storage))
        .collect()
}

fn one_version(definition: &Object, version: &Value, storage: &str) -> Resource {
    let group = definition.text(&["spec", "group"]);
    let name = |field: &str| definition.text(&["spec", "names", field]).to_owned();
    let list = |field: &str| -> Vec<String> { strings(definition.at(&["spec", "names", field])) };
    let (plural, kind) = (name("plural"), name("kind"));
    let subresources = version.get("subresources");
    let scale = subresources.and_then(|all| all.get("scale"));
    let status = subresources.and_then(|all| all.get("status")).is_some();
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
