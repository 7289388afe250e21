//! Pods whose node is missing. The work items are nodes' names.

use davit_guest::{Context, Decision, Identity, Level, ObjectRef, Verdict, WorkItem};

use crate::Config;
use crate::deletion::{self, Reason};
use crate::view::{BY_NODE, NODE_NAMES, PODS};

/// How many pods one call decides about at most, so that its memory is bounded.
const PAGE: u32 = 1_000;

/// Deletes the pods of a node that has been missing for the whole quarantine
/// and that the API server does not have either.
///
/// The item's creation time is when the node was first found missing. The item
/// is done as soon as the node is back, so that the next quarantine starts from
/// zero. It is requeued as long as the node is missing and has pods, so that a
/// pod that appears late does not wait again.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let node = &item.key;
    let exists = cx.watch(NODE_NAMES).get(node).is_some();
    if exists || cx.watch(PODS).index_count(BY_NODE, node) == 0 {
        return Decision::done();
    }
    let rest = config.quarantine.saturating_sub(cx.since(item.created_at));
    if !rest.is_zero() {
        return Decision::requeue_after(rest);
    }
    match is_gone(cx, node) {
        Ok(true) => delete_pods(config, cx, item),
        // The cache lags. If the node is deleted after all, a pass finds it
        // missing.
        Ok(false) => Decision::done(),
        Err(why) => Decision::retry(format!("the node {node} could not be read: {why}")),
    }
}

/// Deletes the page of pods that the item's cursor names. A pod that gets an
/// earlier place meanwhile is deleted in the next period.
fn delete_pods(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let node = &item.key;
    let cursor = item.cursor.parse().unwrap_or_default();
    let (pods, next) = cx.watch(PODS).index_page(BY_NODE, node, cursor, PAGE);
    let plans: Vec<_> = pods
        .into_iter()
        .map(|pod| {
            let message = format!("its node {node} no longer exists");
            deletion::plan(cx, pod, Reason::Orphaned, message)
        })
        .collect();
    let count = plans.len().to_string();
    cx.log(
        Level::Info,
        "deleting the pods of a node that no longer exists",
        &[("node", node), ("pods", &count)],
    );
    let mut decision = Decision::requeue_after(config.period);
    if let Some(next) = next {
        decision.verdict = Verdict::ContinueFrom(next.to_string());
    }
    decision.plans(plans).parallel(config.max_parallel_deletes)
}

/// Whether the API server does not have the node.
fn is_gone(cx: &Context<'_>, node: &str) -> Result<bool, String> {
    let target = ObjectRef::named("v1", "Node", "", node);
    match cx.live_get::<Identity>(&[target]).pop() {
        Some(Ok(_)) => Ok(false),
        Some(Err(failure)) if failure.class == "not-found" => Ok(true),
        Some(Err(failure)) => Err(format!("{}: {}", failure.class, failure.message)),
        None => Err("the host gave no answer".to_owned()),
    }
}
