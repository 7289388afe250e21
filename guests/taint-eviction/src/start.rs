//! The start of a taint's time for a pod.

use std::time::Duration;

use davit_guest::toleration::Taint;
use davit_guest::{Context, Instant, Time};

use crate::config::{Config, CountFrom};
use crate::node::NodeTaints;
use crate::view::{PODS_WITH_STATUS, PodWithStatus};

/// Objects have times without a fraction of a second: the real time may be up
/// to a second later.
const ROUNDING: Duration = Duration::from_secs(1);

/// The start of a taint's time for a pod that was `seen` under it at that time.
/// If the operator configures it: when the taint was added or the pod was
/// bound, whichever was later.
pub(crate) fn start(
    config: &Config,
    cx: &Context<'_>,
    node: &NodeTaints,
    taint: &Taint,
    pod: &str,
    seen: Instant,
) -> Instant {
    match config.count_from {
        CountFrom::Observed => seen,
        CountFrom::TimeAdded => added_at(cx, node, taint, pod).unwrap_or(seen),
    }
}

/// None if the API server gives no time, or an impossible one: in the future,
/// or before the node's creation.
fn added_at(cx: &Context<'_>, node: &NodeTaints, taint: &Taint, pod: &str) -> Option<Instant> {
    let added = taint.time_added?;
    let pod = cx.watch(PODS_WITH_STATUS).get_by_uid(pod)?;
    let start = Instant::from(added.max(came_at(&pod.view)?));
    let is_possible = node.created.is_none_or(|created| created <= added);
    if !is_possible || start > cx.now() {
        return None;
    }
    Some(start + ROUNDING)
}

/// When the pod was bound to its node, according to the API server, or created
/// there.
fn came_at(pod: &PodWithStatus) -> Option<Time> {
    let mut conditions = pod.conditions.iter();
    let bound = conditions.find(|it| it.r#type == "PodScheduled" && it.status == "True");
    let bound = bound.and_then(|it| it.last_transition_time);
    bound.max(pod.metadata.creation_timestamp)
}
