//! The binding subresource: it assigns a pod to a node.

use serde_json::{Value, json};

use super::update::check_uid;
use super::{Model, WriteOptions};
use crate::body::Body;
use crate::object::section;
use crate::status::{FieldError, Result, Status};
use crate::target::Target;
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
        if text("/metadata/name") != target.name {
            return Err(Status::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let node = text("/target/name");
        check_target(text("/target/kind"), node)?;
        let target = Target::new(&target.resource, &target.namespace, &target.name);
        let stored = self.stored(&target)?.clone();
        let mut pod = stored.object()?;
        check_uid(&target, text("/metadata/uid"), &pod.metadata.uid)?;
        let name = &target.name;
        let gated = pod
            .at(&["spec", "schedulingGates"])
            .and_then(Value::as_array)
            .is_some_and(|gates| !gates.is_empty());
        let bound = pod.text(&["spec", "nodeName"]);
        let problem = if pod.metadata.deletion_timestamp.is_some() {
            Some(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ))
        } else if !bound.is_empty() {
            Some(format!("pod {name} is already assigned to node {bound:?}"))
        } else if gated {
            Some(format!("pod {name} has non-empty .spec.schedulingGates"))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Status::binding_conflict(name, &problem));
        }
        let annotations = binding.pointer("/metadata/annotations");
        let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
        for (key, value) in annotations {
            let value = value.as_str().unwrap_or_default().to_owned();
            pod.metadata.annotations.insert(key.clone(), value);
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

/// An invalid target of a binding: the error has no reason.
fn check_target(kind: &str, node: &str) -> Result<()> {
    let mut errors = Vec::new();
    if !["", "Node"].contains(&kind) {
        let known = ["Node", "<empty>"];
        errors.push(FieldError::not_supported(
            "target.kind",
            &json!(kind),
            &known,
        ));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::unclassified(one.to_string())),
        many => {
            let many: Vec<String> = many.iter().map(ToString::to_string).collect();
            Err(Status::unclassified(format!("[{}]", many.join(", "))))
        }
    }
}
