//! Pods whose node is missing. The work items are nodes' names.

use davit_guest::{Context, Decision, Identity, Level, ObjectRef, Retry, WorkItem};

use crate::Config;
use crate::deletion;
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
pub(crate) fn reconcile(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
) -> Result<Decision, Retry> {
    let node = &item.key;
    let exists = cx.watch(NODE_NAMES).get(node).is_some();
    if exists || cx.watch(PODS).index_count(BY_NODE, node) == 0 {
        return Ok(Decision::done());
    }
    let rest = config.quarantine.saturating_sub(cx.since(item.created_at));
    if !rest.is_zero() {
        return Ok(Decision::requeue_after(rest));
    }
    let live = cx.live::<Identity>(&ObjectRef::named("v1", "Node", "", node))?;
    Ok(match live {
        None => delete_pods(config, cx, item),
        // The cache lags. If the node is deleted after all, a pass finds it
        // missing.
        Some(_) => Decision::done(),
    })
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
            deletion::plan(cx, pod, deletion::ORPHANED, message)
        })
        .collect();
    let count = plans.len().to_string();
    cx.log(
        Level::Info,
        "deleting the pods of a node that no longer exists",
        &[("node", node), ("pods", &count)],
    );
    let decision = match next {
        Some(next) => Decision::continue_from(next.to_string()),
        None => Decision::requeue_after(config.period),
    };
    decision.plans(plans).parallel(config.max_parallel_deletes)
}
