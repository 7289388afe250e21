//! Evicting the pods of a node. The work items are nodes' names.

use std::time::Duration;

use davit_guest::pod::{PodCondition, status_patch};
use davit_guest::{
    Command, Context, Decision, DeleteOptions, Enqueue, Event, Level, Object, ObjectRef, Plan,
    Reason, Retry, Time, When, WorkItem,
};

use crate::daemon::DaemonSets;
use crate::health;
use crate::timer;
use crate::view::{BY_NODE, NODES, Node, PODS, Pod};
use crate::zone::{self, Zones};
use crate::{Config, EVICTED, pass};

/// The event source, as in kube-controller-manager.
const COMPONENT: &str = "node-controller";
/// The reason in the status of a pod whose node does not respond.
const NODE_LOST: &str = "NodeLost";

/// The reason of the plan for a node.
const DOWN: Reason = Reason::new("down");
/// The reason of the plan for a pod.
const LOST: Reason = Reason::new("node-lost");

/// How many pods one call reads live at most; the host allows 10,000. The next
/// reconcile of the node reads the rest.
const MAX_PODS: usize = 1_000;

/// A node whose turn in its zone has come.
pub(crate) fn queued(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
) -> Result<Decision, Retry> {
    let Some(node) = cx.watch(NODES).get(&item.key) else {
        return Ok(Decision::done());
    };
    if turn(config, cx, &node) != Turn::Now {
        return Ok(Decision::done());
    }
    if !to_evict(cx, &node).is_empty() && !health::is_current(cx, &node)? {
        return Ok(Decision::requeue_after(config.node_monitor_period));
    }
    let begin = Command::enqueue(EVICTED, &item.key, Duration::ZERO);
    Ok(Decision::done().commands([begin]))
}

/// A node that had its turn and is still down. It evicts the node's pods, and
/// later the pods that were bound to it since, without another turn in the
/// zone.
///
/// The item stays as long as its plans are executed. A dry run evicts no pod:
/// then only the item remains that was enqueued with the plans, and the node
/// waits for another turn.
pub(crate) fn evicted(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
) -> Result<Decision, Retry> {
    let Some(node) = cx.watch(NODES).get(&item.key) else {
        return Ok(Decision::done());
    };
    let again = Decision::requeue_after(config.node_monitor_period);
    match turn(config, cx, &node) {
        Turn::Now => {}
        Turn::NotNow => return Ok(again),
        Turn::Never => return Ok(Decision::done()),
    }
    let pods = to_evict(cx, &node);
    if pods.is_empty() {
        return Ok(again);
    }
    if is_unproven(item) {
        let zone = zone::name(&node.view.labels);
        return Ok(Decision::done().commands([pass::queue(&item.key, &zone)]));
    }
    if !health::is_current(cx, &node)? {
        return Ok(again);
    }
    let announcement = is_first(cx, &node, item).then(|| announce(cx, &node, pods.len()));
    let (plans, unknown) = evict_all(config, cx, &node, pods);
    let decision = match unknown {
        Some(why) => why.into(),
        // The cache does not show yet that they are gone.
        None if plans.is_empty() => return Ok(again),
        None => Decision::requeue_when_observed(),
    };
    let unproven = unproven(config, cx, &item.key);
    Ok(decision
        .plans(announcement)
        .plans(plans)
        .commands([unproven]))
}

/// Whether the node has just had its turn: the item was not requeued since, not
/// even within the same instant, in which case pods would have been evicted.
fn is_first(cx: &Context<'_>, node: &Object<Node>, item: &WorkItem) -> bool {
    let mut pods = cx.watch(PODS).by_index(BY_NODE, &node.reference.name);
    let begun = Time::from(item.created_at);
    let is_evicted = |pod: Object<Pod>| {
        let going = pod.view.metadata.deletion_timestamp;
        going >= Some(begun) && pod.view.status.reason == NODE_LOST
    };
    item.attempt == 0 && item.due_at == item.created_at && !pods.any(is_evicted)
}

/// An item that is pending while the plans of another item with its key are
/// executed. If they are executed, the other item stays, with its creation
/// time.
fn unproven(config: &Config, cx: &Context<'_>, node: &str) -> Command {
    Enqueue::new(EVICTED, node)
        .after(config.node_monitor_period)
        .created_at(cx.now() + timer::FAR_FUTURE)
        .into()
}

/// Whether an item proves no execution: its creation time is after its due
/// time.
fn is_unproven(item: &WorkItem) -> bool {
    item.created_at > item.due_at
}

/// Whether a node's pods may be evicted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    /// The node is down, but not for long enough, or taint-based eviction
    /// handles it, or all zones are down.
    NotNow,
    /// The node is ready.
    Never,
}

/// Decides by the present state: a node may have waited for long.
fn turn(config: &Config, cx: &Context<'_>, node: &Object<Node>) -> Turn {
    let record = health::recall(cx, &node.reference.name);
    let health = health::judge(
        config,
        cx,
        node,
        record.as_ref(),
        health::renewed_at(cx, node),
    );
    if health.is_ready {
        return Turn::Never;
    }
    let is_stopped = cx
        .note::<Zones>(zone::NOTE)
        .is_none_or(|zones| zones.is_stopped);
    let timeout = config.pod_eviction_timeout;
    if is_stopped
        || crate::is_left_to_taints(config, node)
        || !health.exceeds(timeout, zone::resumed_at(cx), cx)
    {
        return Turn::NotNow;
    }
    Turn::Now
}

/// The pods to evict from a node that is down.
fn to_evict(cx: &Context<'_>, node: &Object<Node>) -> Vec<Object<Pod>> {
    let mut daemon_sets = DaemonSets::new(*cx);
    let pods = cx.watch(PODS).by_index(BY_NODE, &node.reference.name);
    pods.filter(|pod| {
        let metadata = &pod.view.metadata;
        let is_going = metadata.deletion_timestamp.is_some();
        !is_going && metadata.mirror.is_none() && !daemon_sets.run(pod)
    })
    .collect()
}

/// The plans that evict pods, and why a pod could not be read, if any.
///
/// Each pod is read live: the reply to an earlier deletion may be lost, and the
/// cache may not show the deletion yet. At a zone's rate this costs little.
fn evict_all(
    config: &Config,
    cx: &Context<'_>,
    node: &Object<Node>,
    pods: Vec<Object<Pod>>,
) -> (Vec<Plan>, Option<Retry>) {
    let pods = pods.into_iter().map(|pod| pod.reference);
    let pods: Vec<ObjectRef> = pods.take(MAX_PODS).collect();
    let mut plans = Vec::new();
    let mut unread = None;
    for (pod, answer) in pods.iter().zip(cx.live_get::<Pod>(&pods)) {
        match answer {
            Ok(live) if live.view.metadata.deletion_timestamp.is_none() => {
                plans.push(evict(config, cx, &live, &node.reference.name));
            }
            Ok(_) => {}
            Err(failure) if failure.is_gone() => {}
            Err(failure) => unread = Some(failure.of_read(pod)),
        }
    }
    (plans, unread)
}

/// The event that a node's pods are evicted, and its metric.
fn announce(cx: &Context<'_>, node: &Object<Node>, pods: usize) -> Plan {
    let name = &node.reference.name;
    let count = pods.to_string();
    let fields = [("node", name.as_str()), ("pods", count.as_str())];
    cx.log(
        Level::Info,
        "evicting the pods of a node that is down",
        &fields,
    );
    let zone = zone::name(&node.view.labels);
    let message = format!("Node {name} event: Deleting all Pods from Node {name}.");
    Plan::new(node.reference.clone(), DOWN, "its pods are evicted")
        .event(Event::normal("DeletingAllPods", message, COMPONENT))
        .measure(When::Succeeded, zone::EVICTIONS.add([&zone], 1.0))
}

/// The plan that writes the reason into the pod's status, deletes the pod, and
/// adds an event. If the status cannot be written, the pod stays for now.
fn evict(config: &Config, cx: &Context<'_>, pod: &Object<Pod>, node: &str) -> Plan {
    let name = &pod.reference.name;
    let (metadata, status) = (&pod.view.metadata, &pod.view.status);
    let mut lost = status.clone();
    if lost.reason != NODE_LOST {
        NODE_LOST.clone_into(&mut lost.reason);
        lost.message = format!("Node {node} which was running pod {name} is unresponsive");
    }
    if config.disruption_target {
        let condition = disruption_target(metadata.generation);
        lost.update_condition(condition, Time::from(cx.now()));
    }
    let reason = format!("its node {node} is unresponsive or not ready");
    let plan = Plan::new(pod.reference.clone(), LOST, reason);
    match status_patch(&pod.reference.uid, status, &lost) {
        Some(patch) => plan.patch(patch),
        None => plan,
    }
    .delete(DeleteOptions::new())
    .event(Event::normal(
        "NodeControllerEviction",
        format!("Marking for deletion Pod {name} from Node {node}"),
        COMPONENT,
    ))
}

fn disruption_target(generation: i64) -> PodCondition {
    PodCondition::holds(
        PodCondition::DISRUPTION_TARGET,
        "DeletionByNodeEviction",
        "Node eviction: the node is unresponsive or not ready",
        generation,
    )
}
