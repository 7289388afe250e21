//! Validation of each kind, with the API server's messages in its order: first the
//! generic layer (`rest.BeforeCreate`, `rest.BeforeUpdate`), then the kind's strategy.

mod access;
mod at;
mod batch;
mod container;
mod core;
mod custom;
mod definition;
pub(crate) mod go;
mod metadata;
mod misc;
mod pod;
mod selector;
mod service;
mod structural;
mod toleration;
mod workload;

use crate::access::GROUP;
use crate::events;
use crate::name::NameRule;
use crate::object::Object;
use crate::resource::Resource;
use crate::status::FieldError;

/// Validates a new object.
#[must_use]
pub(crate) fn create(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    own_metadata(resource, object, &mut errors);
    specification(resource, object, &mut errors);
    match resource.kind.as_str() {
        "Pod" if resource.custom.is_none() => pod::new(object, &mut errors),
        "Event" if events::is_new_api(resource) => misc::new_event(object, &mut errors),
        _ => {}
    }
    if errors.is_empty() {
        // The generic layer checks what the kind's own validation accepts.
        errors = metadata::whole(NameRule::PathSegment, &object.metadata);
    }
    errors
}

/// Validates an update through `subresource` (empty: the object's own endpoint).
#[must_use]
pub(crate) fn update(
    resource: &Resource,
    subresource: &str,
    new: &Object,
    old: &Object,
) -> Vec<FieldError> {
    let mut errors = metadata::whole(NameRule::PathSegment, &new.metadata);
    let change = metadata::change(&new.metadata, &old.metadata);
    errors.extend(change.iter().cloned());
    if checks_change(resource, subresource) {
        errors.extend(change);
        if uses_core_metadata(resource) {
            errors.extend(metadata::core_finalizers(&new.metadata));
        }
    }
    match subresource {
        "" => main_update(resource, new, old, &mut errors),
        "status" => status_update(resource, new, old, &mut errors),
        "finalize" => core::namespace_finalize(new, &mut errors),
        _ => {}
    }
    errors
}

/// The metadata rules of a kind's own validation.
fn own_metadata(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    let own = match (resource.group.as_str(), resource.kind.as_str()) {
        _ if resource.custom.is_some() => true,
        ("policy", "PodDisruptionBudget") | ("", "Event") => false,
        _ => true,
    };
    if !own {
        return;
    }
    errors.extend(metadata::whole(resource.rules.name, &object.metadata));
    if uses_core_metadata(resource) {
        errors.extend(metadata::core_finalizers(&object.metadata));
    }
    if resource.custom.is_none() && resource.kind == "CustomResourceDefinition" {
        definition::own_name(object, errors);
    }
}

/// Whether a kind is validated like the core API, which requires qualified finalizers.
fn uses_core_metadata(resource: &Resource) -> bool {
    resource.custom.is_none()
        && !["coordination.k8s.io", "apiextensions.k8s.io"].contains(&resource.group.as_str())
}

/// Whether a kind's own validation checks changes of metadata too.
fn checks_change(resource: &Resource, subresource: &str) -> bool {
    if resource.custom.is_some() {
        return true;
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("policy", "PodDisruptionBudget") | ("internal.apiserver.k8s.io", _) | ("", "Event") => {
            false
        }
        _ => subresource != "scale",
    }
}

fn main_update(resource: &Resource, new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let kind = resource.kind.as_str();
    if let Some(custom) = &resource.custom {
        custom::update(custom, new, old, errors);
        return;
    }
    match (resource.group.as_str(), kind) {
        ("", "ConfigMap") => core::immutable_data(new, old, errors),
        ("", "Secret") => {
            core::secret_type(new, old, errors);
            core::immutable_data(new, old, errors);
        }
        ("", "Service") => service::update(new, old, errors),
        // Updates of these are only checked for what changed.
        ("", "Namespace") | ("internal.apiserver.k8s.io", _) => return,
        _ => {}
    }
    if [
        "ConfigMap",
        "Secret",
        "Service",
        "ServiceAccount",
        "Pod",
        "ControllerRevision",
        "Role",
        "ClusterRole",
        "RoleBinding",
        "ClusterRoleBinding",
    ]
    .contains(&kind)
    {
        errors.extend(metadata::whole(resource.rules.name, &new.metadata));
        errors.extend(metadata::core_finalizers(&new.metadata));
    }
    specification(resource, new, errors);
    match (resource.group.as_str(), kind) {
        ("", "Pod") => pod::update(new, old, errors),
        ("", "Node") => core::node_update(new, old, errors),
        ("apps", "ControllerRevision") => workload::revision_update(new, old, errors),
        ("apps", _) => workload::update(kind, new, old, errors),
        ("batch", "Job") => batch::job_update(new, old, errors),
        ("apiextensions.k8s.io", _) => definition::update(new, old, errors),
        ("events.k8s.io", _) => misc::event_update(new, old, errors),
        (GROUP, "RoleBinding" | "ClusterRoleBinding") => {
            access::binding_update(new, old, errors);
        }
        _ => {}
    }
}

fn status_update(resource: &Resource, new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if let Some(custom) = &resource.custom {
        custom::status_update(custom, new, old, errors);
        return;
    }
    let kind = resource.kind.as_str();
    match (resource.group.as_str(), kind) {
        ("", "Pod") => pod::status(new, old, errors),
        ("", "Node") => {
            core::node(new, errors);
            core::node_update(new, old, errors);
        }
        ("", "Namespace") => core::namespace_status(new, errors),
        ("apps", _) | ("", "ReplicationController") => workload::status(kind, new, errors),
        ("batch", "Job") => batch::job_status(new, errors),
        ("policy", _) => misc::disruption_budget_status(new, errors),
        ("internal.apiserver.k8s.io", _) => misc::storage_version(new, errors),
        _ => {}
    }
}

/// The rules of a kind for everything but metadata, on create and on update.
fn specification(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    if let Some(custom) = &resource.custom {
        custom::create(custom, object, errors);
        return;
    }
    let kind = resource.kind.as_str();
    match (resource.group.as_str(), kind) {
        ("", "Pod") => pod::spec(&at::FieldLocation::field(object, "spec"), errors),
        ("", "Node") => core::node(object, errors),
        ("", "ConfigMap") => core::config_map(object, errors),
        ("", "Secret") => core::secret(object, errors),
        ("", "Service") => service::service(object, errors),
        ("", "PodTemplate") => pod::template(&at::FieldLocation::field(object, "template"), errors),
        ("", "ReplicationController") | ("apps", _) => workload::spec(kind, object, errors),
        ("batch", "Job") => batch::job(object, errors),
        ("batch", "CronJob") => batch::cron_job(object, errors),
        ("policy", "PodDisruptionBudget") => misc::disruption_budget(object, errors),
        ("coordination.k8s.io", "Lease") => misc::lease(object, errors),
        ("internal.apiserver.k8s.io", _) => misc::storage_version(object, errors),
        ("apiextensions.k8s.io", _) => definition::definition(object, errors),
        ("" | "events.k8s.io", "Event") => misc::event(object, errors),
        (GROUP, "Role" | "ClusterRole") => access::role(object, resource.namespaced, errors),
        (GROUP, _) => access::binding(object, resource.namespaced, errors),
        _ => {}
    }
}

/// Validates an access review.
pub(crate) fn access_review(
    kind: &str,
    namespace: &str,
    review: &Object,
) -> Result<(), Vec<FieldError>> {
    let mut errors = Vec::new();
    access::review(kind, namespace, review, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}
