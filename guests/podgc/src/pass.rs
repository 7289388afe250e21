//! The periodic pass over the cluster. Every stage starts at an index, so that
//! a pass over a healthy cluster costs as much as it has nodes, however many
//! pods there are.

use std::collections::BTreeSet;

use davit_guest::node::{OUT_OF_SERVICE, is_node_ready};
use davit_guest::{Command, Context, Decision, Level, Object, Plan, Verdict, WorkItem};

use crate::deletion::{self, Reason};
use crate::terminated::{self, turn};
use crate::view::{BY_NODE, BY_TAINT, NODE_NAMES, NODES, PODS, Pod, TERMINATING};
use crate::{Config, ORPHANED};

/// How much a pass decides at most: the host takes 10,000 plans and as many
/// commands, and no answer that has more. The next pass has the rest.
const MOST_PLANS: usize = 9_000;
const MOST_COMMANDS: usize = 9_000;

/// Decides what to delete now, and which nodes to look for.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let mut plans = Plans::default();
    let next = config
        .threshold()
        .and_then(|threshold| terminated::decide(cx, threshold, &item.cursor, &mut plans));
    out_of_service(cx, &mut plans);
    unscheduled(cx, &mut plans);
    let missing = missing_nodes(cx).take(MOST_COMMANDS);
    if !plans.all.is_empty() {
        let count = plans.all.len().to_string();
        cx.log(Level::Info, "garbage collecting pods", &[("pods", &count)]);
    }
    Decision {
        verdict: next.map_or(Verdict::Done, Verdict::More),
        ..Decision::done()
    }
    .plans(plans.all)
    .commands(missing.map(|node| Command::enqueue(ORPHANED, &node, config.quarantine)))
    .parallel(config.max_parallel_deletes)
}

/// The pass's plans, one for each pod.
#[derive(Default)]
pub(crate) struct Plans {
    all: Vec<Plan>,
    uids: BTreeSet<String>,
}

impl Plans {
    pub(crate) fn add(
        &mut self,
        cx: &Context<'_>,
        pod: Object<Pod>,
        reason: Reason,
        message: String,
    ) {
        if self.all.len() < MOST_PLANS && self.uids.insert(pod.reference.uid.clone()) {
            self.all.push(deletion::plan(cx, pod, reason, message));
        }
    }
}

/// Terminating pods on nodes that are not ready and that an operator has put
/// out of service: no kubelet will confirm that they ended.
fn out_of_service(cx: &Context<'_>, plans: &mut Plans) {
    let pods = cx.watch(PODS);
    let mut candidates = Vec::new();
    for node in cx.watch(NODES).by_index(BY_TAINT, OUT_OF_SERVICE) {
        if !is_node_ready(&node.view.status.conditions) {
            let on_node = pods.by_index(BY_NODE, &node.reference.name);
            candidates.extend(on_node.filter(is_terminating));
        }
    }
    candidates.sort_by(|one, other| turn(one).cmp(&turn(other)));
    for pod in candidates {
        let node = &pod.view.spec.node_name;
        let message = format!("its node {node} is out of service and not ready");
        plans.add(cx, pod, Reason::OutOfService, message);
    }
}

/// Terminating pods that were never bound to a node: no kubelet knows them.
fn unscheduled(cx: &Context<'_>, plans: &mut Plans) {
    let pods = cx.watch(PODS);
    // They are in both of two indexes: go through the smaller one.
    let terminating = pods.index_count(TERMINATING, "true");
    let (index, value) = if terminating <= pods.index_count(BY_NODE, "") {
        (TERMINATING, "true")
    } else {
        (BY_NODE, "")
    };
    for pod in pods.by_index(index, value) {
        if is_terminating(&pod) && pod.view.spec.node_name.is_empty() {
            let message = "it is terminating and was never scheduled".to_owned();
            plans.add(cx, pod, Reason::Unscheduled, message);
        }
    }
}

/// The names of nodes that pods are bound to and the cache does not have.
fn missing_nodes(cx: &Context<'_>) -> impl Iterator<Item = String> {
    let nodes: BTreeSet<String> = cx.watch(NODE_NAMES).keys().collect();
    cx.watch(PODS)
        .index_keys(BY_NODE)
        .map(|node| node.value)
        .filter(move |node| !node.is_empty() && !nodes.contains(node))
}

pub(crate) fn is_terminating(pod: &Object<Pod>) -> bool {
    pod.view.metadata.deletion_timestamp.is_some()
}
