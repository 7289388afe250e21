//! Defaults: those of every write (the table's `default`) and those of a new object
//! (`prepare`). The fields that Go always writes are in [`crate::canonical`].

mod pod;
mod workload;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};

use crate::access::GROUP;
use crate::object::{Object, section};

pub(crate) use pod::{keep_pod_status, new_pod, pod, pod_template, tolerations};
pub(crate) use workload::{
    count_template_generation, cron_job, daemon_set, deployment, job, new_daemon_set, new_job,
    no_status_yet, replica_set, replication_controller, stateful_set, template_generation,
};

/// For kinds without defaults.
pub(crate) fn nothing(_: &mut Object) {}

/// The name label and the phase.
pub(crate) fn namespace(object: &mut Object) {
    fill(object.section("status"), &json!({"phase": "Active"}));
    if !object.metadata.name.is_empty() {
        let name = object.metadata.name.clone();
        object
            .metadata
            .labels
            .entry("kubernetes.io/metadata.name".to_owned())
            .or_insert(name);
    }
}

/// A new namespace is active and has the finalizer of its controller.
pub(crate) fn new_namespace(object: &mut Object) {
    object
        .body
        .insert("status".to_owned(), json!({"phase": "Active"}));
    let spec = object.section("spec");
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Value::Array(list) = finalizers
        && !list.iter().any(|name| name == "kubernetes")
    {
        list.push("kubernetes".into());
    }
}

/// Nodes: the address range that has two names.
pub(crate) fn node(object: &mut Object) {
    let spec = object.section("spec");
    let first = spec
        .get("podCIDRs")
        .and_then(|ranges| ranges.get(0))
        .cloned();
    match (spec.get("podCIDR").cloned(), first) {
        (None, Some(first)) => {
            spec.insert("podCIDR".to_owned(), first);
        }
        (Some(range), None) => {
            spec.insert("podCIDRs".to_owned(), json!([range]));
        }
        _ => {}
    }
}

/// A claim or a volume starts as pending.
pub(crate) fn new_volume_or_claim(object: &mut Object) {
    object
        .body
        .insert("status".to_owned(), json!({"phase": "Pending"}));
}

/// Secrets: the type; `stringData` is a way to write `data`.
pub(crate) fn secret(object: &mut Object) {
    fill(&mut object.body, &json!({"type": "Opaque"}));
    if let Some(Value::Object(texts)) = object.body.remove("stringData") {
        let data = object.section("data");
        for (key, text) in texts {
            let bytes = text.as_str().unwrap_or_default().as_bytes();
            data.insert(key, BASE64_STANDARD.encode(bytes).into());
        }
    }
}

/// Services: the type, the policies and the ports' protocol. Addresses are
/// given when the service is created.
pub(crate) fn service(object: &mut Object) {
    let spec = object.section("spec");
    fill(
        spec,
        &json!({"type": "ClusterIP", "sessionAffinity": "None"}),
    );
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    let (inside, outside, balanced) = match kind {
        "ClusterIP" => (true, false, false),
        "NodePort" => (true, true, false),
        "LoadBalancer" => (true, true, true),
        _ => (false, false, false),
    };
    if inside {
        fill(spec, &json!({"internalTrafficPolicy": "Cluster"}));
    }
    if outside {
        fill(spec, &json!({"externalTrafficPolicy": "Cluster"}));
    }
    if balanced {
        fill(spec, &json!({"allocateLoadBalancerNodePorts": true}));
    }
    if spec.get("sessionAffinity") == Some(&json!("ClientIP")) {
        let client = section(section(spec, "sessionAffinityConfig"), "clientIP");
        fill(client, &json!({"timeoutSeconds": 10_800}));
    }
    fill_each(spec, "ports", &json!({"protocol": "TCP"}));
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            let number = port.get("port").cloned().unwrap_or_default();
            let target = port.get("targetPort");
            if target.is_none_or(|target| *target == json!(0) || *target == json!("")) {
                port.insert("targetPort".to_owned(), number);
            }
        }
    }
}

/// Bindings: the API group of the role, and of users and groups.
pub(crate) fn role_binding(object: &mut Object) {
    fill(object.section("roleRef"), &json!({"apiGroup": GROUP}));
    if let Some(Value::Array(subjects)) = object.body.get_mut("subjects") {
        for subject in subjects.iter_mut().filter_map(Value::as_object_mut) {
            let kind = subject.get("kind").and_then(Value::as_str);
            if matches!(kind, Some("User" | "Group")) {
                fill(subject, &json!({"apiGroup": GROUP}));
            }
        }
    }
}

/// Priority classes preempt unless they say otherwise.
pub(crate) fn priority_class(object: &mut Object) {
    fill(
        &mut object.body,
        &json!({"preemptionPolicy": "PreemptLowerPriority"}),
    );
}

/// Custom resource definitions: names and conversion.
pub(crate) fn definition(object: &mut Object) {
    let spec = object.section("spec");
    fill(spec, &json!({"conversion": {"strategy": "None"}}));
    let names = section(spec, "names");
    let kind = names
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !kind.is_empty() {
        let filled = json!({"singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
        fill(names, &filled);
    }
    if let Some(Value::Array(versions)) = spec.get_mut("versions") {
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            if version.get("deprecated") != Some(&Value::Bool(true)) {
                version.remove("deprecated");
            }
        }
    }
}

/// A new definition has no status but the version that it stores.
pub(crate) fn new_definition(object: &mut Object) {
    object.body.remove("status");
    note_stored_version(object);
}

/// A definition remembers every version that it ever stored.
pub(crate) fn note_stored_version(definition: &mut Object) {
    let versions = definition.at(&["spec", "versions"]);
    let storage = versions
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .and_then(|version| version.get("name").cloned());
    let stored = definition
        .section("status")
        .entry("storedVersions")
        .or_insert(Value::Null);
    if !stored.is_array() {
        *stored = Value::Array(Vec::new());
    }
    if let (Some(storage), Value::Array(stored)) = (storage, stored)
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
}

/// Adds the fields of `defaults` that are missing.
fn fill(fields: &mut Map<String, Value>, defaults: &Value) {
    for (name, value) in defaults.as_object().into_iter().flatten() {
        if !fields.contains_key(name) {
            fields.insert(name.clone(), value.clone());
        }
    }
}

/// The same for each object of a list.
fn fill_each(fields: &mut Map<String, Value>, list: &str, defaults: &Value) {
    if let Some(Value::Array(items)) = fields.get_mut(list) {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            fill(item, defaults);
        }
    }
}
