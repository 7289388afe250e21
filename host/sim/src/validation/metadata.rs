//! Validation of the metadata of any object.

use serde_json::{Value, json};

use crate::name::{self, NameRule};
use crate::object::{Metadata, OwnerReference};
use crate::status::FieldError;

/// The bytes that all annotations of an object may have.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Validates metadata (`ValidateObjectMeta`).
#[must_use]
pub(crate) fn whole(rule: NameRule, metadata: &Metadata) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut each = |field: &str, value: &str, problems: Vec<String>| {
        for problem in problems {
            errors.push(FieldError::invalid(field, &json!(value), problem));
        }
    };
    if !metadata.generate_name.is_empty() {
        let problems = name::prefix_problems(rule, &metadata.generate_name);
        each("metadata.generateName", &metadata.generate_name, problems);
    }
    if metadata.name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        let problems = name::problems(rule, &metadata.name);
        each("metadata.name", &metadata.name, problems);
    }
    if metadata.generation < 0 {
        errors.push(FieldError::invalid(
            "metadata.generation",
            &json!(metadata.generation),
            "must be greater than or equal to 0",
        ));
    }
    labels("metadata.labels", &metadata.labels, &mut errors);
    annotations("metadata.annotations", &metadata.annotations, &mut errors);
    owner_references(&metadata.owner_references, &mut errors);
    finalizers(&metadata.finalizers, &mut errors);
    errors
}

/// Validates a change of metadata (`ValidateObjectMetaUpdate`).
#[must_use]
pub(crate) fn change(new: &Metadata, old: &Metadata) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.deletion_timestamp.is_some() {
        no_new_finalizers(new, old, &mut errors);
    }
    if new.generation < old.generation {
        errors.push(FieldError::invalid(
            "metadata.generation",
            &json!(new.generation),
            "must not be decremented",
        ));
    }
    let pairs = [
        ("name", json!(new.name), json!(old.name)),
        ("namespace", json!(new.namespace), json!(old.namespace)),
        ("uid", json!(new.uid), json!(old.uid)),
        (
            "deletionTimestamp",
            json!(new.deletion_timestamp),
            json!(old.deletion_timestamp),
        ),
        (
            "deletionGracePeriodSeconds",
            json!(new.deletion_grace_period_seconds),
            json!(old.deletion_grace_period_seconds),
        ),
    ];
    for (field, new, old) in pairs {
        immutable(&format!("metadata.{field}"), &new, &old, &mut errors);
    }
    labels("metadata.labels", &new.labels, &mut errors);
    annotations("metadata.annotations", &new.annotations, &mut errors);
    owner_references(&new.owner_references, &mut errors);
    errors
}

/// What the core API demands of finalizers beyond what the machinery does:
/// `kubernetes`, `orphan`, `foregroundDeletion`, or a name of some domain's.
#[must_use]
pub(crate) fn core_finalizers(metadata: &Metadata) -> Vec<FieldError> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let foreign = |name: &String| !name.contains('/') && !STANDARD.contains(&name.as_str());
    metadata
        .finalizers
        .iter()
        .enumerate()
        .filter(|(_, name)| foreign(name))
        .map(|(at, name)| {
            FieldError::invalid(
                format!("metadata.finalizers[{at}]"),
                &json!(name),
                "name is neither a standard finalizer name nor is it fully qualified",
            )
        })
        .collect()
}

/// A value must stay as it is.
pub(crate) fn immutable(field: &str, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if new != old {
        errors.push(FieldError::invalid(field, new, "field is immutable"));
    }
}

fn no_new_finalizers(new: &Metadata, old: &Metadata, errors: &mut Vec<FieldError>) {
    let mut added: Vec<&String> = new
        .finalizers
        .iter()
        .filter(|name| !old.finalizers.contains(name))
        .collect();
    added.sort();
    added.dedup();
    if !added.is_empty() {
        let list: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
        errors.push(FieldError::forbidden(
            "metadata.finalizers",
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            ),
        ));
    }
}

/// Labels under any path.
pub(crate) fn labels<'a>(
    field: &str,
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
    errors: &mut Vec<FieldError>,
) {
    for (key, value) in labels {
        for problem in name::qualified(key) {
            errors.push(FieldError::invalid(field, &json!(key), problem));
        }
        for problem in name::label_value(value) {
            errors.push(FieldError::invalid(field, &json!(value), problem));
        }
    }
}

/// Annotations under any path: keys as of labels, but for their case.
pub(crate) fn annotations<'a>(
    field: &str,
    annotations: impl IntoIterator<Item = (&'a String, &'a String)>,
    errors: &mut Vec<FieldError>,
) {
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.len();
        for problem in name::qualified(&key.to_lowercase()) {
            errors.push(FieldError::invalid(field, &json!(key), problem));
        }
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(field, ANNOTATIONS_LIMIT));
    }
}

fn owner_references(references: &[OwnerReference], errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<&OwnerReference> = None;
    for reference in references {
        let version = reference.api_version.rsplit('/').next().unwrap_or_default();
        let demands = [
            ("apiVersion", &reference.api_version, version),
            ("kind", &reference.kind, &reference.kind),
            ("name", &reference.name, &reference.name),
            ("uid", &reference.uid, &reference.uid),
        ];
        for (field, value, demanded) in demands {
            let what = if field == "apiVersion" {
                "version "
            } else {
                ""
            };
            if demanded.is_empty() {
                errors.push(FieldError::invalid(
                    format!("{FIELD}.{field}"),
                    &json!(value),
                    format!("{what}must not be empty"),
                ));
            }
        }
        if reference.api_version == "v1" && reference.kind == "Event" {
            errors.push(FieldError::invalid_printed(
                FIELD,
                &serde_json::to_string(reference).unwrap_or_default(),
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if reference.controller != Some(true) {
            continue;
        }
        if let Some(first) = controller {
            errors.push(FieldError::invalid_printed(
                FIELD,
                &printed(references),
                format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                    first.kind, first.name, reference.kind, reference.name
                ),
            ));
        } else {
            controller = Some(reference);
        }
    }
}

/// As the server prints them in messages: in the order of the Go struct.
fn printed(references: &[OwnerReference]) -> String {
    serde_json::to_string(references).unwrap_or_default()
}

fn finalizers(names: &[String], errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.finalizers";
    for name in names {
        for problem in name::qualified(name) {
            errors.push(FieldError::invalid(FIELD, &json!(name), problem));
        }
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has("orphan") && has("foregroundDeletion") {
        errors.push(FieldError::invalid(
            FIELD,
            &json!(names),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}
