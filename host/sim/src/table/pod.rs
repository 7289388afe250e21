//! The columns of pods.

use serde_json::Value;

use crate::object::Object;
use crate::time::Time;

/// How many containers are ready, of how many.
pub(super) fn ready(pod: &Object, _: Time) -> Value {
    let all = list(pod, "spec", "containers").count();
    let ready = list(pod, "status", "containerStatuses")
        .filter(|status| status.get("ready") == Some(&Value::Bool(true)))
        .count();
    format!("{ready}/{all}").into()
}

/// How often containers were restarted.
pub(super) fn restarts(pod: &Object, _: Time) -> Value {
    list(pod, "status", "containerStatuses")
        .filter_map(|status| status.get("restartCount")?.as_i64())
        .sum::<i64>()
        .into()
}

/// The phase, or a more specific reason: why a container waits or terminated, or that the
/// pod terminates.
pub(super) fn status(pod: &Object, _: Time) -> Value {
    let phase = pod.text(&["status", "phase"]);
    let reason = pod.text(&["status", "reason"]);
    let mut shown = if reason.is_empty() { phase } else { reason };
    let container = list(pod, "status", "containerStatuses")
        .rev()
        .find_map(container_reason);
    if let Some(container) = container
        && reason.is_empty()
    {
        shown = container;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        if reason == "NodeLost" {
            shown = "Unknown";
        } else if !["Failed", "Succeeded"].contains(&phase) {
            shown = "Terminating";
        }
    }
    shown.into()
}

fn container_reason(status: &Value) -> Option<&str> {
    ["waiting", "terminated"].into_iter().find_map(|state| {
        let reason = status.get("state")?.get(state)?.get("reason")?.as_str()?;
        (!reason.is_empty()).then_some(reason)
    })
}

fn list<'a>(
    pod: &'a Object,
    section: &str,
    name: &str,
) -> impl DoubleEndedIterator<Item = &'a Value> + use<'a> {
    pod.at(&[section, name])
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice)
        .iter()
}
