//! What a kubelet does for its node and pods, as functions on the model. When
//! they are called is their caller's business.

use std::time::Duration;

use serde_json::{Value, json};

use crate::body::Body;
use crate::model::{DeleteOptions, Model, WriteOptions};
use crate::object::Object;
use crate::patch::PatchType;
use crate::status::{Result, Status};
use crate::target::Target;
use crate::time::Time;

/// `Unknown` is what others say of a node.
#[must_use]
pub fn says_how_it_is(node: &Object) -> bool {
    let conditions = node.at(&["status", "conditions"]).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let is = |field: &str, text: &str| condition.get(field).is_some_and(|value| value == text);
        is("type", "Ready") && !is("status", "Unknown")
    })
}

/// The time until a kubelet acts on a bound pod: the pod starts, or it ends.
/// None if there is nothing to do.
#[must_use]
pub fn pod_due(pod: &Object, now: Time, start: Duration) -> Option<Duration> {
    if pod.text(&["spec", "nodeName"]).is_empty() {
        return None;
    }
    if let Some(deadline) = pod.metadata.deletion_timestamp {
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            return None;
        }
        let left = deadline.unix().saturating_sub(now.unix());
        return Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
    (pod.text(&["status", "phase"]) == "Pending").then_some(start)
}

/// Acts on a pod that is due: reports that it runs, or removes it.
pub fn act_on_pod(model: &mut Model, now: Time, pod: &Object) -> Result<()> {
    if pod_due(pod, now, Duration::ZERO) != Some(Duration::ZERO) {
        return Ok(());
    }
    let mut target = target(model, "pods", &pod.metadata.namespace, &pod.metadata.name)?;
    if pod.metadata.deletion_timestamp.is_some() {
        let body = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}});
        let options = DeleteOptions::parse(&crate::request::Query::default(), Some(body))?;
        return model.delete(now, &target, &options).map(drop);
    }
    "status".clone_into(&mut target.subresource);
    let body =
        Body::Json(json!({"metadata": {"uid": pod.metadata.uid}, "status": running(pod, now)}));
    model
        .patch(
            now,
            &target,
            PatchType::Strategic,
            body,
            &WriteOptions::default(),
        )
        .map(drop)
}

fn running(pod: &Object, now: Time) -> Value {
    let containers = pod.at(&["spec", "containers"]).and_then(Value::as_array);
    let statuses: Vec<Value> = containers
        .into_iter()
        .flatten()
        .map(|container| {
            json!({
                "name": container.get("name"), "image": container.get("image"), "imageID": "",
                "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}))
        .collect();
    json!({
        "phase": "Running", "startTime": now, "containerStatuses": statuses,
        "conditions": conditions, "observedGeneration": pod.metadata.generation,
    })
}

/// Renews a node's lease, or creates it.
pub fn renew_lease(model: &mut Model, now: Time, node: &Object) -> Result<()> {
    let name = &node.metadata.name;
    let namespace = "kube-node-lease";
    let target = target(model, "leases", namespace, name)?;
    let renewed = now.to_string().replace('Z', ".000000Z");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "namespace": namespace,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid,
            }],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
    });
    match model.get(&target, "") {
        Err(status) if status.code == 404 => {
            let target = Target::new(&target.resource, namespace, "");
            model
                .create(now, &target, Body::Json(lease), &WriteOptions::default())
                .map(drop)
        }
        _ => {
            let body = Body::Json(json!({"spec": {"renewTime": renewed}}));
            model
                .patch(
                    now,
                    &target,
                    PatchType::Merge,
                    body,
                    &WriteOptions::default(),
                )
                .map(drop)
        }
    }
}

/// Reports that a node is ready.
pub fn report_ready(model: &mut Model, now: Time, node: &str) -> Result<()> {
    let mut target = target(model, "nodes", "", node)?;
    "status".clone_into(&mut target.subresource);
    let body = Body::Json(json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}}));
    model
        .patch(
            now,
            &target,
            PatchType::Strategic,
            body,
            &WriteOptions::default(),
        )
        .map(drop)
}

pub(super) fn target(model: &Model, plural: &str, namespace: &str, name: &str) -> Result<Target> {
    let group = if plural == "leases" {
        "coordination.k8s.io"
    } else {
        ""
    };
    let resource = model
        .resource(group, "v1", plural)
        .ok_or_else(|| Status::internal(format!("no resource {plural}")))?;
    Ok(Target::new(resource, namespace, name))
}
