//! Rules that one kind has for itself, as far as controllers meet them.

use serde_json::{Map, Value, json};

use crate::events;
use crate::object::Object;
use crate::resource::{NameRule, Resource};
use crate::status::FieldError;
use crate::validate::name_error;

/// What is wrong with an object, beyond its metadata.
#[must_use]
pub(crate) fn validate(resource: &Resource, object: &Object) -> Vec<FieldError> {
    match resource.kind.as_str() {
        "Event" if resource.custom.is_none() => event(object),
        "Pod" if resource.group.is_empty() => pod(object),
        "CustomResourceDefinition" if resource.custom.is_none() => definition(object),
        _ => Vec::new(),
    }
}

/// What is wrong with a new object, beyond what may be wrong with any.
#[must_use]
pub(crate) fn validate_new(resource: &Resource, object: &Object) -> Vec<FieldError> {
    if events::is_new_api(resource) {
        new_event(object)
    } else {
        Vec::new()
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

/// The newer API demands what the core API leaves out. The object is in the
/// core form.
fn new_event(event: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let required = [
        ("eventTime", "eventTime"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ];
    for (field, core) in required {
        if event.text(&[core]).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    let kind = event.text(&["type"]);
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", &json!(kind), ""));
    }
    errors
}

fn pod(object: &Object) -> Vec<FieldError> {
    let containers = object.at(&["spec", "containers"]).and_then(Value::as_array);
    if containers.is_some_and(|list| !list.is_empty()) {
        return Vec::new();
    }
    vec![FieldError::required("spec.containers", "")]
}

/// What a definition declares must fit into URLs and JSON.
fn definition(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (group, plural) = (
        object.text(&["spec", "group"]),
        object.text(&["spec", "names", "plural"]),
    );
    let mut names = vec![(
        "spec.group".to_owned(),
        group.to_owned(),
        NameRule::Subdomain,
    )];
    for name in ["plural", "singular", "kind", "listKind"] {
        let text = object.text(&["spec", "names", name]).to_lowercase();
        names.push((format!("spec.names.{name}"), text, NameRule::Label1035));
    }
    let versions = object.at(&["spec", "versions"]).and_then(Value::as_array);
    let versions = versions.map_or(&[][..], Vec::as_slice);
    for (at, version) in versions.iter().enumerate() {
        let text = version
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        names.push((
            format!("spec.versions[{at}].name"),
            text.to_owned(),
            NameRule::Label1035,
        ));
    }
    for (field, text, rule) in names {
        if text.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(problem) = name_error(rule, &text) {
            errors.push(FieldError::invalid(field, &json!(text), problem));
        }
    }
    if object.metadata.name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(object.metadata.name),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    let scope = object.text(&["spec", "scope"]);
    if !["Cluster", "Namespaced"].contains(&scope) {
        let known = ["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(
            "spec.scope",
            &json!(scope),
            &known,
        ));
    }
    let stored = versions
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)));
    if stored.count() != 1 {
        errors.push(FieldError::invalid_printed(
            "spec.versions",
            &Value::from(versions).to_string(),
            "must have exactly one version marked as storage version",
        ));
    }
    errors
}

/// A pod's spec is fixed but for images, the active deadline, tolerations
/// that are added or change their seconds, and a negative grace period that
/// becomes 1.
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
        let mut tolerations = pod
            .at(&["spec", "tolerations"])
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for toleration in tolerations.iter_mut().filter_map(Value::as_object_mut) {
            toleration.remove("tolerationSeconds");
        }
        tolerations
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
