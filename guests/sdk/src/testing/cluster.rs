//! The objects on the API server, as tests write and read them: without requests and
//! without validation, because tests are about a few fields.

use davit_sim::custom;
use davit_sim::model::{DeleteOptions, ListOptions};
use davit_sim::request::Query;
use davit_sim::stored::StoredObject;
use davit_sim::target::Target;
use davit_simulation::World;
use serde_json::{Value, json};

/// The kind that defines custom resources.
const DEFINITION: &str = "CustomResourceDefinition";

/// The kind and the key (`namespace/name`, or `name`) of an object.
pub(super) type Id = (String, String);

pub(super) fn id(kind: &str, key: &str) -> Id {
    (kind.to_owned(), key.to_owned())
}

/// The id of an object with an `apiVersion`, a `kind` and a name.
pub(super) fn id_of(object: &Value) -> Id {
    let [_, kind, namespace, name] = coordinates(object);
    (kind.to_owned(), join(namespace, name))
}

/// Whether an object defines a custom resource.
pub(super) fn is_definition(object: &Value) -> bool {
    object["kind"] == DEFINITION
}

/// Serves the object's kind, if no resource does yet. Returns whether that is news.
pub(super) fn serve(world: &mut World, object: &Value) -> bool {
    let [api_version, kind, namespace, _] = coordinates(object);
    if world.model().resource_of_kind(api_version, kind).is_some() {
        return false;
    }
    let Some((group, version)) = api_version.split_once('/') else {
        panic!("the API server serves no kind {kind} in {api_version}");
    };
    let plural = custom::plural(kind);
    let definition = match object_of(world, DEFINITION, &format!("{plural}.{group}")) {
        Some(mut definition) => {
            let versions = definition.pointer_mut("/spec/versions");
            let versions = versions.and_then(Value::as_array_mut);
            let versions = versions.expect("a definition's versions");
            versions.push(custom::served_version(version, false));
            definition
        }
        None => custom::definition(group, version, &plural, kind, !namespace.is_empty()),
    };
    import(world, definition);
    true
}

/// Stores an object as it is. Without a `metadata.uid` its uid is `KIND/KEY`. An object
/// of another uid under its name is gone before.
pub(super) fn put(world: &mut World, mut object: Value) {
    let (kind, key) = id_of(&object);
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.expect("an object has metadata");
    let uid = metadata
        .entry("uid")
        .or_insert_with(|| json!(format!("{kind}/{key}")))
        .clone();
    metadata.remove("resourceVersion");
    let former = object_of(world, &kind, &key);
    if former.is_some_and(|former| former["metadata"]["uid"] != uid) {
        expel(world, &kind, &key);
    }
    import(world, object);
}

/// Removes an object, whatever its finalizers are. The objects of a definition go first,
/// as after its DELETE.
pub(super) fn expel(world: &mut World, kind: &str, key: &str) {
    if let Some((target, _)) = find(world, kind, key) {
        let expelled = world.with_model(|model, now| {
            if kind == DEFINITION {
                let deleted = model.delete(now, &target, &DeleteOptions::default());
                return deleted.map(drop);
            }
            model.expel(now, &target)
        });
        expelled.unwrap_or_else(|status| panic!("{kind} {key}: {}", status.message));
    }
}

/// A kubelet ends a pod that terminates. Its finalizers may keep it.
pub(super) fn end_pod(world: &mut World, key: &str) {
    let options = DeleteOptions::parse(
        &Query::default(),
        Some(json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})),
    );
    let options = options.expect("valid options");
    if let Some((target, _)) = find(world, "Pod", key) {
        let ended = world.with_model(|model, now| model.delete(now, &target, &options));
        ended.unwrap_or_else(|status| panic!("the pod {key}: {}", status.message));
    }
}

/// An object on the API server, without the fields that are null: a client reads those as
/// if they were not there.
pub(super) fn object_of(world: &World, kind: &str, key: &str) -> Option<Value> {
    let (target, stored) = find(world, kind, key)?;
    let json = stored.json().expect("stored JSON");
    let mut object: Value = serde_json::from_slice(&json).expect("stored JSON");
    object["apiVersion"] = json!(target.resource.api_version());
    object["kind"] = json!(target.resource.kind);
    remove_nulls(&mut object);
    Some(object)
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The keys of the objects of a kind, in order.
pub(super) fn keys(world: &World, kind: &str) -> Vec<String> {
    let resources = world.model().resources().iter();
    let of_kind = resources.filter(|resource| resource.kind == kind);
    let mut keys: Vec<String> = of_kind
        .flat_map(|resource| {
            let page = world
                .model()
                .list(&Target::new(resource, "", ""), &ListOptions::default());
            page.map(|page| page.items).unwrap_or_default()
        })
        .filter_map(|stored| stored.metadata().ok())
        .map(|metadata| join(&metadata.namespace, &metadata.name))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

pub(super) fn join(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

fn find(world: &World, kind: &str, key: &str) -> Option<(Target, StoredObject)> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let resources = world.model().resources().iter();
    resources
        .filter(|resource| resource.kind == kind)
        .find_map(|resource| {
            let target = Target::new(resource, namespace, name);
            let stored = world.model().get(&target, "").ok()?;
            Some((target, stored))
        })
}

fn import(world: &mut World, object: Value) {
    let (kind, key) = id_of(&object);
    let created = object.pointer("/metadata/creationTimestamp");
    let is_undated = created.is_some_and(Value::is_null);
    let imported = world.with_model(|model, now| {
        if is_undated {
            model.import_undated(now, object)
        } else {
            model.import(now, object)
        }
    });
    if let Err(status) = imported {
        panic!("{kind} {key}: {}", status.message);
    }
}

fn coordinates(object: &Value) -> [&str; 4] {
    [
        "/apiVersion",
        "/kind",
        "/metadata/namespace",
        "/metadata/name",
    ]
    .map(|pointer| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    })
}
