//! Terminating pods that no kubelet will end: pods on nodes that are not ready
//! and that an operator has taken out of service, and pods that were never
//! bound to a node.
//!
//! A pass walks both in the order of the nodes' names and skips the nodes that
//! do not matter. Each call of a pass decides about one page.

use std::collections::BTreeSet;
use std::ops::Bound;

use davit_guest::node::OUT_OF_SERVICE;
use davit_guest::views::is_true;
use davit_guest::{Context, Level, Object, ObjectRef, Place};

use crate::deletion;
use crate::plans::Plans;
use crate::terminated::turn;
use crate::view::{BY_NODE, BY_TAINT, LiveNode, NODES, PODS, Pod, TERMINATING};

/// How many pods one call decides about at most.
const PAGE: usize = 1_000;
/// How many pods one call reads at most, by an estimate.
const MAX_READ: usize = 10_000;
/// The cost of a skip to another node: the page of pods that is read there.
const SKIP: usize = 500;

/// Plans for the page of the pass that a cursor names, or for the first page.
/// Returns the cursor of the next page, if there is one.
pub(crate) fn decide(cx: &Context<'_>, cursor: &str, plans: &mut Plans) -> Option<String> {
    let pods = cx.watch(PODS);
    let nodes = nodes(cx);
    let start = |node: &String| Place {
        order: node.clone(),
        key: String::new(),
    };
    let mut place = match parse(cursor) {
        Some(place) => place,
        None => start(nodes.first()?),
    };
    let mut walk = pods.in_order(TERMINATING, "true", Some(place.clone()));
    let mut read = 0;
    let mut taken = Vec::new();
    let mut next = None;
    while let Some(pod) = walk.next() {
        if taken.len() == PAGE || read >= MAX_READ {
            next = Some(format!("{}/{}", place.order, place.key));
            break;
        }
        read += 1;
        let node = &pod.view.node_name;
        if nodes.contains(node) {
            place = Place {
                order: node.clone(),
                key: pod.reference.key(),
            };
            taken.push(pod);
            continue;
        }
        let after = (Bound::Excluded(node.as_str()), Bound::Unbounded);
        let Some(another) = nodes.range::<str, _>(after).next() else {
            break;
        };
        read += SKIP;
        place = start(another);
        walk = pods.in_order(TERMINATING, "true", Some(place.clone()));
    }
    taken.sort_by(|one, other| turn(one).cmp(&turn(other)));
    let dead = proven(cx, &taken);
    for pod in taken {
        let node = &pod.view.node_name;
        let (reason, message) = if node.is_empty() {
            let message = "it is terminating and was never scheduled".to_owned();
            (deletion::UNSCHEDULED, message)
        } else if dead.contains(node) {
            let message = format!("its node {node} is out of service and not ready");
            (deletion::OUT_OF_SERVICE, message)
        } else {
            continue;
        };
        plans.add(cx, pod, reason, message);
    }
    next
}

/// The names of the nodes whose terminating pods no kubelet ends. The empty
/// name stands for pods without a node.
fn nodes(cx: &Context<'_>) -> BTreeSet<String> {
    let tainted = cx.watch(NODES).by_index(BY_TAINT, OUT_OF_SERVICE);
    let dead = tainted.filter(|node| !is_true(&node.view.conditions, "Ready"));
    let mut nodes: BTreeSet<String> = dead.map(|node| node.reference.name).collect();
    if cx.watch(PODS).index_count(BY_NODE, "") > 0 {
        nodes.insert(String::new());
    }
    nodes
}

/// The nodes of these pods that the API server, too, has out of service and not ready. The cache is
/// no proof: if its watch is interrupted, the node may be back, and the containers of a pod that is
/// deleted by force still run.
fn proven(cx: &Context<'_>, pods: &[Object<Pod>]) -> BTreeSet<String> {
    let names = pods.iter().map(|pod| pod.view.node_name.as_str());
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    let target = |name: &&str| ObjectRef::named("v1", "Node", "", name);
    let targets: Vec<ObjectRef> = names.iter().map(target).collect();
    if targets.is_empty() {
        return BTreeSet::new();
    }
    let (mut dead, mut unread) = (BTreeSet::new(), Vec::new());
    for (name, answer) in names.into_iter().zip(cx.live_get::<LiveNode>(&targets)) {
        match answer {
            Ok(node) if is_dead(&node.view) => {
                dead.insert(name.to_owned());
            }
            Ok(_) => {}
            // Its pods are orphans.
            Err(failure) if failure.is_gone() => {}
            Err(failure) => unread.push((name, failure)),
        }
    }
    if let Some((name, failure)) = unread.first() {
        let fields = [
            ("node", *name),
            ("nodes", &unread.len().to_string()),
            ("error", &failure.to_string()),
        ];
        let message = "nodes that are out of service could not be read: their pods stay until the \
                       next pass";
        cx.log(Level::Warn, message, &fields);
    }
    dead
}

fn is_dead(node: &LiveNode) -> bool {
    let is_tainted = node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
    is_tainted && !is_true(&node.conditions, "Ready")
}

/// No node's name contains a slash. None for a text that is not a cursor of
/// this stage.
fn parse(cursor: &str) -> Option<Place> {
    let (order, key) = cursor.split_once('/')?;
    Some(Place {
        order: order.to_owned(),
        key: key.to_owned(),
    })
}
