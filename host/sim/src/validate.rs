//! Validation of names and metadata, with the API server's own messages.

use serde_json::{Value, json};

use crate::object::{Metadata, OwnerReference};
use crate::resource::{NameRule, Resource};
use crate::status::FieldError;

/// What is wrong with the metadata of any object, new or changed.
#[must_use]
pub(crate) fn metadata(resource: &Resource, metadata: &Metadata) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !metadata.generate_name.is_empty()
        && let Some(problem) = name_error(
            resource.rules.name,
            &prefix_as_name(&metadata.generate_name),
        )
    {
        let value = json!(metadata.generate_name);
        errors.push(FieldError::invalid(
            "metadata.generateName",
            &value,
            problem,
        ));
    }
    if metadata.name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if let Some(problem) = name_error(resource.rules.name, &metadata.name) {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(metadata.name),
            problem,
        ));
    }
    if metadata.generation < 0 {
        errors.push(FieldError::invalid(
            "metadata.generation",
            &json!(metadata.generation),
            "must be greater than or equal to 0",
        ));
    }
    maps(metadata, &mut errors);
    owner_references(&metadata.owner_references, &mut errors);
    finalizers(resource, &metadata.finalizers, &mut errors);
    errors
}

/// What is wrong with a change of metadata.
#[must_use]
pub(crate) fn metadata_update(new: &Metadata, old: &Metadata) -> Vec<FieldError> {
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
    immutable("name", &json!(new.name), &json!(old.name), &mut errors);
    immutable(
        "namespace",
        &json!(new.namespace),
        &json!(old.namespace),
        &mut errors,
    );
    immutable("uid", &json!(new.uid), &json!(old.uid), &mut errors);
    immutable(
        "deletionTimestamp",
        &json!(new.deletion_timestamp),
        &json!(old.deletion_timestamp),
        &mut errors,
    );
    immutable(
        "deletionGracePeriodSeconds",
        &json!(new.deletion_grace_period_seconds),
        &json!(old.deletion_grace_period_seconds),
        &mut errors,
    );
    maps(new, &mut errors);
    owner_references(&new.owner_references, &mut errors);
    errors
}

fn immutable(field: &str, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if new != old {
        errors.push(FieldError::invalid(
            format!("metadata.{field}"),
            new,
            "field is immutable",
        ));
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

fn maps(metadata: &Metadata, errors: &mut Vec<FieldError>) {
    for (key, value) in &metadata.labels {
        if let Some(problem) = qualified_name_error(key) {
            errors.push(FieldError::invalid("metadata.labels", &json!(key), problem));
        }
        if let Some(problem) = label_value_error(value) {
            errors.push(FieldError::invalid(
                "metadata.labels",
                &json!(value),
                problem,
            ));
        }
    }
    for key in metadata.annotations.keys() {
        if let Some(problem) = qualified_name_error(&key.to_lowercase()) {
            errors.push(FieldError::invalid(
                "metadata.annotations",
                &json!(key),
                problem,
            ));
        }
    }
}

fn owner_references(references: &[OwnerReference], errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<&OwnerReference> = None;
    for reference in references {
        let version = reference.api_version.rsplit('/').next().unwrap_or_default();
        let mut demand = |field: &str, value: &str, present: bool, why: &str| {
            if !present {
                errors.push(FieldError::invalid(
                    format!("{FIELD}.{field}"),
                    &json!(value),
                    why,
                ));
            }
        };
        demand(
            "apiVersion",
            &reference.api_version,
            !version.is_empty(),
            "version must not be empty",
        );
        demand(
            "kind",
            &reference.kind,
            !reference.kind.is_empty(),
            "must not be empty",
        );
        demand(
            "name",
            &reference.name,
            !reference.name.is_empty(),
            "must not be empty",
        );
        demand(
            "uid",
            &reference.uid,
            !reference.uid.is_empty(),
            "must not be empty",
        );
        if reference.api_version == "v1" && reference.kind == "Event" {
            errors.push(FieldError::invalid_printed(
                FIELD,
                &printed(std::slice::from_ref(reference)),
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

fn finalizers(resource: &Resource, names: &[String], errors: &mut Vec<FieldError>) {
    for (at, name) in names.iter().enumerate() {
        if let Some(problem) = qualified_name_error(name) {
            errors.push(FieldError::invalid(
                "metadata.finalizers",
                &json!(name),
                problem,
            ));
        }
        let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&name.as_str());
        if resource.custom.is_none() && !name.contains('/') && !standard {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{at}]"),
                &json!(name),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has("orphan") && has("foregroundDeletion") {
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            &json!(names),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

/// Stands for whatever name `generateName` will give.
fn prefix_as_name(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(stem) => format!("{stem}a"),
        None => prefix.to_owned(),
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with a name, if anything.
#[must_use]
pub(crate) fn name_error(rule: NameRule, name: &str) -> Option<String> {
    match rule {
        NameRule::Subdomain => subdomain_error(name),
        NameRule::Label | NameRule::Label1035 if name.len() > 63 => Some(too_long(63)),
        NameRule::Label => (!is_label(name)).then(|| LABEL.to_owned()),
        NameRule::Label1035 => {
            let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
            (!starts || !is_label(name)).then(|| LABEL_1035.to_owned())
        }
        NameRule::PathSegment => match name {
            "." | ".." => Some(format!("may not be '{name}'")),
            _ => ['/', '%']
                .iter()
                .find(|c| name.contains(**c))
                .map(|c| format!("may not contain '{c}'")),
        },
    }
}

fn subdomain_error(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some(too_long(253));
    }
    let good = name.split('.').all(is_label);
    (!good).then(|| SUBDOMAIN.to_owned())
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let edge = |c: Option<&u8>| c.is_some_and(|c| *c != b'-');
    let bytes = text.as_bytes();
    bytes.iter().all(|c| inner(*c)) && edge(bytes.first()) && edge(bytes.last())
}

/// What is wrong with a label key or a finalizer (`prefix/name`), if anything.
#[must_use]
pub(crate) fn qualified_name_error(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if name.contains('/') {
        return Some(
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                .to_owned(),
        );
    }
    match prefix {
        Some("") => return Some("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if let Some(problem) = subdomain_error(prefix) {
                return Some(format!("prefix part {problem}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        Some("name part must be non-empty".to_owned())
    } else if name.len() > 63 {
        Some(format!("name part {}", too_long(63)))
    } else {
        (!is_word(name)).then(|| QUALIFIED.to_owned())
    }
}

/// What is wrong with a label value, if anything.
#[must_use]
pub(crate) fn label_value_error(text: &str) -> Option<String> {
    if text.len() > 63 {
        Some(too_long(63))
    } else {
        (!text.is_empty() && !is_word(text)).then(|| LABEL_VALUE.to_owned())
    }
}

fn is_word(text: &str) -> bool {
    let edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes
        .iter()
        .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
        && edge(bytes.first())
        && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "a.b-c", "0"] {
            assert_eq!(name_error(NameRule::Subdomain, good), None, "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b"] {
            assert!(name_error(NameRule::Subdomain, bad).is_some(), "{bad}");
        }
        assert!(name_error(NameRule::Label, "a.b").is_some());
        assert!(name_error(NameRule::Label1035, "1a").is_some());
        assert!(name_error(NameRule::PathSegment, "a:b_C").is_none());
    }

    #[test]
    fn keys_and_values() {
        assert_eq!(qualified_name_error("example.com/My_name.1"), None);
        for bad in ["", "/a", "a/", "a/b/c", "Ex/a", "a b"] {
            assert!(qualified_name_error(bad).is_some(), "{bad}");
        }
        assert_eq!(label_value_error(""), None);
        assert!(label_value_error("-a").is_some());
    }
}
