//! Small kinds of the core group: nodes, namespaces, config maps, secrets.

use serde_json::{Value, json};

use super::at::FieldLocation;
use super::{metadata, toleration};
use crate::name;
use crate::object::Object;
use crate::status::FieldError;

/// The bytes that a `ConfigMap` or a `Secret` may hold.
const DATA_LIMIT: usize = 1024 * 1024;

/// A node.
pub(super) fn node(node: &Object, errors: &mut Vec<FieldError>) {
    if let Some(taints) = node.at(&["spec", "taints"]) {
        toleration::taints(taints, errors);
    }
}

/// What may not change in a node.
pub(super) fn node_update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        FieldLocation::field(new, "spec"),
        FieldLocation::field(old, "spec"),
    );
    let mut addresses = Vec::new();
    for address in FieldLocation::field(new, "status")
        .child("addresses")
        .items()
    {
        let pair = (
            address.child("type").text(),
            address.child("address").text(),
        );
        if addresses.contains(&pair) {
            let (kind, text) = (json!(pair.0), json!(pair.1));
            let printed = super::go::object(&[("Type", &kind), ("Address", &text)]);
            errors.push(FieldError::duplicate_printed(address.path(), &printed, ""));
        }
        addresses.push(pair);
    }
    let (ranges, old_ranges) = (spec.child("podCIDRs"), before.child("podCIDRs"));
    if !old_ranges.is_empty() && ranges.value != old_ranges.value {
        errors.push(
            ranges.forbidden("node updates may not change podCIDR except from \"\" to valid"),
        );
    }
    let (provider, old_provider) = (spec.child("providerID"), before.child("providerID"));
    if !old_provider.is_empty() && provider.text() != old_provider.text() {
        errors.push(
            provider.forbidden("node updates may not change providerID except from \"\" to valid"),
        );
    }
}

/// What may not be in a namespace's status.
pub(super) fn namespace_status(namespace: &Object, errors: &mut Vec<FieldError>) {
    let phase = namespace.text(&["status", "phase"]);
    let (wanted, when) = if namespace.metadata.deletion_timestamp.is_none() {
        ("Active", "empty")
    } else {
        ("Terminating", "not empty")
    };
    if phase != wanted {
        errors.push(FieldError::invalid(
            "status.Phase",
            &json!(phase),
            format!("may only be '{wanted}' if `deletionTimestamp` is {when}"),
        ));
    }
}

/// The finalizers of a namespace's `spec`.
pub(super) fn namespace_finalize(namespace: &Object, errors: &mut Vec<FieldError>) {
    for finalizer in FieldLocation::field(namespace, "spec")
        .child("finalizers")
        .items()
    {
        // The server puts the path together without a dot.
        for problem in name::qualified(finalizer.text()) {
            errors.push(finalizer.invalid_text(problem));
        }
        if !finalizer.text().contains('/')
            && !["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer.text())
        {
            errors.push(finalizer.invalid_text(
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

/// A `ConfigMap`.
pub(super) fn config_map(map: &Object, errors: &mut Vec<FieldError>) {
    let (data, binary) = (
        FieldLocation::field(map, "data"),
        FieldLocation::field(map, "binaryData"),
    );
    let mut size = 0;
    for (key, value) in data.entries() {
        value_key(&value, key, errors);
        if binary.value.get(key).is_some() {
            errors.push(FieldError::invalid(
                value.path(),
                &key.into(),
                "duplicate of key present in binaryData",
            ));
        }
        size += value.text().len();
    }
    for (key, value) in binary.entries() {
        value_key(&value, key, errors);
        size += value.text().len() / 4 * 3;
    }
    if size > DATA_LIMIT {
        errors.push(FieldError::too_long("[]", DATA_LIMIT));
    }
}

/// A `Secret`: some types demand keys.
pub(super) fn secret(secret: &Object, errors: &mut Vec<FieldError>) {
    let data = FieldLocation::field(secret, "data");
    let mut size = 0;
    for (key, value) in data.entries() {
        value_key(&value, key, errors);
        size += value.text().len() / 4 * 3;
    }
    if size > DATA_LIMIT {
        errors.push(FieldError::too_long("data", DATA_LIMIT));
    }
    let mut demand = |keys: &[&str]| {
        for key in keys {
            if !data.key(key).is_set() {
                errors.push(data.key(key).required(""));
            }
        }
    };
    match secret.text(&["type"]) {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            if secret
                .metadata
                .annotations
                .get(ACCOUNT)
                .is_none_or(String::is_empty)
            {
                errors.push(FieldError::required(
                    format!("metadata.annotations[{ACCOUNT}]"),
                    "",
                ));
            }
        }
        "kubernetes.io/dockercfg" => demand(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => demand(&[".dockerconfigjson"]),
        "kubernetes.io/basic-auth"
            if !data.key("username").is_set() && !data.key("password").is_set() =>
        {
            demand(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if data.key("ssh-privatekey").is_empty() => {
            errors.push(data.key("ssh-privatekey").required(""));
        }
        "kubernetes.io/tls" => demand(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

/// What an immutable `ConfigMap` or `Secret` refuses.
pub(super) fn immutable_data(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if old.body.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    if new.body.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", WHY));
    }
    for field in ["data", "binaryData"] {
        if new.body.get(field) != old.body.get(field) {
            errors.push(FieldError::forbidden(field, WHY));
        }
    }
}

/// The type of a `Secret` cannot change.
pub(super) fn secret_type(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let (new, old) = (json!(new.text(&["type"])), json!(old.text(&["type"])));
    metadata::immutable("type", &new, &old, errors);
}

fn value_key(value: &FieldLocation<'_>, key: &str, errors: &mut Vec<FieldError>) {
    for problem in name::data_key(key) {
        errors.push(FieldError::invalid(value.path(), &key.into(), problem));
    }
}
