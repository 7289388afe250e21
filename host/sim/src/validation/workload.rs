//! Sets of pods: deployments, replica sets, stateful sets, daemon sets,
//! replication controllers.

use serde_json::{Map, Value, json};

use super::at::FieldLocation;
use super::{metadata, pod, selector};
use crate::object::Object;
use crate::selector::LabelSelector;
use crate::status::FieldError;

/// The specification of a set of pods, new or changed.
pub(super) fn spec(kind: &str, object: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(object, "spec");
    match kind {
        "Deployment" => deployment(&spec, errors),
        "ReplicaSet" => {
            spec.child("replicas").not_negative(errors);
            spec.child("minReadySeconds").not_negative(errors);
            selected(&spec, "ReplicaSet", errors);
        }
        "ReplicationController" => replication_controller(&spec, errors),
        "DaemonSet" => daemon_set(&spec, errors),
        "StatefulSet" => stateful_set(&spec, errors),
        _ => {}
    }
}

/// What may not change in a set of pods.
pub(super) fn update(kind: &str, new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" => {
            let selector = |object: &Object| object.at(&["spec", "selector"]).cloned();
            let (new, old) = (selector(new), selector(old));
            if new != old {
                let printed = super::go::selector(&new.unwrap_or_default());
                errors.push(FieldError::invalid_printed(
                    "spec.selector",
                    &printed,
                    "field is immutable",
                ));
            }
        }
        "StatefulSet" if fixed_part(new) != fixed_part(old) => errors.push(FieldError::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        )),
        _ => {}
    }
}

fn fixed_part(set: &Object) -> Map<String, Value> {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let spec = set.body.get("spec").and_then(Value::as_object);
    let mut spec = spec.cloned().unwrap_or_default();
    spec.retain(|name, _| !FREE.contains(&name.as_str()));
    spec
}

/// A status written through its endpoint.
pub(super) fn status(kind: &str, object: &Object, errors: &mut Vec<FieldError>) {
    let status = FieldLocation::field(object, "status");
    let (counters, limits): (&[&str], &[(&str, &str)]) = match kind {
        "Deployment" => (
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "collisionCount",
            ],
            &[
                ("updatedReplicas", "replicas"),
                ("readyReplicas", "replicas"),
                ("availableReplicas", "replicas"),
                ("availableReplicas", "readyReplicas"),
            ],
        ),
        "ReplicaSet" | "ReplicationController" => (
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
            ],
            &[
                ("fullyLabeledReplicas", "replicas"),
                ("readyReplicas", "replicas"),
                ("availableReplicas", "replicas"),
                ("availableReplicas", "readyReplicas"),
            ],
        ),
        "StatefulSet" => (
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &[
                ("readyReplicas", "replicas"),
                ("currentReplicas", "replicas"),
                ("updatedReplicas", "replicas"),
                ("availableReplicas", "replicas"),
                ("availableReplicas", "readyReplicas"),
            ],
        ),
        "DaemonSet" => (
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            &[],
        ),
        _ => return,
    };
    for counter in counters {
        status.child(counter).not_negative(errors);
    }
    for (counter, most) in limits {
        let counter = status.child(counter);
        if counter.number().unwrap_or(0) > status.child(most).number().unwrap_or(0) {
            let most = if *most == "replicas" {
                "status.replicas"
            } else {
                most
            };
            errors.push(counter.invalid(format!("cannot be greater than {most}")));
        }
    }
}

fn deployment(spec: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    spec.child("replicas").not_negative(errors);
    selected(spec, "ReplicaSet", errors);
    let strategy = spec.child("strategy");
    let rolling = strategy.child("rollingUpdate");
    match strategy.child("type").text() {
        "Recreate" => {
            if rolling.is_set() {
                errors.push(
                    rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"),
                );
            }
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.child("maxUnavailable"), rolling.child("maxSurge"));
            int_or_percent(&unavailable, errors);
            int_or_percent(&surge, errors);
            if amount(&unavailable) == 0 && amount(&surge) == 0 {
                errors.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
            }
            at_most_all(&unavailable, errors);
        }
        _ => errors.push(strategy_not_supported(
            &strategy,
            &["Recreate", "RollingUpdate"],
        )),
    }
    spec.child("minReadySeconds").not_negative(errors);
    spec.child("revisionHistoryLimit").not_negative(errors);
    let deadline = spec.child("progressDeadlineSeconds");
    deadline.not_negative(errors);
    let ready = spec.child("minReadySeconds").number().unwrap_or(0);
    if deadline.number().is_some_and(|seconds| seconds <= ready) {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
    }
}

fn strategy_not_supported(strategy: &FieldLocation<'_>, known: &[&str]) -> FieldError {
    let kind = json!(strategy.child("type").text());
    let printed = super::go::object(&[
        ("Type", &kind),
        ("RollingUpdate", strategy.child("rollingUpdate").value),
    ]);
    FieldError::not_supported_printed(strategy.path(), &printed, known)
}

fn replication_controller(spec: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    spec.child("minReadySeconds").not_negative(errors);
    let labels = spec.child("selector");
    if labels.is_empty() {
        errors.push(labels.required(""));
    }
    spec.child("replicas").not_negative(errors);
    let template = spec.child("template");
    if !template.is_set() {
        errors.push(template.required(""));
        return;
    }
    let chosen = LabelSelector::from_json(Some(&json!({"matchLabels": labels.value})));
    selector::matches_template(&chosen, &template, errors);
    pod_template(&template, "ReplicationController", errors);
}

fn daemon_set(spec: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let chosen = spec.child("selector");
    selector::label_selector(&chosen, errors);
    let labels = spec.child("template").child("metadata").child("labels");
    let selects = LabelSelector::from_json(Some(chosen.value).filter(|value| !value.is_null()));
    if !selects.matches(&selector::label_values(labels.value)) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    if chosen.is_set()
        && chosen.child("matchLabels").is_empty()
        && chosen.child("matchExpressions").is_empty()
    {
        errors.push(chosen.invalid("empty selector is invalid for daemonset"));
    }
    pod_template(&spec.child("template"), "DaemonSet", errors);
    spec.child("minReadySeconds").not_negative(errors);
    let strategy = spec.child("updateStrategy");
    match strategy.child("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => daemon_rolling_update(&strategy.child("rollingUpdate"), errors),
        _ => errors.push(strategy_not_supported(
            &strategy,
            &["RollingUpdate", "OnDelete"],
        )),
    }
    spec.child("revisionHistoryLimit").not_negative(errors);
}

fn daemon_rolling_update(rolling: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let (unavailable, surge) = (rolling.child("maxUnavailable"), rolling.child("maxSurge"));
    int_or_percent(&unavailable, errors);
    int_or_percent(&surge, errors);
    at_most_all(&unavailable, errors);
    at_most_all(&surge, errors);
    match (amount(&unavailable), amount(&surge)) {
        (0, 0) => errors.push(unavailable.required("cannot be 0 when maxSurge is 0")),
        (0, _) | (_, 0) => {}
        _ => errors.push(surge.invalid("may not be set when maxUnavailable is non-zero")),
    }
}

fn stateful_set(spec: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let management = spec.child("podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&management.text()) {
        errors.push(management.invalid_text("must be 'OrderedReady' or 'Parallel'"));
    }
    spec.child("replicas").not_negative(errors);
    spec.child("minReadySeconds").not_negative(errors);
    let chosen = selector::of_pods(
        &spec.child("selector"),
        "empty selector is invalid for statefulset",
        errors,
    );
    let template = spec.child("template");
    match chosen {
        Some(chosen) => selector::matches_template(&chosen, &template, errors),
        None => errors.push(spec.child("selector").invalid("")),
    }
    pod_template(&template, "StatefulSet", errors);
}

/// The selector and the template of most sets.
fn selected(spec: &FieldLocation<'_>, owner: &str, errors: &mut Vec<FieldError>) {
    let template = spec.child("template");
    let chosen = selector::of_pods(
        &spec.child("selector"),
        "empty selector is invalid for deployment",
        errors,
    );
    match chosen {
        Some(chosen) => {
            selector::matches_template(&chosen, &template, errors);
            pod_template(&template, owner, errors);
        }
        None => errors.push(spec.child("selector").invalid("invalid label selector")),
    }
}

/// A template whose pods never end.
fn pod_template(template: &FieldLocation<'_>, owner: &str, errors: &mut Vec<FieldError>) {
    pod::template(template, errors);
    let spec = template.child("spec");
    let restart = spec.child("restartPolicy");
    if restart.text() != "Always" {
        errors.push(restart.not_supported(&["Always"]));
    }
    let deadline = spec.child("activeDeadlineSeconds");
    if deadline.is_set() {
        errors
            .push(deadline.forbidden(format!("activeDeadlineSeconds in {owner} is not Supported")));
    }
}

/// A number that is not negative, or a percentage.
pub(super) fn int_or_percent(value: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    match value.value {
        Value::String(text) if percent(text).is_none() => errors.push(value.invalid(
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        )),
        Value::Number(_) => value.not_negative(errors),
        _ => {}
    }
}

/// A percentage is at most 100%.
pub(super) fn at_most_all(value: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    if percent(value.text()).is_some_and(|percent| percent > 100) {
        errors.push(value.invalid("must not be greater than 100%"));
    }
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    let plain = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

fn amount(value: &FieldLocation<'_>) -> u64 {
    let number = value.number().and_then(|number| u64::try_from(number).ok());
    number.or_else(|| percent(value.text())).unwrap_or(0)
}

/// What may not change in a controller revision.
pub(super) fn revision_update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let data = |object: &Object| object.body.get("data").cloned().unwrap_or_default();
    metadata::immutable("data", &data(new), &data(old), errors);
}
