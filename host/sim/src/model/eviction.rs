//! The eviction subresource of pods, and the budgets that may refuse it.

use serde_json::{Value, json};

use super::delete::check_preconditions;
use super::{DeleteOptions, Model, WriteOptions};
use crate::body::Body;
use crate::object::Object;
use crate::selector::LabelSelector;
use crate::status::{Cause, Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

impl Model {
    /// Evicts a pod: deletes it unless a disruption budget refuses. With several
    /// budgets for a pod, the server returns an error in the body of a successful
    /// answer.
    pub fn evict(
        &mut self,
        now: Time,
        target: &Target,
        body: Body,
        write: &WriteOptions,
    ) -> Result<Option<Box<Status>>> {
        let eviction = body.parse("Eviction")?;
        check_body(target, &eviction)?;
        let name = eviction
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if name != target.name {
            return Err(Status::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let options = eviction
            .get("deleteOptions")
            .filter(|options| !options.is_null());
        let mut options = DeleteOptions::parse(
            &crate::request::Query::default(),
            Some(options.cloned().unwrap_or_else(|| json!({}))),
        )?;
        if write.dry_run {
            options.dry_run = Some(vec!["All".to_owned()]);
        }
        let pod_target = Target::new(&target.resource, &target.namespace, &target.name);
        let pod = self.stored(&pod_target)?.object()?;
        if disrupts(&pod) {
            let budgets = self.budgets_of(&pod)?;
            if budgets.len() > 1 {
                return Ok(Some(Status::unclassified(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                )));
            }
            if let Some((target, budget)) = budgets.first() {
                self.take_from_budget(now, &pod, target, budget, options.is_dry_run())?;
            }
            if !options.is_dry_run() {
                check_preconditions(&pod_target.resource, &pod.metadata, &options)?;
                self.add_disruption_target(now, &pod_target)?;
            }
        }
        let options = self.follow_version(&pod_target, options, &pod)?;
        self.delete(now, &pod_target, &options).map(|_| None)
    }

    /// The condition written a moment ago is no reason for the caller's
    /// version precondition to fail.
    fn follow_version(
        &self,
        target: &Target,
        mut options: DeleteOptions,
        seen: &Object,
    ) -> Result<DeleteOptions> {
        let latest = self.stored(target)?.version().to_string();
        if let Some(preconditions) = &mut options.preconditions
            && preconditions.resource_version.as_ref() == Some(&seen.metadata.resource_version)
        {
            preconditions.resource_version = Some(latest);
        }
        Ok(options)
    }

    fn take_from_budget(
        &mut self,
        now: Time,
        pod: &Object,
        target: &Target,
        stored: &StoredObject,
        dry_run: bool,
    ) -> Result<()> {
        let mut budget = stored.object()?;
        if !is_ready(pod) && spares_unready(&budget) {
            return Ok(());
        }
        check_budget(&budget)?;
        let allowed = number(&budget, "disruptionsAllowed");
        let status = budget.section("status");
        status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
        crate::object::section(status, "disruptedPods")
            .insert(pod.metadata.name.clone(), json!(now));
        let mut target = target.clone();
        "status".clone_into(&mut target.subresource);
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        self.write(now, &target, stored, budget, &options).map(drop)
    }

    fn budgets_of(&self, pod: &Object) -> Result<Vec<(Target, StoredObject)>> {
        let Some(resource) = self.resource("policy", "v1", "poddisruptionbudgets") else {
            return Ok(Vec::new());
        };
        let namespace = &pod.metadata.namespace;
        let mut budgets = Vec::new();
        for (key, stored) in self.collection(resource)?.scan(&format!("{namespace}/")) {
            let budget = stored.object()?;
            let selector = LabelSelector::from_json(budget.at(&["spec", "selector"]));
            if selector.matches(&pod.metadata.labels) {
                let name = key.rsplit('/').next().unwrap_or_default();
                budgets.push((Target::new(resource, namespace, name), stored.clone()));
            }
        }
        Ok(budgets)
    }

    fn add_disruption_target(&mut self, now: Time, target: &Target) -> Result<()> {
        let stored = self.stored(target)?.clone();
        let mut pod = stored.object()?;
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": now, "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        let status = pod.section("status");
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Value::Array(list) = conditions {
            list.retain(|old| old.get("type") != condition.get("type"));
            list.push(condition);
        }
        let mut target = target.clone();
        "status".clone_into(&mut target.subresource);
        self.write(now, &target, &stored, pod, &WriteOptions::default())
            .map(drop)
    }
}

fn check_body(target: &Target, eviction: &Value) -> Result<()> {
    let text = |path: &str| {
        eviction
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if !["", "Eviction"].contains(&kind) {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a Eviction: converting ({version}.{kind}) to (policy.Eviction): unknown conversion"
        )));
    }
    let namespace = text("/metadata/namespace");
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Whether evicting the pod disrupts anything that a budget counts.
fn disrupts(pod: &Object) -> bool {
    let phase = pod.text(&["status", "phase"]);
    !["Succeeded", "Failed", "Pending"].contains(&phase)
        && pod.metadata.deletion_timestamp.is_none()
}

fn is_ready(pod: &Object) -> bool {
    pod.at(&["status", "conditions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|condition| {
            condition.get("type").is_some_and(|kind| kind == "Ready")
                && condition
                    .get("status")
                    .is_some_and(|status| status == "True")
        })
}

/// Whether the budget lets pods go that are not ready anyway.
fn spares_unready(budget: &Object) -> bool {
    let desired = number(budget, "desiredHealthy");
    budget.text(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || (desired > 0 && number(budget, "currentHealthy") >= desired)
}

fn number(budget: &Object, field: &str) -> i64 {
    budget
        .at(&["status", field])
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

fn check_budget(budget: &Object) -> Result<()> {
    const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
    let name = &budget.metadata.name;
    let refuse = |retry_after, why: String| {
        let mut status = Status::too_many_requests(REFUSED, retry_after);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: "DisruptionBudget",
                message: why,
                field: String::new(),
            });
        }
        Err(status)
    };
    if number(budget, "observedGeneration") < budget.metadata.generation {
        return refuse(
            10,
            format!("The disruption budget {name} is still being processed by the server."),
        );
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        return Err(Status::negative_budget(name));
    }
    if allowed == 0 {
        return refuse(
            0,
            format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number(budget, "desiredHealthy"),
                number(budget, "currentHealthy")
            ),
        );
    }
    Ok(())
}
