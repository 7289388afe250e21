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
            ("v1", "Pod") => Self::of_pod(of("/status/phase")),
            ("batch/v1", "Job") => Some(Self::of_job(kept)),
            _ => None,
        }
    }

    fn of_pod(phase: &str) -> Option<Self> {
        matches!(phase, "Succeeded" | "Failed").then(|| Self {
            note: format!("runs again: the pod had ended ({phase}): its containers start anew"),
            had_ended: true,
        })
    }

    fn of_job(kept: &Value) -> Self {
        let conditions = part(kept, "/status/conditions").as_array();
        let mut ended = conditions.into_iter().flatten().filter(|one| {
            let is_end = matches!(text_at(one, "/type"), "Complete" | "Failed");
            is_end && text_at(one, "/status") == "True"
        });
        match ended.next() {
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
