//! Evicting the pods of a node. The work items are nodes' names.

use davit_guest::pod::{PodCondition, status_patch};
use davit_guest::{
    Command, Context, Decision, DeleteOptions, Failure, Level, Measure, Object, ObjectRef, Plan,
    Time, WorkItem,
};

use crate::daemon::DaemonSets;
use crate::health;
use crate::view::{BY_NODE, NODES, Node, PODS, Pod};
use crate::zone::{self, Zones};
use crate::{Config, EVICTED, pass};

/// The event source, as in kube-controller-manager.
const COMPONENT: &str = "node-controller";
/// The reason in the status of a pod whose node does not respond.
const NODE_LOST: &str = "NodeLost";

/// It is the node's turn: evicts its pods, and sees to those that come later.
pub(crate) fn queued(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let Some(node) = cx.watch(NODES).get(&item.key) else {
        return Decision::done();
    };
    if turn(config, cx, &node) != Turn::Now {
        return Decision::done();
    }
    let later = Command::enqueue(EVICTED, &item.key, config.node_monitor_period);
    let pods = Pods::on(cx, &node);
    if pods.to_evict.is_empty() {
        return Decision::done().commands([later]);
    }
    match health::is_current(cx, &node) {
        Ok(true) => {}
        Ok(false) => return Decision::again_after(config.node_monitor_period),
        Err(why) => return unread(&node.reference, &why),
    }
    let announcement = (item.attempt == 0).then(|| announce(cx, &node, pods.to_evict.len()));
    let (plans, unknown) = pods.evict(config, cx, &node);
    let decision = match unknown {
        Some((pod, why)) => unread(&pod, &why),
        None => Decision::done(),
    };
    decision.plans(announcement).plans(plans).commands([later])
}

/// The node's pods were evicted, and it is still down: evicts what was bound
/// to it since, without waiting for its turn again.
///
/// That it had its turn must be seen on a pod. After a dry run no pod was
/// really evicted: then it waits for its turn once more.
pub(crate) fn evicted(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let Some(node) = cx.watch(NODES).get(&item.key) else {
        return Decision::done();
    };
    let again = Decision::again_after(config.node_monitor_period);
    match turn(config, cx, &node) {
        Turn::Now => {}
        Turn::NotNow => return again,
        Turn::Never => return Decision::done(),
    }
    let pods = Pods::on(cx, &node);
    if pods.to_evict.is_empty() {
        return again;
    }
    if !pods.has_evicted {
        let zone = zone::name(&node.view.metadata.labels);
        return Decision::done().commands([pass::queue(&item.key, &zone)]);
    }
    match health::is_current(cx, &node) {
        // A pod that could not be read is still there the next time.
        Ok(true) => again.plans(pods.evict(config, cx, &node).0),
        Ok(false) => again,
        Err(why) => unread(&node.reference, &why),
    }
}

fn unread(object: &ObjectRef, why: &Failure) -> Decision {
    let (class, message) = (&why.class, &why.message);
    Decision::retry(format!("{object} could not be read: {class}: {message}"))
}

/// Whether a node's pods may be evicted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    /// The node is down, but not for long enough, or somebody else sees to it,
    /// or all zones are down.
    NotNow,
    /// The node is well.
    Never,
}

/// Judges by what is known now: a node may have waited for long.
fn turn(config: &Config, cx: &Context<'_>, node: &Object<Node>) -> Turn {
    let record = health::recall(cx, &node.reference.name);
    let health = health::judge(config, cx, node, record.as_ref());
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

/// The pods of a node that is down.
struct Pods {
    to_evict: Vec<Object<Pod>>,
    /// Whether there is one that was evicted because its node is down.
    has_evicted: bool,
}

impl Pods {
    fn on(cx: &Context<'_>, node: &Object<Node>) -> Self {
        let mut daemon_sets = DaemonSets::new(*cx);
        let mut pods = Self {
            to_evict: Vec::new(),
            has_evicted: false,
        };
        for pod in cx.watch(PODS).by_index(BY_NODE, &node.reference.name) {
            let metadata = &pod.view.metadata;
            if metadata.deletion_timestamp.is_some() {
                pods.has_evicted |= pod.view.status.reason == NODE_LOST;
            } else if metadata.annotations.mirror.is_none() && !daemon_sets.run(&pod) {
                pods.to_evict.push(pod);
            }
        }
        pods
    }

    /// The plans that evict them, and one that could not be read, if any.
    ///
    /// Each is read live: the answer to an earlier deletion may have been lost,
    /// and the cache may not show it yet. At a zone's rate that is no burden.
    fn evict(
        self,
        config: &Config,
        cx: &Context<'_>,
        node: &Object<Node>,
    ) -> (Vec<Plan>, Option<(ObjectRef, Failure)>) {
        let pods = self.to_evict.into_iter().map(|pod| pod.reference);
        let pods: Vec<ObjectRef> = pods.collect();
        let mut plans = Vec::new();
        let mut unread = None;
        for (pod, answer) in pods.iter().zip(cx.live_get::<Pod>(&pods)) {
            match answer {
                Ok(live) if live.view.metadata.deletion_timestamp.is_none() => {
                    plans.push(evict(config, cx, &live, &node.reference.name));
                }
                Ok(_) => {}
                Err(why) if matches!(&*why.class, "not-found" | "uid-mismatch") => {}
                Err(why) => unread = Some((pod.clone(), why)),
            }
        }
        (plans, unread)
    }
}

/// Tells that a node's pods are evicted, and counts it.
fn announce(cx: &Context<'_>, node: &Object<Node>, pods: usize) -> Plan {
    let name = &node.reference.name;
    let count = pods.to_string();
    let fields = [("node", name.as_str()), ("pods", count.as_str())];
    cx.log(
        Level::Info,
        "evicting the pods of a node that is down",
        &fields,
    );
    let zone = zone::name(&node.view.metadata.labels);
    let message = format!("Node {name} event: Deleting all Pods from Node {name}.");
    Plan::new(node.reference.clone(), "down", "its pods are evicted")
        .event("Normal", "DeletingAllPods", &message, COMPONENT)
        .measure("succeeded", Measure::add(zone::EVICTIONS, &[&zone], 1.0))
}

/// The plan that says why a pod ends, deletes it, and tells of it. If it
/// cannot be said, the pod stays for now.
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
        lost.update_condition(condition, Time::from_instant(cx.now()));
    }
    let reason = format!("its node {node} is unresponsive or not ready");
    let plan = Plan::new(pod.reference.clone(), "node-lost", reason);
    match status_patch(&pod.reference.uid, status, &lost) {
        Some(patch) => plan.patch(patch),
        None => plan,
    }
    .delete(DeleteOptions::new())
    .event(
        "Normal",
        "NodeControllerEviction",
        &format!("Marking for deletion Pod {name} from Node {node}"),
        COMPONENT,
    )
}

fn disruption_target(generation: i64) -> PodCondition {
    PodCondition::holds(
        PodCondition::DISRUPTION_TARGET,
        "DeletionByNodeEviction",
        "Node eviction: the node is unresponsive or not ready",
        generation,
    )
}
