//! Pods and pod templates.

use serde_json::{Map, Value, json};

use super::{fill, fill_each};
use crate::object::{Object, section};

type Fields = Map<String, Value>;

/// Pods: the spec's defaults, and the fields that have two names.
pub(crate) fn pod(pod: &mut Object) {
    let spec = pod.section("spec");
    fill(spec, &json!({"enableServiceLinks": true}));
    pod_spec(spec);
    one_address(pod.section("status"), "podIP", "podIPs");
}

/// A new pod is pending; its quality of service never changes.
pub(crate) fn new_pod(pod: &mut Object) {
    let spec = pod.section("spec");
    let class = quality_of_service(spec);
    let gated = spec
        .get("schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|gates| !gates.is_empty());
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if let (true, Value::Object(status)) = (gated, &mut status) {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        status.insert("conditions".to_owned(), json!([condition]));
    }
    pod.body.insert("status".to_owned(), status);
}

/// Adds the default tolerations: the pod stays for a while on a node that fails.
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

/// A status from a client that does not know these fields does not remove them.
pub(crate) fn keep_pod_status(new: &mut Object, old: &Object) {
    let old = old.at(&["status"]).cloned().unwrap_or_default();
    let status = new.section("status");
    keep_unset(status, &old, "qosClass");
    keep_unset(status, &old, "observedGeneration");
    let list = |status: &Value| status.get("conditions").and_then(Value::as_array).cloned();
    // There may be several conditions of a type, which are matched in order.
    let mut before = list(&old).unwrap_or_default();
    let Some(Value::Array(conditions)) = status.get_mut("conditions") else {
        return;
    };
    for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
        let same = |other: &Value| other.get("type") == condition.get("type");
        if let Some(place) = before.iter().position(same) {
            keep_unset(condition, &before.remove(place), "observedGeneration");
        }
    }
}

fn keep_unset(new: &mut Fields, old: &Value, field: &str) {
    if let (None, Some(value)) = (new.get(field), old.get(field)) {
        new.insert(field.to_owned(), value.clone());
    }
}

/// Pod templates: the defaults of the pods that are made of them.
pub(crate) fn pod_template(object: &mut Object) {
    template(&mut object.body);
}

/// The template of a set of pods.
pub(super) fn template(spec: &mut Fields) {
    if let Some(Value::Object(template)) = spec.get_mut("template") {
        pod_spec(section(template, "spec"));
    }
}

pub(super) fn pod_spec(spec: &mut Fields) {
    fill(
        spec,
        &json!({
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "securityContext": {},
        }),
    );
    // The old name of the field.
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".to_owned(), account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        spec.insert("serviceAccountName".to_owned(), account);
    }
    for volume in objects(spec, "volumes") {
        volume_defaults(volume);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for item in objects(spec, list) {
            container(item);
        }
    }
}

fn container(container: &mut Fields) {
    let image = container.get("image").and_then(Value::as_str);
    let policy = if is_latest(image.unwrap_or_default()) {
        "Always"
    } else {
        "IfNotPresent"
    };
    fill(
        container,
        &json!({
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": policy,
        }),
    );
    fill_each(container, "ports", &json!({"protocol": "TCP"}));
    for variable in objects(container, "env") {
        if let Some(Value::Object(from)) = variable.get_mut("valueFrom")
            && let Some(Value::Object(field)) = from.get_mut("fieldRef")
        {
            fill(field, &json!({"apiVersion": "v1"}));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(Value::Object(probe)) = container.get_mut(probe) else {
            continue;
        };
        fill(
            probe,
            &json!({
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
                "failureThreshold": 3,
            }),
        );
        if let Some(Value::Object(request)) = probe.get_mut("httpGet") {
            fill(request, &json!({"path": "/", "scheme": "HTTP"}));
        }
    }
    requests(container);
}

/// Requests default to the limits.
fn requests(container: &mut Fields) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else {
        return;
    };
    if let Some(limits) = resources.get("limits").cloned() {
        fill(section(resources, "requests"), &limits);
    }
}

/// An image without a tag, or with the tag `latest`, is the latest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume_defaults(volume: &mut Fields) {
    if !volume.keys().any(|name| name != "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = volume.get_mut(source) {
            fill(source, &json!({"defaultMode": 420}));
        }
    }
    if let Some(Value::Object(path)) = volume.get_mut("hostPath") {
        fill(path, &json!({"type": ""}));
    }
}

/// A list of addresses, and a separate field with its first one.
fn one_address(status: &mut Fields, one: &str, all: &str) {
    let first = status
        .get(all)
        .and_then(|list| list.get(0)?.get("ip"))
        .cloned();
    match (status.get(one).cloned(), first) {
        (None, Some(first)) => {
            status.insert(one.to_owned(), first);
        }
        (Some(address), first) if first.as_ref() != Some(&address) => {
            status.insert(all.to_owned(), json!([{"ip": address}]));
        }
        _ => {}
    }
}

fn objects<'a>(
    fields: &'a mut Fields,
    list: &str,
) -> impl Iterator<Item = &'a mut Fields> + use<'a> {
    fields
        .get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from requests and limits.
fn quality_of_service(spec: &Fields) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_tag_are_the_latest() {
        for latest in ["a", "a:latest", "r:5000/a"] {
            assert!(is_latest(latest), "{latest}");
        }
        for fixed in ["a:1", "r:5000/a:1", "a@sha256:0"] {
            assert!(!is_latest(fixed), "{fixed}");
        }
    }
}
