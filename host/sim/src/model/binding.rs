//! The binding subresource: how a scheduler gives a pod its node.

use serde_json::{Value, json};

use super::{Body, Model, Target, WriteOptions};
use crate::object::section;
use crate::status::{FieldError, Result, Status};
use crate::time::Time;

impl Model {
    /// Binds a pod to the node that `body`, a `Binding`, names.
    pub fn bind(
        &mut self,
        now: Time,
        target: &Target,
        body: Body,
        options: &WriteOptions,
    ) -> Result<()> {
        let binding = body.parse("Binding")?;
        let text = |path: &str| {
            binding
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let node = text("/target/name");
        if node.is_empty() {
            let error = FieldError::required("target.name", "");
            return Err(Status::invalid("Binding", "", &target.name, &[error]));
        }
        let target = Target::new(&target.resource, &target.namespace, &target.name);
        let stored = self.stored(&target)?.clone();
        let mut pod = stored.object()?;
        let conflict = |why: String| Err(Status::conflict(&target.resource, &target.name, why));
        let uid = text("/metadata/uid");
        if !uid.is_empty() && uid != pod.metadata.uid {
            return conflict(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                pod.metadata.uid
            ));
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return conflict(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                target.name
            ));
        }
        let bound = pod.text(&["spec", "nodeName"]);
        if !bound.is_empty() {
            return conflict(format!(
                "pod {} is already assigned to node {bound:?}",
                target.name
            ));
        }
        pod.section("spec")
            .insert("nodeName".to_owned(), node.into());
        pod.metadata.generation += i64::from(pod.metadata.generation > 0);
        let status = section(&mut pod.body, "status");
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Value::Array(list) = conditions {
            list.retain(|old| old.get("type").is_none_or(|kind| kind != "PodScheduled"));
            list.push(json!({
                "type": "PodScheduled", "status": "True",
                "lastProbeTime": null, "lastTransitionTime": now,
            }));
        }
        self.commit(now, &target, pod, options.dry_run).map(drop)
    }
}
