//! Roles, bindings, and questions about permissions.

use serde_json::{Value, json};

use super::at::FieldLocation;
use super::go;
use crate::access::GROUP;
use crate::name::{self, NameRule};
use crate::object::Object;
use crate::status::FieldError;

/// A role of either kind.
pub(super) fn role(role: &Object, namespaced: bool, errors: &mut Vec<FieldError>) {
    for rule in FieldLocation::field(role, "rules").items() {
        let list = |name: &str| rule.child(name);
        if list("verbs").is_empty() {
            errors.push(list("verbs").required("verbs must contain at least one value"));
        }
        let (urls, names) = (list("nonResourceURLs"), list("resourceNames"));
        let (groups, resources) = (list("apiGroups"), list("resources"));
        if !urls.is_empty() {
            if namespaced {
                errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
            }
            if !(groups.is_empty() && resources.is_empty() && names.is_empty()) {
                errors.push(
                    urls.invalid(
                        "rules cannot apply to both regular resources and non-resource URLs",
                    ),
                );
            }
            continue;
        }
        if groups.is_empty() {
            errors.push(groups.required("resource rules must supply at least one api group"));
        }
        if resources.is_empty() {
            errors.push(resources.required("resource rules must supply at least one resource"));
        }
        if !names.is_empty() && resources.items().count() > 1 {
            errors.push(names.required("resource names cannot apply to multiple resources"));
        }
    }
}

/// A binding of either kind.
pub(super) fn binding(binding: &Object, namespaced: bool, errors: &mut Vec<FieldError>) {
    let role = FieldLocation::field(binding, "roleRef");
    let (group, kind, role_name) = (
        role.child("apiGroup"),
        role.child("kind"),
        role.child("name"),
    );
    if group.text() != GROUP {
        errors.push(group.not_supported(&[GROUP]));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&kind.text()) {
        errors.push(kind.not_supported(kinds));
    }
    if role_name.is_empty() {
        errors.push(role_name.required(""));
    } else {
        let problems = name::problems(NameRule::PathSegment, role_name.text());
        role_name.each(problems, errors);
    }
    for one in FieldLocation::field(binding, "subjects").items() {
        subject(&one, namespaced, errors);
    }
}

fn subject(subject: &FieldLocation<'_>, namespaced: bool, errors: &mut Vec<FieldError>) {
    let (name, group) = (subject.child("name"), subject.child("apiGroup"));
    if name.is_empty() {
        errors.push(name.required(""));
    }
    match subject.child("kind").text() {
        "ServiceAccount" => {
            if !name.is_empty() {
                name.each(name::subdomain(name.text()), errors);
            }
            if !group.is_empty() {
                errors.push(group.not_supported(&[""]));
            }
            let namespace = subject.child("namespace");
            if !namespaced && namespace.is_empty() {
                errors.push(namespace.required(""));
            }
        }
        kind @ ("User" | "Group") => {
            if name.is_empty() {
                let kind = kind.to_lowercase();
                errors.push(name.invalid_text(format!("{kind} name cannot be empty")));
            }
            if group.text() != GROUP {
                errors.push(group.not_supported(&[GROUP]));
            }
        }
        _ => {
            let kind = subject.child("kind");
            errors.push(kind.not_supported(&["ServiceAccount", "User", "Group"]));
        }
    }
}

/// A binding is of one role for as long as it lives.
pub(super) fn binding_update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let (role, before) = (
        FieldLocation::field(new, "roleRef"),
        FieldLocation::field(old, "roleRef"),
    );
    if role.value == before.value {
        return;
    }
    let field = |name: &str| json!(role.child(name).text());
    let printed = go::object(&[
        ("APIGroup", &field("apiGroup")),
        ("Kind", &field("kind")),
        ("Name", &field("name")),
    ]);
    errors.push(FieldError::invalid_printed(
        "roleRef",
        &printed,
        "cannot change roleRef",
    ));
}

/// A question about what a user may do.
pub(super) fn review(kind: &str, namespace: &str, review: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(review, "spec");
    let (resource, path) = (
        spec.child("resourceAttributes"),
        spec.child("nonResourceAttributes"),
    );
    let printed = go::object(&[
        ("Path", &json!(path.child("path").text())),
        ("Verb", &json!(path.child("verb").text())),
    ]);
    let refuse_path = |why: &str| FieldError::invalid_printed(path.path(), &printed, why);
    match (resource.is_set(), path.is_set()) {
        (true, true) => {
            errors.push(refuse_path(
                "cannot be specified in combination with resourceAttributes",
            ));
        }
        (false, false) => errors.push(FieldError::invalid(
            resource.path(),
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let user = spec.child("user");
    if kind != "SelfSubjectAccessReview" && user.is_empty() && spec.child("groups").is_empty() {
        errors.push(user.invalid_text("at least one of user or group must be specified"));
    }
    if kind == "LocalSubjectAccessReview" {
        let own = resource.child("namespace");
        if resource.is_set() && own.text() != namespace {
            errors.push(own.invalid_text("must match metadata.namespace"));
        }
        if path.is_set() {
            errors.push(refuse_path("disallowed on this kind of request"));
        }
    }
}
