//! The parts of an object that each endpoint may write, and the parts of the URL that
//! the body must match.

use serde_json::{Map, Value};

use crate::defaults;
use crate::object::{Metadata, Object};
use crate::resource::Resource;
use crate::status::{Result, Status};
use crate::target::Target;

/// The namespace of the body must be that of the URL, if it is given.
pub(super) fn match_namespace(target: &Target, object: &mut Object) -> Result<()> {
    let wanted = if target.resource.namespaced {
        target.namespace.as_str()
    } else {
        ""
    };
    let namespace = &mut object.metadata.namespace;
    if !namespace.is_empty() && !wanted.is_empty() && namespace != wanted {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    wanted.clone_into(namespace);
    Ok(())
}

/// The name of the body must be that of the URL.
pub(super) fn match_name(target: &Target, object: &Object) -> Result<()> {
    let (sent, wanted) = (&object.metadata.name, &target.name);
    if sent == wanted {
        return Ok(());
    }
    Err(Status::bad_request(if sent.is_empty() {
        format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )
    } else {
        format!("the name of the object ({sent}) does not match the name on the URL ({wanted})")
    }))
}

/// Restores the fields that the endpoint does not write (`PrepareForUpdate`).
pub(super) fn restrict(target: &Target, new: &mut Object, old: &Object) {
    let resource = &target.resource;
    match target.subresource.as_str() {
        "" => {
            if resource.has_status() {
                restore(&mut new.body, &old.body, "status");
            }
            if resource.kind == "Namespace" && resource.group.is_empty() {
                let finalizers = old.at(&["spec", "finalizers"]).cloned();
                set_or_remove(new.section("spec"), "finalizers", finalizers);
            }
            if resource.custom.is_none() && resource.kind == "CustomResourceDefinition" {
                defaults::note_stored_version(new);
            }
        }
        "status" => {
            let status = new.body.remove("status");
            new.body.clone_from(&old.body);
            set_or_remove(&mut new.body, "status", status);
            keep_metadata(resource, &mut new.metadata, &old.metadata);
            if is_builtin(resource, "", "Pod") {
                defaults::keep_pod_status(new, old);
            }
        }
        "finalize" => {
            let finalizers = new.at(&["spec", "finalizers"]).cloned();
            new.body.clone_from(&old.body);
            set_or_remove(new.section("spec"), "finalizers", finalizers);
        }
        _ => {}
    }
}

pub(super) fn is_builtin(resource: &Resource, group: &str, kind: &str) -> bool {
    resource.custom.is_none() && resource.group == group && resource.kind == kind
}

/// The metadata that a status endpoint does not write.
fn keep_metadata(resource: &Resource, new: &mut Metadata, old: &Metadata) {
    if resource.custom.is_some() {
        let managed = std::mem::take(&mut new.managed_fields);
        // The version is still to be compared with the stored one.
        let version = std::mem::take(&mut new.resource_version);
        new.clone_from(old);
        new.managed_fields = managed;
        new.resource_version = version;
        return;
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => new.owner_references.clone_from(&old.owner_references),
        ("apps", "Deployment") => new.labels.clone_from(&old.labels),
        ("internal.apiserver.k8s.io", _) => {
            new.labels.clone_from(&old.labels);
            new.annotations.clone_from(&old.annotations);
            new.finalizers.clone_from(&old.finalizers);
            new.owner_references.clone_from(&old.owner_references);
        }
        _ => {}
    }
}

fn restore(new: &mut Map<String, Value>, old: &Map<String, Value>, field: &str) {
    set_or_remove(new, field, old.get(field).cloned());
}

fn set_or_remove(fields: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
}
