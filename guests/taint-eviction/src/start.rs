//! Since when a taint counts for a pod.

use davit_guest::toleration::Taint;
use davit_guest::{Context, Instant, Time};

use crate::config::{Config, CountFrom};
use crate::taints::NodeTaints;
use crate::view::{PODS_WITH_STATUS, PodWithStatus};

/// Objects have times without the fraction of their second: what they say
/// happened up to a second later. In milliseconds.
const ROUNDING: Instant = 1_000;

/// Since when a taint counts for a pod that was `seen` under it at that time: by
/// choice, since the taint was added or the pod came, whichever was later.
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

/// None if the API server does not say, or says what cannot be: a time that is
/// still to come, or one before there was a node.
fn added_at(cx: &Context<'_>, node: &NodeTaints, taint: &Taint, pod: &str) -> Option<Instant> {
    let added = taint.time_added?;
    let pod = cx.watch(PODS_WITH_STATUS).get_by_uid(pod)?;
    let start = added.max(came_at(&pod.view)?);
    let is_possible = node.created.is_none_or(|created| created <= added);
    if !is_possible || start.to_instant() > cx.now() {
        return None;
    }
    Some(start.to_instant() + ROUNDING)
}

/// When the pod came to its node: it was bound then, which the API server writes
/// down, or created there.
fn came_at(pod: &PodWithStatus) -> Option<Time> {
    let mut conditions = pod.status.conditions.iter();
    let bound = conditions.find(|it| it.r#type == "PodScheduled" && it.status == "True");
    let bound = bound.and_then(|it| it.last_transition_time);
    bound.max(pod.metadata.creation_timestamp)
}
