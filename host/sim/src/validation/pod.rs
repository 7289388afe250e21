//! Pods and pod templates.

use serde_json::{Map, Value, json};

use super::at::FieldLocation;
use super::{container, metadata, selector, toleration};
use crate::name::{self, NameRule};
use crate::object::Object;
use crate::status::FieldError;

/// A new pod or one that was changed.
pub(super) fn spec(spec: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let child = |name: &str| spec.child(name);
    let volumes = volumes(&child("volumes"), errors);
    container::containers(&child("containers"), &volumes, errors);
    container::init_containers(
        &child("initContainers"),
        &child("containers"),
        &volumes,
        errors,
    );
    child("restartPolicy").one_of(&["Always", "OnFailure", "Never"], errors);
    child("dnsPolicy").one_of(
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        errors,
    );
    selector::label_map(&child("nodeSelector"), errors);
    named(&child("serviceAccountName"), NameRule::Subdomain, errors);
    named(&child("nodeName"), NameRule::Subdomain, errors);
    let deadline = child("activeDeadlineSeconds");
    if deadline
        .number()
        .is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds))
    {
        errors.push(deadline.invalid("must be between 1 and 2147483647, inclusive"));
    }
    named(&child("hostname"), NameRule::Label, errors);
    named(&child("subdomain"), NameRule::Label, errors);
    toleration::tolerations(&child("tolerations"), errors);
    named(&child("priorityClassName"), NameRule::Subdomain, errors);
    named(&child("runtimeClassName"), NameRule::Subdomain, errors);
    let preemption = child("preemptionPolicy");
    if preemption.is_set() {
        preemption.one_of(&["PreemptLowerPriority", "Never"], errors);
    }
}

/// The rules for new pods.
pub(super) fn new(pod: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(pod, "spec");
    let ephemeral = spec.child("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("cannot be set on create"));
    }
    let node = spec.child("nodeName");
    if !node.is_empty() && !spec.child("schedulingGates").is_empty() {
        errors.push(node.forbidden("cannot be set until all schedulingGates have been cleared"));
    }
}

/// The template of a set of pods.
pub(super) fn template(template: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let labels = selector::label_values(template.child("metadata").child("labels").value);
    metadata::labels(&format!("{}.labels", template.path()), &labels, errors);
    let annotations = selector::label_values(template.child("metadata").child("annotations").value);
    metadata::annotations(
        &format!("{}.annotations", template.path()),
        &annotations,
        errors,
    );
    spec(&template.child("spec"), errors);
    let ephemeral = template.child("spec").child("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
}

fn named(field: &FieldLocation<'_>, rule: NameRule, errors: &mut Vec<FieldError>) {
    if !field.is_empty() {
        field.each(name::problems(rule, field.text()), errors);
    }
}

/// Checks the volumes and answers their names.
fn volumes<'a>(volumes: &FieldLocation<'a>, errors: &mut Vec<FieldError>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for volume in volumes.items() {
        let sources: Vec<&String> = volume
            .value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, value)| *name != "name" && !value.is_null())
            .map(|(name, _)| name)
            .collect();
        match sources.as_slice() {
            [] => errors.push(volume.required("must specify a volume type")),
            [_] => {}
            [_, second, ..] => errors.push(
                volume
                    .child(second)
                    .forbidden("may not specify more than 1 volume type"),
            ),
        }
        let name = volume.child("name");
        if name.is_empty() {
            errors.push(name.required(""));
            continue;
        }
        let problems = name::label(name.text());
        if !problems.is_empty() {
            name.each(problems, errors);
        } else if names.contains(&name.text()) {
            errors.push(name.duplicate());
        } else {
            names.push(name.text());
        }
    }
    names
}

/// A pod's spec is fixed but for images, an active deadline that shrinks,
/// tolerations that are added or change their seconds, scheduling gates that
/// go, and a negative grace period that becomes 1.
pub(super) fn update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let (new_spec, old_spec) = (
        FieldLocation::field(new, "spec"),
        FieldLocation::field(old, "spec"),
    );
    for list in ["containers", "initContainers"] {
        if !same_number(&new_spec.child(list), &old_spec.child(list), errors) {
            return;
        }
    }
    if !deadline(&new_spec, &old_spec, errors) {
        return;
    }
    tolerations(&new_spec, &old_spec, errors);
    gates(&new_spec, &old_spec, errors);
    if fixed_part(new) != fixed_part(old) {
        errors.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
}

/// Validates an update of the status.
pub(super) fn status(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    const SYSTEM: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
    for condition in FieldLocation::field(new, "status")
        .child("conditions")
        .items()
    {
        let kind = condition.child("type");
        if SYSTEM.contains(&kind.text()) {
            continue;
        }
        // The server names conditions under `metadata`, and the field as Go does.
        let path = condition.path().replacen("status", "metadata", 1);
        for problem in name::qualified(kind.text()) {
            errors.push(FieldError::invalid(
                format!("{path}.Type"),
                &json!(kind.text()),
                problem,
            ));
        }
    }
    let (class, before) = (
        new.text(&["status", "qosClass"]),
        old.text(&["status", "qosClass"]),
    );
    metadata::immutable("status.qosClass", &json!(class), &json!(before), errors);
    let restart = old.text(&["spec", "restartPolicy"]);
    if restart != "Always" {
        transitions(new, old, restart, errors);
    }
}

/// A container that terminated and is not restarted stays terminated.
fn transitions(new: &Object, old: &Object, restart: &str, errors: &mut Vec<FieldError>) {
    let list = |pod| FieldLocation::field(pod, "status").child("containerStatuses");
    for (before, place) in list(old).items().zip(0..) {
        let ended = before.child("state").child("terminated");
        let again = restart == "OnFailure" && ended.child("exitCode").number() != Some(0);
        if !ended.is_set() || again {
            continue;
        }
        let name = before.child("name");
        for after in list(new).items() {
            let same = after.child("name").text() == name.text();
            if same && !after.child("state").child("terminated").is_set() {
                errors.push(FieldError::forbidden(
                    format!("status.containerStatuses[{place}].state"),
                    "may not be transitioned to non-terminated state",
                ));
            }
        }
    }
}

fn same_number(
    new: &FieldLocation<'_>,
    old: &FieldLocation<'_>,
    errors: &mut Vec<FieldError>,
) -> bool {
    if new.items().count() != old.items().count() {
        errors.push(new.forbidden("pod updates may not add or remove containers"));
        return false;
    }
    for container in new.items() {
        let image = container.child("image");
        if image.is_empty() {
            errors.push(image.required(""));
        }
        if image.text().trim() != image.text() {
            errors.push(image.invalid("must not have leading or trailing whitespace"));
        }
    }
    true
}

fn deadline(
    new: &FieldLocation<'_>,
    old: &FieldLocation<'_>,
    errors: &mut Vec<FieldError>,
) -> bool {
    let (new, old) = (
        new.child("activeDeadlineSeconds"),
        old.child("activeDeadlineSeconds"),
    );
    match (new.number(), old.number()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.push(new.invalid("must be between 0 and 2147483647, inclusive"));
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.push(new.invalid("must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            errors.push(new.invalid("must not update from a positive integer to nil value"));
            true
        }
        _ => true,
    }
}

fn tolerations(new: &FieldLocation<'_>, old: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let list = |spec: &FieldLocation<'_>| -> Vec<Value> {
        let tolerations = spec.child("tolerations");
        let without_seconds = |toleration: FieldLocation<'_>| {
            let mut fields = toleration.value.as_object().cloned().unwrap_or_default();
            fields.remove("tolerationSeconds");
            Value::Object(fields)
        };
        tolerations.items().map(without_seconds).collect()
    };
    let after = list(new);
    if list(old)
        .iter()
        .all(|toleration| after.contains(toleration))
    {
        toleration::tolerations(&new.child("tolerations"), errors);
    } else {
        errors.push(
            new.child("tolerations")
                .forbidden("existing toleration can not be modified except its tolerationSeconds"),
        );
    }
}

fn gates(new: &FieldLocation<'_>, old: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let old = old.child("schedulingGates");
    for gate in new.child("schedulingGates").items() {
        let known = old.items().any(|old| old.value == gate.value);
        if !known {
            let name = gate.child("name").text();
            errors.push(gate.forbidden(format!(
                "only deletion is allowed, but found new scheduling gate '{name}'"
            )));
        }
    }
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
