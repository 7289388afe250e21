//! Custom resource definitions: what they declare must fit into URLs and JSON.

use serde_json::{Value, json};

use super::at::FieldLocation;
use super::{metadata, structural};
use crate::name;
use crate::object::Object;
use crate::status::FieldError;

/// A definition, new or changed, without its metadata.
pub(super) fn definition(definition: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(definition, "spec");
    let group = spec.child("group");
    if group.is_empty() {
        errors.push(group.required(""));
    } else {
        let mut problems = name::subdomain(group.text());
        if problems.is_empty() && !group.text().contains('.') {
            problems.push("should be a domain with at least one dot".to_owned());
        }
        joined(&group, "", &problems, errors);
    }
    spec.child("scope")
        .one_of(&["Cluster", "Namespaced"], errors);
    let list = spec.child("versions");
    for version in list.items() {
        let schema = version.child("schema").child("openAPIV3Schema");
        if !schema.is_set() {
            errors.push(schema.required(""));
        }
    }
    for version in list.items() {
        one_version(&version, errors);
    }
    storage(&list, errors);
    names(&spec.child("names"), true, errors);
    conversion(&spec.child("conversion"), errors);
    names(
        &FieldLocation::field(definition, "status").child("acceptedNames"),
        false,
        errors,
    );
    approval(definition, errors);
    if spec.child("preserveUnknownFields").is_true() {
        errors.push(spec.child("preserveUnknownFields").invalid(
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
}

/// The name that a definition must have.
pub(super) fn own_name(definition: &Object, errors: &mut Vec<FieldError>) {
    let names = |path: &[&str]| definition.text(path).to_owned();
    let wanted = format!(
        "{}.{}",
        names(&["spec", "names", "plural"]),
        names(&["spec", "group"])
    );
    if !definition.metadata.name.is_empty() && definition.metadata.name != wanted {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(definition.metadata.name),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
}

/// What may not change in a definition.
pub(super) fn update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let field = |definition: &Object, path: &[&str]| json!(definition.text(path));
    let established = FieldLocation::field(old, "status")
        .child("conditions")
        .items()
        .any(|condition| {
            condition.child("type").text() == "Established"
                && condition.child("status").text() == "True"
        });
    let mut paths: Vec<&[&str]> = Vec::new();
    if established {
        paths.push(&["spec", "scope"]);
        paths.push(&["spec", "names", "kind"]);
    }
    paths.push(&["spec", "group"]);
    paths.push(&["spec", "names", "plural"]);
    for path in paths {
        metadata::immutable(
            &path.join("."),
            &field(new, path),
            &field(old, path),
            errors,
        );
    }
    stored_versions(new, errors);
}

/// Versions that objects may be stored in stay declared.
fn stored_versions(definition: &Object, errors: &mut Vec<FieldError>) {
    let stored = FieldLocation::field(definition, "status").child("storedVersions");
    let declared = FieldLocation::field(definition, "spec").child("versions");
    let named = |wanted: &str| {
        declared
            .items()
            .any(|version| version.child("name").text() == wanted)
    };
    for version in stored.items() {
        let name = version.text();
        if !named(name) {
            errors.push(version.invalid(format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            )));
        }
    }
}

fn one_version(version: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let own = version.child("name");
    joined(&own, "", &name::label_1035(own.text()), errors);
    let schema = version.child("schema").child("openAPIV3Schema");
    if schema.is_set() {
        structural::schema(&schema, errors);
    }
    scale(&version.child("subresources"), errors);
    for column in version.child("additionalPrinterColumns").items() {
        printer_column(&column, errors);
    }
}

fn scale(subresources: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let scale = subresources.child("scale");
    if !scale.is_set() {
        return;
    }
    for (field, under) in [
        ("specReplicasPath", "spec"),
        ("statusReplicasPath", "status"),
    ] {
        let path = scale.child(field);
        if path.is_empty() {
            errors.push(path.required(""));
        } else if !path.text().starts_with(&format!(".{under}.")) {
            errors.push(path.invalid(format!("should be a json path under .{under}")));
        }
    }
    let selector = scale.child("labelSelectorPath");
    let below = |prefix: &str| selector.text().starts_with(prefix);
    if !selector.is_empty() && !below(".spec.") && !below(".status.") {
        errors.push(selector.invalid("should be a json path under either .spec or .status"));
    }
}

fn printer_column(column: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = [
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    if column.child("name").is_empty() {
        errors.push(column.child("name").required(""));
    }
    let kind = column.child("type");
    let known = format!("must be one of {}", TYPES.join(","));
    if kind.is_empty() {
        errors.push(kind.required(&known));
    } else if !TYPES.contains(&kind.text()) {
        errors.push(kind.invalid(known));
    }
    let format = column.child("format");
    if !format.is_empty() && !FORMATS.contains(&format.text()) {
        errors.push(format.invalid(format!("must be one of {}", FORMATS.join(","))));
    }
    if column.child("jsonPath").is_empty() {
        // The internal name of the field.
        errors.push(FieldError::required(
            format!("{}.JSONPath", column.path()),
            "",
        ));
    }
}

fn storage(versions: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    let mut unique = true;
    let mut stored = 0;
    for version in versions.items() {
        let name = version.child("name").text();
        unique &= !names.contains(&name);
        names.push(name);
        stored += usize::from(version.child("storage").is_true());
    }
    let printed = versions.value.to_string();
    let mut refuse = |why: &str| {
        errors.push(FieldError::invalid_printed(versions.path(), &printed, why));
    };
    if !unique {
        refuse("must contain unique version names");
    }
    if stored != 1 {
        refuse("must have exactly one version marked as storage version");
    }
}

fn names(names: &FieldLocation<'_>, required: bool, errors: &mut Vec<FieldError>) {
    if required {
        for field in ["plural", "singular", "kind", "listKind"] {
            if names.child(field).is_empty() {
                errors.push(names.child(field).required(""));
            }
        }
    }
    for field in ["plural", "singular"] {
        let field = names.child(field);
        if !field.is_empty() {
            joined(&field, "", &name::label_1035(field.text()), errors);
        }
    }
    for field in ["kind", "listKind"] {
        let field = names.child(field);
        if !field.is_empty() {
            let problems = name::label_1035(&field.text().to_lowercase());
            let prefix = "may have mixed case, but should otherwise match: ";
            joined(&field, prefix, &problems, errors);
        }
    }
    for short in names.child("shortNames").items() {
        joined(&short, "", &name::label_1035(short.text()), errors);
    }
    let (kind, list) = (names.child("kind"), names.child("listKind"));
    if !kind.is_empty() && kind.text() == list.text() {
        errors.push(list.invalid("kind and listKind may not be the same"));
    }
    for category in names.child("categories").items() {
        joined(&category, "", &name::label_1035(category.text()), errors);
    }
}

fn conversion(conversion: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    if !conversion.is_set() {
        return;
    }
    let strategy = conversion.child("strategy");
    strategy.one_of(&["None", "Webhook"], errors);
    let webhook = conversion.child("webhook");
    if strategy.text() == "Webhook" && !webhook.child("clientConfig").is_set() {
        errors.push(FieldError::required(
            "spec.conversion.webhookClientConfig",
            "required when strategy is set to Webhook",
        ));
    } else if strategy.text() != "Webhook" && webhook.child("clientConfig").is_set() {
        errors.push(FieldError::forbidden(
            "spec.conversion.webhookClientConfig",
            "should not be set when strategy is not set to Webhook",
        ));
    }
}

/// Groups of Kubernetes' own domains need an approval.
fn approval(definition: &Object, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let group = definition.text(&["spec", "group"]);
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    let said = definition.metadata.annotations.get(ANNOTATION);
    if protected && said.is_none_or(String::is_empty) {
        errors.push(FieldError::required(
            format!("metadata.annotations[{ANNOTATION}]"),
            &format!(
                "protected groups must have approval annotation {ANNOTATION:?}, see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        ));
    }
}

/// All that is wrong with a text, as one finding.
fn joined(
    field: &FieldLocation<'_>,
    prefix: &str,
    problems: &[String],
    errors: &mut Vec<FieldError>,
) {
    if !problems.is_empty() {
        let value = Value::from(field.text());
        errors.push(field.invalid_as(&value, format!("{prefix}{}", problems.join(","))));
    }
}
