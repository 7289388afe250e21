//! What the API server fills in: defaults on every write (the table's
//! `default`) and what only a new object gets (`prepare`).

use serde_json::{Map, Value, json};

use crate::base64;
use crate::object::{Object, section};

/// For kinds that nothing is filled in for.
pub(crate) fn nothing(_: &mut Object) {}

/// Drops what a typed round trip loses: `null` fields and empty lists.
pub(crate) fn tidy(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    });
    fields.values_mut().for_each(tidy_value);
}

fn tidy_value(value: &mut Value) {
    match value {
        Value::Object(fields) => tidy(fields),
        Value::Array(list) => list.iter_mut().for_each(tidy_value),
        _ => {}
    }
}

/// `spec` is always there.
pub(crate) fn spec(object: &mut Object) {
    object.section("spec");
}

/// `spec` and `status` are always there.
pub(crate) fn spec_and_status(object: &mut Object) {
    object.section("spec");
    object.section("status");
}

/// Core events: times that are unset are `null`, the reporter is empty.
pub(crate) fn event(object: &mut Object) {
    object.section("source");
    fill(
        &mut object.body,
        &json!({
            "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        }),
    );
}

/// The name label and the phase.
pub(crate) fn namespace(object: &mut Object) {
    object.section("spec");
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

/// A new namespace is active and holds the finalizer of its controller.
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
    namespace(object);
}

/// Nodes: conditions spell their times out.
pub(crate) fn node(object: &mut Object) {
    spec_and_status(object);
    fill_each(
        object.section("status"),
        "conditions",
        &json!({"lastHeartbeatTime": null, "lastTransitionTime": null}),
    );
}

/// A claim or a volume starts as pending.
pub(crate) fn new_volume_or_claim(object: &mut Object) {
    object
        .body
        .insert("status".to_owned(), json!({"phase": "Pending"}));
}

/// Pods: the spec's defaults; conditions spell their times out.
pub(crate) fn pod(object: &mut Object) {
    pod_spec(object.section("spec"));
    fill_each(
        object.section("status"),
        "conditions",
        &json!({"lastProbeTime": null, "lastTransitionTime": null}),
    );
}

/// A new pod is pending; its quality of service never changes.
pub(crate) fn new_pod(object: &mut Object) {
    let class = quality_of_service(object.section("spec"));
    object.body.insert(
        "status".to_owned(),
        json!({"phase": "Pending", "qosClass": class}),
    );
}

/// A pod that says nothing else stays for a while on a node that fails.
pub(crate) fn tolerations(pod: &mut Object, seconds: i64) {
    let list = pod
        .section("spec")
        .entry("tolerations")
        .or_insert_with(|| json!([]));
    let Value::Array(list) = list else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerated = list.iter().any(|toleration| {
            let text = |name: &str| {
                toleration
                    .get(name)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let (own, effect) = (text("key"), text("effect"));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }));
        }
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    fill(
        spec,
        &json!({
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "securityContext": {}, "enableServiceLinks": true,
        }),
    );
    if spec.get("nodeName").and_then(Value::as_str) == Some("") {
        spec.remove("nodeName");
    }
    for list in ["containers", "initContainers"] {
        fill_each(
            spec,
            list,
            &json!({
                "resources": {}, "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
            }),
        );
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from requests and limits.
fn quality_of_service(spec: &Map<String, Value>) -> &'static str {
    let containers = spec.get("containers").and_then(Value::as_array);
    let amount = |container: &Value, what: &str, resource: &str| {
        container
            .get("resources")
            .and_then(|resources| resources.get(what)?.get(resource))
            .cloned()
    };
    let mut guaranteed = true;
    let mut any = false;
    for container in containers.into_iter().flatten() {
        for resource in ["cpu", "memory"] {
            let limit = amount(container, "limits", resource);
            let request = amount(container, "requests", resource);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(template)) = spec.get_mut("template") {
        pod_spec(section(template, "spec"));
    }
}

/// Sets of pods: one replica unless said otherwise.
pub(crate) fn replicas(object: &mut Object) {
    let spec = object.section("spec");
    fill(spec, &json!({"replicas": 1}));
    template(spec);
    fill(object.section("status"), &json!({"replicas": 0}));
}

/// A new set of pods has none.
pub(crate) fn no_replicas_yet(object: &mut Object) {
    object
        .body
        .insert("status".to_owned(), json!({"replicas": 0}));
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
    template(spec);
    object.section("status");
}

/// Daemon sets: the strategy; a status that counts from zero.
pub(crate) fn daemon_set(object: &mut Object) {
    let spec = object.section("spec");
    fill(spec, &json!({"revisionHistoryLimit": 10}));
    rolling_update(
        spec,
        "updateStrategy",
        &json!({"maxUnavailable": 1, "maxSurge": 0}),
    );
    template(spec);
    fill(
        object.section("status"),
        &json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0,
            "desiredNumberScheduled": 0, "numberReady": 0,
        }),
    );
}

/// A strategy is a rolling update, with these limits, unless it says otherwise.
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

/// Secrets: the type; `stringData` is a way to write `data`.
pub(crate) fn secret(object: &mut Object) {
    fill(&mut object.body, &json!({"type": "Opaque"}));
    if let Some(Value::Object(texts)) = object.body.remove("stringData") {
        let data = object.section("data");
        for (key, text) in texts {
            let bytes = text.as_str().unwrap_or_default().as_bytes();
            data.insert(key, base64::encode(bytes).into());
        }
    }
}

/// Services: the type and the ports' protocol.
pub(crate) fn service(object: &mut Object) {
    let spec = object.section("spec");
    fill(
        spec,
        &json!({
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        }),
    );
    fill_each(spec, "ports", &json!({"protocol": "TCP"}));
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(number) = port.get("port").cloned() {
                port.entry("targetPort").or_insert(number);
            }
        }
    }
    fill(object.section("status"), &json!({"loadBalancer": {}}));
}

/// Disruption budgets: the counters are always there.
pub(crate) fn disruption_budget(object: &mut Object) {
    object.section("spec");
    fill(
        object.section("status"),
        &json!({
            "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
        }),
    );
}

/// A new disruption budget has not been processed yet.
pub(crate) fn new_disruption_budget(object: &mut Object) {
    object.body.remove("status");
    disruption_budget(object);
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
    let filled = json!({"singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
    fill(names, &filled);
    fill(
        object.section("status"),
        &json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}}),
    );
}

/// A new definition stores the version that says so.
pub(crate) fn new_definition(object: &mut Object) {
    object.body.remove("status");
    definition(object);
    let stored: Vec<Value> = object
        .at(&["spec", "versions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    object
        .section("status")
        .insert("storedVersions".to_owned(), stored.into());
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
