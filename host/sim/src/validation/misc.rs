//! Disruption budgets, leases, storage versions, events.

use serde_json::{Value, json};

use super::at::FieldLocation;
use super::{go, metadata, selector, workload};
use crate::name;
use crate::object::Object;
use crate::status::FieldError;

/// A disruption budget.
pub(super) fn disruption_budget(budget: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(budget, "spec");
    let (least, most) = (spec.child("minAvailable"), spec.child("maxUnavailable"));
    let policy = spec.child("unhealthyPodEvictionPolicy");
    if least.is_set() && most.is_set() {
        let chosen = go::selector(spec.child("selector").value);
        let printed = format!(
            "{{\"MinAvailable\":{},\"Selector\":{chosen},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            least.value, most.value, policy.value
        );
        errors.push(FieldError::invalid_printed(
            "spec",
            &printed,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for amount in [&least, &most] {
        workload::int_or_percent(amount, errors);
        workload::at_most_all(amount, errors);
    }
    selector::label_selector(&spec.child("selector"), errors);
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    if policy.is_set() && !known.contains(&policy.text()) {
        errors.push(policy.not_supported(&known));
    }
}

/// The counters of a disruption budget.
pub(super) fn disruption_budget_status(budget: &Object, errors: &mut Vec<FieldError>) {
    let status = FieldLocation::field(budget, "status");
    conditions(&status.child("conditions"), errors);
    for counter in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        status.child(counter).not_negative(errors);
    }
}

/// `metav1.Condition`s.
fn conditions(conditions: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let mut kinds = Vec::new();
    for condition in conditions.items() {
        let child = |name: &str| condition.child(name);
        let kind = child("type");
        if kinds.contains(&kind.text()) {
            errors.push(kind.duplicate());
        }
        kinds.push(kind.text());
        kind.each(name::qualified(kind.text()), errors);
        let status = child("status");
        if !["True", "False", "Unknown"].contains(&status.text()) {
            errors.push(status.not_supported(&["False", "True", "Unknown"]));
        }
        let generation = child("observedGeneration");
        if generation.number().is_some_and(|number| number < 0) {
            errors.push(generation.invalid("must be greater than or equal to zero"));
        }
        if child("lastTransitionTime").is_empty() {
            errors.push(child("lastTransitionTime").required(""));
        }
        let reason = child("reason");
        if reason.is_empty() {
            errors.push(reason.required(""));
        } else if !is_reason(reason.text()) {
            errors.push(reason.invalid("a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"));
        }
    }
}

fn is_reason(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| word(c) || ",:".contains(c))
        && text.ends_with(word)
}

/// A lease.
pub(super) fn lease(lease: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(lease, "spec");
    let seconds = spec.child("leaseDurationSeconds");
    if seconds.number().is_some_and(|seconds| seconds <= 0) {
        errors.push(seconds.invalid("must be greater than 0"));
    }
    let transitions = spec.child("leaseTransitions");
    transitions.not_negative(errors);
    let strategy = spec.child("strategy");
    if strategy.is_set()
        && !strategy.text().contains('/')
        && strategy.text() != "OldestEmulationVersion"
    {
        errors.push(FieldError::not_supported(
            "spec.strategy.strategy",
            &json!(strategy.text()),
            &["OldestEmulationVersion"],
        ));
    }
    let preferred = spec.child("preferredHolder");
    if !preferred.is_empty() && strategy.is_empty() {
        errors.push(preferred.forbidden("may only be specified if `strategy` is defined"));
    }
}

/// The status of a storage version.
pub(super) fn storage_version(version: &Object, errors: &mut Vec<FieldError>) {
    let status = FieldLocation::field(version, "status");
    let servers = status.child("storageVersions");
    for server in servers.items() {
        let id = server.child("apiServerID");
        id.each(name::subdomain(id.text()), errors);
        let encoding = server.child("encodingVersion");
        api_version(&encoding, errors);
        let decodable = server.child("decodableVersions");
        for version in decodable.items() {
            api_version(&version, errors);
        }
        if !decodable
            .items()
            .any(|version| version.text() == encoding.text())
        {
            errors.push(decodable.invalid(format!(
                "decodableVersions must include encodingVersion {}",
                encoding.text()
            )));
        }
    }
    common_version(&status, errors);
    let mut kinds: Vec<&str> = Vec::new();
    for (condition, place) in status.child("conditions").items().zip(0..) {
        storage_condition(&condition, place, &mut kinds, errors);
    }
}

fn common_version(status: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let servers = status.child("storageVersions");
    let mut encodings = servers
        .items()
        .map(|server| server.child("encodingVersion").text());
    let first = encodings.next();
    let actual = first.filter(|first| encodings.all(|other| other == *first));
    let said = status.child("commonEncodingVersion");
    match actual {
        None if said.is_set() => errors.push(said.invalid(
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet",
        )),
        Some(actual) if !said.is_set() => {
            errors.push(said.invalid(format!("the common encoding version is {actual}")));
        }
        Some(actual) if said.text() != actual => {
            errors.push(said.invalid(format!("the actual common encoding version is {actual}")));
        }
        _ => {}
    }
}

/// The server leaves `conditions` out of these paths.
fn storage_condition<'a>(
    condition: &FieldLocation<'a>,
    place: usize,
    kinds: &mut Vec<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    let kind = condition.child("type").text();
    let path = |field: &str| format!("status[{place}].{field}");
    if let Some(first) = kinds.iter().position(|other| *other == kind) {
        errors.push(FieldError::invalid(
            path("type"),
            &kind.into(),
            format!(
                "the type of the condition is not unique, it also appears in conditions[{first}]"
            ),
        ));
    }
    kinds.push(kind);
    for (field, text) in [("type", kind), ("status", condition.child("status").text())] {
        for problem in name::qualified(text) {
            errors.push(FieldError::invalid(path(field), &kind.into(), problem));
        }
    }
    for field in ["reason", "message"] {
        if condition.child(field).is_empty() {
            let why = format!("{field} cannot be empty");
            errors.push(FieldError::required(path(field), &why));
        }
    }
}

fn api_version(version: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let mut problems = Vec::new();
    let parts: Vec<&str> = version.text().split('/').collect();
    let version_part = match parts.as_slice() {
        [version] => *version,
        [group, version] => {
            if group.is_empty() {
                problems.push("group part: must be non-empty".to_owned());
            } else {
                let found = name::subdomain(group).into_iter();
                problems.extend(found.map(|problem| format!("group part: {problem}")));
            }
            version
        }
        _ => {
            errors.push(version.invalid("an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"));
            return;
        }
    };
    if version_part.is_empty() {
        problems.push("version part: must be non-empty".to_owned());
    } else {
        let found = name::label_1035(version_part).into_iter();
        problems.extend(found.map(|problem| format!("version part: {problem}")));
    }
    if !problems.is_empty() {
        errors.push(version.invalid_text(problems.join(",")));
    }
}

/// An event of the old form is in the namespace of its object. One of the new form
/// (with an `eventTime`) names its reporter and the action.
pub(super) fn event(event: &Object, errors: &mut Vec<FieldError>) {
    const LIMIT: usize = 128;
    let about = event.text(&["involvedObject", "namespace"]);
    let own = event.metadata.namespace.as_str();
    let modern = event.at(&["eventTime"]).is_some_and(|time| !time.is_null());
    let fits = match (about, modern) {
        ("", false) => own == "default",
        ("", true) => own == "default" || own == "kube-system",
        (about, false) => about == own,
        (_, true) => true,
    };
    if !fits {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &json!(about),
            "does not match event.namespace",
        ));
    }
    if !modern {
        return;
    }
    let reporter = event.text(&["reportingComponent"]);
    if reporter.is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    }
    for problem in name::qualified(reporter) {
        errors.push(FieldError::invalid(
            "reportingController",
            &json!(reporter),
            problem,
        ));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let text = event.text(&[field]);
        if text.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        if text.len() > LIMIT {
            let why = format!("can have at most {LIMIT} characters");
            errors.push(FieldError::invalid(field, &json!(""), why));
        }
    }
    if event.text(&["message"]).len() > 1024 {
        let why = "can have at most 1024 characters";
        errors.push(FieldError::invalid("message", &json!(""), why));
    }
}

/// What `events.k8s.io` demands of a new event beyond that.
pub(super) fn new_event(event: &Object, errors: &mut Vec<FieldError>) {
    series(event, errors);
    let unset = |name: &str| event.at(&[name]).is_none_or(is_zero);
    if unset("eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = event.text(&["type"]);
    if !["Normal", "Warning"].contains(&kind) {
        let why = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid("type", &json!(""), why));
    }
    for old in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if !unset(old) {
            errors.push(FieldError::invalid(old, &json!(""), "needs to be unset"));
        }
    }
}

/// An update of an `events.k8s.io` event may change the series only.
pub(super) fn event_update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    const FIXED: [(&str, &str); 13] = [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    if new.body.get("series") != old.body.get("series") {
        series(new, errors);
    }
    for (core, shown) in FIXED {
        let field = |event: &Object| event.body.get(core).cloned().unwrap_or_default();
        metadata::immutable(shown, &field(new), &field(old), errors);
    }
}

fn series(event: &Object, errors: &mut Vec<FieldError>) {
    let series = FieldLocation::field(event, "series");
    if !series.is_set() {
        return;
    }
    if series.child("count").number().unwrap_or(0) < 2 {
        errors.push(FieldError::invalid(
            "series.count",
            &json!(""),
            "should be at least 2",
        ));
    }
    if series.child("lastObservedTime").is_empty() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_zero),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}
