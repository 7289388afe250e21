//! Rules that one kind has for itself, as far as controllers meet them.

use serde_json::{Map, Value, json};

use crate::object::Object;
use crate::resource::Resource;
use crate::status::FieldError;

/// What is wrong with an object, beyond its metadata.
#[must_use]
pub(crate) fn validate(resource: &Resource, object: &Object) -> Vec<FieldError> {
    match resource.kind.as_str() {
        "Event" if resource.custom.is_none() => event(object),
        "Pod" if resource.group.is_empty() => pod(object),
        _ => Vec::new(),
    }
}

/// What is wrong with a change, beyond its metadata.
#[must_use]
pub(crate) fn validate_update(resource: &Resource, new: &Object, old: &Object) -> Vec<FieldError> {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => pod_update(new, old),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => selector_update(new, old),
        _ => Vec::new(),
    }
}

/// An event lies in the namespace of what it is about; events about
/// cluster-scoped objects lie in `default`.
fn event(object: &Object) -> Vec<FieldError> {
    let about = object.text(&["involvedObject", "namespace"]);
    let own = object.metadata.namespace.as_str();
    let matches = if about.is_empty() {
        own == "default"
    } else {
        own == about
    };
    if matches {
        return Vec::new();
    }
    vec![FieldError::invalid(
        "involvedObject.namespace",
        &json!(about),
        "does not match event.namespace",
    )]
}

fn pod(object: &Object) -> Vec<FieldError> {
    let containers = object.at(&["spec", "containers"]).and_then(Value::as_array);
    if containers.is_some_and(|list| !list.is_empty()) {
        return Vec::new();
    }
    vec![FieldError::required("spec.containers", "")]
}

/// A pod's spec is fixed but for images, the active deadline, tolerations
/// that are added, and a negative grace period that becomes 1.
fn pod_update(new: &Object, old: &Object) -> Vec<FieldError> {
    if fixed_part(new) == fixed_part(old) && tolerations_grow(new, old) {
        return Vec::new();
    }
    vec![FieldError::forbidden(
        "spec",
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )]
}

fn fixed_part(pod: &Object) -> Map<String, Value> {
    let mut spec = pod
        .body
        .get("spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for free in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        spec.remove(free);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Value::Object(container) = container {
                container.remove("image");
            }
        }
    }
    if spec
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        < Some(0)
    {
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
    spec
}

fn tolerations_grow(new: &Object, old: &Object) -> bool {
    let list = |pod: &Object| {
        pod.at(&["spec", "tolerations"])
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let new = list(new);
    list(old).iter().all(|toleration| new.contains(toleration))
}

fn selector_update(new: &Object, old: &Object) -> Vec<FieldError> {
    let (new, old) = (new.at(&["spec", "selector"]), old.at(&["spec", "selector"]));
    if new == old {
        return Vec::new();
    }
    vec![FieldError::invalid(
        "spec.selector",
        new.unwrap_or(&Value::Null),
        "field is immutable",
    )]
}
