//! Sets of pods, and jobs.

use serde_json::{Map, Value, json};

use super::{fill, pod};
use crate::object::{Object, section};

/// Replica sets: one replica by default.
pub(crate) fn replica_set(object: &mut Object) {
    let spec = object.section("spec");
    fill(spec, &json!({"replicas": 1}));
    pod::template(spec);
}

/// Replication controllers: the template's labels are the controller's own,
/// and what it selects.
pub(crate) fn replication_controller(object: &mut Object) {
    replica_set(object);
    let labels = template_labels(object);
    if let Some(Value::Object(labels)) = labels {
        fill(object.section("spec"), &json!({"selector": labels.clone()}));
        own_labels(object, &labels);
    }
}

/// Deployments: the strategy and its limits.
pub(crate) fn deployment(object: &mut Object) {
    let spec = object.section("spec");
    fill(
        spec,
        &json!({
            "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
        }),
    );
    rolling_update(
        spec,
        "strategy",
        &json!({"maxUnavailable": "25%", "maxSurge": "25%"}),
    );
    pod::template(spec);
}

/// Stateful sets: the strategy, and the retention of claims.
pub(crate) fn stateful_set(object: &mut Object) {
    let spec = object.section("spec");
    fill(
        spec,
        &json!({
            "replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
            "persistentVolumeClaimRetentionPolicy": {},
        }),
    );
    let claims = section(spec, "persistentVolumeClaimRetentionPolicy");
    fill(
        claims,
        &json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
    rolling_update(spec, "updateStrategy", &json!({"partition": 0}));
    pod::template(spec);
}

/// Daemon sets: the strategy.
pub(crate) fn daemon_set(object: &mut Object) {
    let spec = object.section("spec");
    fill(spec, &json!({"revisionHistoryLimit": 10}));
    rolling_update(
        spec,
        "updateStrategy",
        &json!({"maxUnavailable": 1, "maxSurge": 0}),
    );
    pod::template(spec);
}

/// The annotation for `spec.templateGeneration`, a field that `apps/v1` no longer has
/// and the server still counts.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A new daemon set's template has its first generation, unless the client
/// brings a later one.
pub(crate) fn new_daemon_set(set: &mut Object) {
    let generation = template_generation(set).unwrap_or(0).max(1);
    set_template_generation(set, generation);
}

/// Only the server counts the generations of a template: a client's annotation
/// changes nothing.
pub(crate) fn count_template_generation(new: &mut Object, old: &Object) {
    let template = |set: &Object| set.at(&["spec", "template"]).cloned();
    let rises = i64::from(template(new) != template(old));
    let generation = template_generation(old).unwrap_or(0);
    set_template_generation(new, generation.saturating_add(rises));
}

/// The generation in the annotation (0 without one), or the error of Go's parser.
pub(crate) fn template_generation(set: &Object) -> Result<i64, String> {
    let Some(text) = set.metadata.annotations.get(TEMPLATE_GENERATION) else {
        return Ok(0);
    };
    text.parse()
        .map_err(|_| format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
}

fn set_template_generation(set: &mut Object, generation: i64) {
    let annotations = &mut set.metadata.annotations;
    annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string());
}

/// A strategy is a rolling update with these limits by default.
fn rolling_update(spec: &mut Map<String, Value>, field: &str, limits: &Value) {
    let strategy = section(spec, field);
    fill(strategy, &json!({"type": "RollingUpdate"}));
    if strategy
        .get("type")
        .is_some_and(|kind| kind == "RollingUpdate")
    {
        fill(section(strategy, "rollingUpdate"), limits);
    }
}

/// A new set of pods has no status.
pub(crate) fn no_status_yet(object: &mut Object) {
    object.body.remove("status");
}

/// Jobs: one completion; the template's labels are the job's own.
pub(crate) fn job(object: &mut Object) {
    let spec = object.section("spec");
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        fill(spec, &json!({"completions": 1}));
    }
    let replacement = if spec.contains_key("podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    let retries = if spec.contains_key("backoffLimitPerIndex") {
        i32::MAX
    } else {
        6
    };
    fill(
        spec,
        &json!({
            "parallelism": 1, "backoffLimit": retries, "completionMode": "NonIndexed",
            "suspend": false, "manualSelector": false, "podReplacementPolicy": replacement,
        }),
    );
    pod::template(spec);
    if let Some(Value::Object(labels)) = template_labels(object) {
        own_labels(object, &labels);
    }
}

/// A new job selects its pods by its uid, unless it selects them itself.
pub(crate) fn new_job(job: &mut Object) {
    let (name, uid) = (job.metadata.name.clone(), job.metadata.uid.clone());
    let spec = job.section("spec");
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let template = section(section(spec, "template"), "metadata");
    fill(
        section(template, "labels"),
        &json!({
            "controller-uid": uid, "job-name": name,
            "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
        }),
    );
    let selected = section(section(spec, "selector"), "matchLabels");
    fill(
        selected,
        &json!({"batch.kubernetes.io/controller-uid": uid}),
    );
}

/// Cron jobs: what runs beside what, and how much is remembered.
pub(crate) fn cron_job(object: &mut Object) {
    let spec = object.section("spec");
    fill(
        spec,
        &json!({
            "concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1,
        }),
    );
    if let Some(Value::Object(template)) = spec.get_mut("jobTemplate") {
        pod::template(section(template, "spec"));
    }
}

fn template_labels(object: &Object) -> Option<Value> {
    object
        .at(&["spec", "template", "metadata", "labels"])
        .cloned()
}

fn own_labels(object: &mut Object, labels: &Map<String, Value>) {
    if object.metadata.labels.is_empty() {
        let labels = labels.iter();
        object.metadata.labels = labels
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
    }
}
