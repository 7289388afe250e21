//! Restored work runs again: a new pod or Job knows nothing of what the deleted one has done.

use serde_json::Value;

use crate::commands::print::{part, text_at};

/// Work that a restored object does again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rerun {
    /// What runs again, for a person.
    pub(super) note: String,
    /// Whether the work had ended: nobody may expect that it starts.
    pub(super) had_ended: bool,
}

impl Rerun {
    /// What a kept object does again; none if it does nothing by itself.
    pub(super) fn of(kept: &Value) -> Option<Self> {
        let of = |pointer| text_at(kept, pointer);
        match (of("/apiVersion"), of("/kind")) {
            ("v1", "Pod") => Self::of_pod(kept),
            ("batch/v1", "Job") => Some(Self::of_job(kept)),
            _ => None,
        }
    }

    /// A disruption, such as that by pod garbage collection, sets the phase of a pod that had not
    /// ended by itself.
    fn of_pod(kept: &Value) -> Option<Self> {
        let phase = text_at(kept, "/status/phase");
        if !matches!(phase, "Succeeded" | "Failed") {
            return None;
        }
        let disruption = condition(kept, &["DisruptionTarget"]).filter(|_| phase == "Failed");
        Some(match disruption {
            Some(disruption) => Self {
                note: format!(
                    "runs again: the pod had failed in a disruption ({}): its containers start \
                     again",
                    text_at(disruption, "/reason")
                ),
                had_ended: false,
            },
            None => Self {
                note: format!(
                    "runs again: the pod had ended ({phase}): its containers start again"
                ),
                had_ended: true,
            },
        })
    }

    fn of_job(kept: &Value) -> Self {
        match condition(kept, &["Complete", "Failed"]) {
            Some(end) => Self {
                note: format!(
                    "runs again: the Job had ended ({}): its pods run from the start",
                    text_at(end, "/type")
                ),
                had_ended: true,
            },
            None => Self {
                note: "runs again: the Job had not ended: its pods run from the start, and those \
                       that had succeeded count for nothing"
                    .to_owned(),
                had_ended: false,
            },
        }
    }
}

/// The first condition of one of these types that is True.
fn condition<'v>(object: &'v Value, types: &[&str]) -> Option<&'v Value> {
    let conditions = part(object, "/status/conditions").as_array()?;
    conditions
        .iter()
        .find(|one| types.contains(&text_at(one, "/type")) && text_at(one, "/status") == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended(kept: &Value) -> Option<bool> {
        Rerun::of(kept).map(|rerun| rerun.had_ended)
    }

    #[test]
    fn pods_and_jobs_that_had_ended_are_named() {
        let pod =
            |phase: &str| json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase}});
        assert_eq!(ended(&pod("Succeeded")), Some(true));
        assert_eq!(ended(&pod("Failed")), Some(true));
        assert_eq!(ended(&pod("Running")), None);
        assert_eq!(ended(&pod("")), None);
        let disrupted = |phase: &str| {
            let reason = "DeletionByPodGC";
            let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": reason});
            let mut pod = pod(phase);
            pod["status"]["conditions"] = json!([condition]);
            pod
        };
        assert_eq!(ended(&disrupted("Failed")), Some(false), "not by itself");
        assert_eq!(ended(&disrupted("Succeeded")), Some(true));
        let job = |conditions: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"conditions": conditions}});
        let condition = |type_: &str, status: &str| json!([{"type": type_, "status": status}]);
        assert_eq!(ended(&job(condition("Complete", "True"))), Some(true));
        assert_eq!(ended(&job(condition("Failed", "True"))), Some(true));
        assert_eq!(ended(&job(condition("Failed", "False"))), Some(false));
        assert_eq!(ended(&job(condition("Suspended", "True"))), Some(false));
        assert_eq!(ended(&job(Value::Null)), Some(false));
        assert_eq!(ended(&json!({"apiVersion": "v1", "kind": "Secret"})), None);
    }
}
