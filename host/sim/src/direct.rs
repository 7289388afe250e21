//! A short API for tests and simulations: objects as JSON, without requests.

use serde_json::{Value, json};

use crate::body::Body;
use crate::model::{DeleteAnswer, DeleteOptions, ListOptions, Model, WriteOptions};
use crate::patch::PatchType;
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

/// Creates an object with its `apiVersion` and `kind`, its status and, if it is missing,
/// its namespace. The status is not validated: a test of a controller may need an invalid
/// one.
pub fn create(model: &mut Model, now: Time, object: Value) -> Result<Value> {
    let mut target = target_of(model, &object)?;
    if target.resource.namespaced {
        if target.namespace.is_empty() {
            "default".clone_into(&mut target.namespace);
        }
        model.ensure_namespace(now, &target.namespace)?;
    }
    let status = object.get("status").cloned();
    let mut stored = model.create(now, &target, Body::Json(object), &WriteOptions::default())?;
    if let (Some(status), true) = (status, target.resource.has_status()) {
        target.name = stored.metadata()?.name;
        "status".clone_into(&mut target.subresource);
        let body = Body::Json(json!({"status": status}));
        (stored, _) = model.patch(now, &target, PatchType::Merge, body, &as_it_is())?;
    }
    value(&stored)
}

/// Reads an object.
pub fn get(
    model: &Model,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Value> {
    let target = target(model, api_version, kind, namespace, name)?;
    value(&model.get(&target, "")?)
}

/// The version of an object.
pub fn version(
    model: &Model,
    (api_version, kind): (&str, &str),
    namespace: &str,
    name: &str,
) -> Result<u64> {
    let target = target(model, api_version, kind, namespace, name)?;
    Ok(model.get(&target, "")?.version())
}

/// Reads all objects of a kind, of one namespace or (empty) of all.
pub fn list(model: &Model, api_version: &str, kind: &str, namespace: &str) -> Result<Vec<Value>> {
    let target = target(model, api_version, kind, namespace, "")?;
    let page = model.list(&target, &ListOptions::default())?;
    page.items.iter().map(value).collect()
}

/// Replaces an object except its status, as a PUT does. Without a `resourceVersion` it
/// replaces any version.
pub fn update(model: &mut Model, now: Time, mut object: Value) -> Result<Value> {
    let target = target_of(model, &object)?;
    let version = model.get(&target, "")?.version().to_string();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata
            .entry("resourceVersion")
            .or_insert_with(|| version.into());
    }
    let (stored, _) = model.update(now, &target, Body::Json(object), &WriteOptions::default())?;
    value(&stored)
}

/// Merges `object` into the stored object, including its status; creates the object if
/// it does not exist.
pub fn apply(model: &mut Model, now: Time, object: Value) -> Result<Value> {
    let mut target = target_of(model, &object)?;
    match model.get(&target, "") {
        Err(status) if status.code == 404 => return create(model, now, object),
        other => other?,
    };
    let merge = |model: &mut Model, target: &Target, options: &WriteOptions| {
        let body = Body::Json(object.clone());
        model.patch(now, target, PatchType::Merge, body, options)
    };
    let (mut stored, _) = merge(model, &target, &WriteOptions::default())?;
    if object.get("status").is_some() && target.resource.has_status() {
        "status".clone_into(&mut target.subresource);
        (stored, _) = merge(model, &target, &as_it_is())?;
    }
    value(&stored)
}

/// Deletes an object.
pub fn delete(
    model: &mut Model,
    now: Time,
    (api_version, kind): (&str, &str),
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<DeleteAnswer> {
    let target = target(model, api_version, kind, namespace, name)?;
    model.delete(now, &target, options)
}

fn as_it_is() -> WriteOptions {
    WriteOptions {
        unchecked: true,
        ..WriteOptions::default()
    }
}

fn target_of(model: &Model, object: &Value) -> Result<Target> {
    let text = |path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    target(
        model,
        text("/apiVersion"),
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    )
}

fn target(
    model: &Model,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Target> {
    let resource = model.resource_of_kind(api_version, kind).ok_or_else(|| {
        Status::bad_request(format!("no kind {kind:?} in {api_version:?} is served"))
    })?;
    let namespace = match namespace {
        _ if !resource.namespaced => "",
        "" if !name.is_empty() => "default",
        namespace => namespace,
    };
    Ok(Target::new(resource, namespace, name))
}

fn value(stored: &StoredObject) -> Result<Value> {
    serde_json::from_slice(&stored.json()?)
        .map_err(|error| Status::internal(format!("stored object: {error}")))
}
